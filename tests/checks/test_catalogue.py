"""Checks are found by being there; what is declared wrongly is refused at load."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import nodectl.checks.system
from nodectl.checks import catalogue
from nodectl.checks.catalogue import checks, fields, judgements, thresholds
from nodectl.checks.check import Field, Judgement, Subject
from nodectl.errors import DeclarationError
from nodectl.facts.catalogue import registered

HEAD = """\
from nodectl.checks.check import Check, Threshold, judges

"""
GOOD = 'ODD = Check("odd", looks_at="a", fires="b")\n'
JUDGE = '\n\n@judges(ODD, reads=("cpu",))\ndef odd(host):\n    return iter(())\n'


def test_all_checks_are_there_and_read_facts_that_there_are() -> None:
    assert len(checks()) >= 160 and len(thresholds()) >= 35 and next(iter(checks())) == "profiles"
    readers: list[Judgement[Subject] | Field] = [*judgements(), *fields().values()]
    assert {name for reader in readers for name in reader.reads} <= {fact.subject for fact in registered()}
    judged = {check for judge in judgements() for check in judge.checks} | {field.check for field in fields().values()}
    # these are found of hosts that did not answer, of their profiles, and of hosts together
    together = {"fleet_duplicate", "fleet_hosts_file"}
    assert {check.id for check in checks().values() if check not in judged} == {"profiles", "reach", *together}


def test_each_threshold_belongs_to_a_check() -> None:
    used = {limit.name for check in checks().values() for limit in check.thresholds}
    assert set(thresholds()) - used == {"reboots_to_hardware"}, "it is of every fault that a reboot clears"


@pytest.fixture
def module_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Loads all checks with one more file, of this text."""

    def load(text: str) -> None:
        (tmp_path / "odd_ones.py").write_text(HEAD + text)
        monkeypatch.setattr(nodectl.checks.system, "__path__", [*nodectl.checks.system.__path__, str(tmp_path)])
        monkeypatch.delitem(sys.modules, "nodectl.checks.system.odd_ones", raising=False)
        try:
            catalogue.modules.__wrapped__()
        finally:
            sys.modules.pop("nodectl.checks.system.odd_ones", None)

    return load


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('ODD = Check("odd", looks_at="", fires="b")\n', "check 'odd' does not say looks_at"),
        ('ODD = Check("Odd one", looks_at="a", fires="b")\n', "check 'Odd one': an id has"),
        ('ODD = Check("odd", looks_at="a", fires="b", action="pray")\n', "'pray' is none of the actions none, restart"),
        ('ODD = Threshold("odd", 3, "")\n', "threshold 'odd'.*the reason"),
        ('ODD = Threshold("odd", "3", "why")\n', "threshold 'odd': '3' is no number"),
        (GOOD.replace('="b"', '="b", roles="limits"'), "check 'odd': roles is no tuple of str: 'limits'"),
        (GOOD.replace('="b"', '="b", roles=("limit",)'), "odd_ones: the check 'odd' names the role 'limit', and there"),
        (GOOD.replace('="b"', '="b", roles_of={"x": ("nick",)}'), "check 'odd' names the role 'nick', and there is"),
        (GOOD.replace('="b"', '="b", thresholds=7'), "check 'odd': thresholds is no tuple of Threshold: 7"),
        (GOOD + JUDGE.replace('("cpu",)', '"cpu"'), r"line \d+: .*tuples of names: write \('cpu',\)"),
        (GOOD + JUDGE.replace('("cpu",)', '("cpu",), variables="x"'), r"tuples of names: write \('x',\)"),
        (GOOD + JUDGE.replace('("cpu",)', '("cpus",)'), "odd_ones reads 'cpus', and there is no such fact"),
        (GOOD + JUDGE.replace('("cpu",)', "()"), "odd: name the checks.*and the facts"),
        (GOOD + 'EVEN = Check("even", looks_at="a", fires="b")\n' + JUDGE, "'even' is judged by no function"),
        (GOOD.replace('"odd"', '"clock"') + JUDGE, "'clock' is declared twice: in nodectl.checks.system.basics and in"),
        (
            'L = Threshold("shm_mib", 1, "why")\n' + GOOD + JUDGE,
            "threshold 'shm_mib' is declared twice: in nodectl.checks.system.storage and in nodectl.checks.system.odd",
        ),
    ],
)
def test_what_is_declared_wrongly_is_refused_at_load(
    module_with: Callable[[str], None], text: str, message: str
) -> None:
    module_with(GOOD + JUDGE)
    with pytest.raises(DeclarationError, match=message):
        module_with(text)
