"""Facts: each command has a key of its own, and a line that fails is a line."""

from typing import Any

from nodectl.facts.base import Fact
from nodectl.facts.catalogue import modules, registered
from nodectl.model.host import Host


def test_a_recording_keeps_one_output_for_each_key() -> None:
    first: dict[str, tuple[Fact[Any], tuple[str, ...]]] = {}
    assert len(registered()) == len(modules())
    for fact in registered():
        for command in fact.commands_on(Host("", "")):
            other, argv = first.setdefault(command.key, (fact, command.argv))
            # one fact may ask for more keys or files than another does, by the same program
            assert other is fact or argv[:3] == command.argv[:3], command.key


def test_a_line_that_fails_is_a_line() -> None:
    fact: Fact[int] = Fact("odd", (), lambda _: 1, lambda value: {0: "none"}[value])
    assert fact.line(1) == "unknown: not shown: KeyError: 1"
