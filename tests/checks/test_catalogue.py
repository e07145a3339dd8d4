"""Checks are found by being there, and read facts that there are."""

from nodectl.checks import catalogue
from nodectl.checks.catalogue import checks, declared, fields, judgements, launch_checks, thresholds
from nodectl.checks.check import ACTIONS, Field, Judgement, Subject, Threshold
from nodectl.common.resources import share_dir
from nodectl.facts.catalogue import registered


def test_all_checks_are_there_and_read_facts_that_there_are() -> None:
    assert len(checks()) >= 140 and len(thresholds()) >= 30 and next(iter(checks())) == "profiles"
    readers: list[Judgement[Subject] | Field] = [*judgements(), *fields().values()]
    assert {name for reader in readers for name in reader.reads} <= {fact.subject for fact in registered()}
    judged = {check for judge in judgements() for check in judge.checks} | {field.check for field in fields().values()}
    # these are found of hosts that did not answer, of their profiles, and of hosts together
    together = {"fleet_duplicate", "fleet_hosts_file"}
    assert {check.id for check in checks().values() if check not in judged} == {"profiles", "reach", *together}


def test_each_threshold_belongs_to_a_check() -> None:
    used = {limit.name for check in checks().values() for limit in check.thresholds}
    assert set(thresholds()) == used


def test_declarations_are_complete_and_unique() -> None:
    roles = {path.name for path in (share_dir() / "roles").iterdir()}
    for modules, all_checks in ((catalogue.modules(), checks()), (catalogue.launch_modules(), launch_checks())):
        each = [check for module in modules for check in declared(module)]
        assert len(set(each)) == len(all_checks)
        limits = [value for module in modules for value in catalogue.values(module) if isinstance(value, Threshold)]
        assert len({limit.name for limit in limits}) == len(set(limits))
        for check in each:
            assert check.fires and check.action in ACTIONS
            assert {*check.roles, *(role for names in check.roles_of.values() for role in names)} <= roles
