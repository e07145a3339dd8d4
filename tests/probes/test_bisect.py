"""Bisection: the host in every group that fails, a pair that fails in company, and what only numbers do."""

from collections.abc import Callable, Sequence

import pytest

from nodectl.probes.nccl.blame import Isolation, isolate

HOSTS = tuple(f"n{number:03}" for number in range(64))


def asker(fails: Callable[[Sequence[str]], bool]) -> tuple[Callable[..., Isolation], list[Sequence[str]]]:
    tested: list[Sequence[str]] = []

    def ask(groups: Sequence[Sequence[str]]) -> list[bool]:
        names = [name for group in groups for name in group]
        assert len(names) == len(set(names))  # groups of one call can run at once
        tested.extend(groups)
        return [fails(group) for group in groups]

    return lambda hosts, **more: isolate(hosts, ask, **more), tested


@pytest.mark.parametrize("culprit", [0, 31, 63])
def test_one_host_is_found_in_few_calls(culprit: int) -> None:
    run, tested = asker(lambda group: HOSTS[culprit] in group)
    found = run(HOSTS)
    assert found.culprits == (HOSTS[culprit],)
    assert not found.only_together
    assert found.calls <= 8
    assert min(map(len, tested)) >= 2


def test_two_hosts_in_different_halves_are_both_found() -> None:
    run, _ = asker(lambda group: HOSTS[3] in group or HOSTS[50] in group)
    assert set(run(HOSTS).culprits) == {HOSTS[3], HOSTS[50]}


def test_a_group_that_is_merely_too_large_has_no_culprit() -> None:
    run, _ = asker(lambda group: len(group) > 60)
    found = run(HOSTS)
    assert found.only_together
    assert found.culprits == ()
    assert found.smallest == HOSTS


def test_two_that_fail_together_only_are_named_together() -> None:
    run, _ = asker(lambda group: {HOSTS[2], HOSTS[3]} <= set(group))
    assert set(run(HOSTS).culprits) == {HOSTS[2], HOSTS[3]}
