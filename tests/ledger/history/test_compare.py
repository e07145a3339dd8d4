"""Then and now: what counts as the same thing, how far it has moved, and what is said of it."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from nodectl.errors import UsageError
from nodectl.ledger.history.compare import by_identity, compare, findings, read_against
from nodectl.ledger.history.store import identity_of
from nodectl.model.status import Status
from nodectl.probes.registry import kind_of
from nodectl.report.measurements import comparison_table
from tests.ledger.history.measured import memory, tcp


def test_what_was_chosen_tells_things_apart_and_what_was_found_does_not() -> None:
    one = tcp("a", "b", 9.0)
    found_otherwise = replace(one, value=5.0, spread=None, conditions={**one.conditions, "mtu": [9000, 9000]})
    assert identity_of(one) == identity_of(found_otherwise)
    others = [tcp("b", "a", 9.0), tcp("a", "b", 9.0, streams=4), replace(one, unit="ms"), memory("a", 9.0)]
    assert len({identity_of(each) for each in [one, *others]}) == 5


@pytest.mark.parametrize(
    ("old", "new", "spreads", "percent", "outside", "status"),
    [
        (10.0, 8.0, (0.02, 0.03), -20, True, Status.WARNING),
        (10.0, 12.0, (0.02, 0.03), 20, True, None),
        # within one of the two
        (10.0, 8.0, (0.02, 0.30), -20, False, None),
        (10.0, 8.0, (0.25, 0.02), -20, False, None),
        # outside both, and too little to speak of
        (10.0, 9.6, (0.01, 0.01), -4, True, None),
        # measured once only: nobody can tell
        (10.0, 5.0, (None, 0.02), -50, None, None),
        (10.0, 5.0, (0.02, None), -50, None, None),
    ],
)
def test_changes(
    old: float,
    new: float,
    spreads: tuple[float | None, float | None],
    percent: float,
    outside: bool | None,
    status: Status | None,
) -> None:
    before, after = tcp("a", "b", old, spreads[0]), tcp("a", "b", new, spreads[1])
    compared = compare("LAST", [after], by_identity([before]))
    (change,) = compared.changes
    assert (change.old, change.new, change.outside_spreads) == (old, new, outside)
    assert change.change_percent == pytest.approx(percent)
    assert [each.status for each in findings(compared)] == ([] if status is None else [status])


def test_a_finding_says_then_and_now() -> None:
    (found,) = findings(compare("LAST", [memory("gpu07", 15.0)], by_identity([memory("gpu07", 20.0)])))
    assert (found.host, found.kind, found.hosts) == ("gpu07", "host", ("gpu07",))
    assert found.expected == "20.0 GB/s (LAST)"
    assert found.actual == "15.0 GB/s, -25.0 % and outside both spreads"
    (path,) = findings(compare("LAST", [tcp("a", "b", 5.0)], by_identity([tcp("a", "b", 9.0)])))
    assert (path.kind, path.hosts) == ("path", ("a", "b"))


def test_nothing_to_compare_with_is_unknown() -> None:
    compared = compare("LAST", [memory("gpu01", 1.0)], by_identity([memory("gpu02", 1.0)]))
    assert len(compared.only_new) == len(compared.only_old) == 1
    assert [each.status for each in findings(compared)] == [Status.UNKNOWN]


def test_the_table_shows_it_all() -> None:
    old = [memory("a", 20.0), memory("b", 20.0, spread=None), memory("gone", 1.0)]
    new = [memory("a", 15.0), memory("b", 20.2), memory("new", 1.0)]
    table = comparison_table(compare("2026-11-20", new, by_identity(old)), kind_of)
    assert "against 2026-11-20:" in table
    assert "-25.0 %  outside both spreads" in table
    assert "+1.0 %   spread not known" in table
    assert "not measured then: memory new triad" in table
    assert "not measured now: memory gone triad" in table


def test_a_saved_probe(tmp_path: Path) -> None:
    path = tmp_path / "before.json"
    measured = [memory("gpu01", 20.5), tcp("a", "b", 9.0, spread=None)]
    path.write_text(json.dumps({"schema": "nodectl.probe/1", "measurements": [asdict(each) for each in measured]}))
    against = read_against(str(path))
    assert against.saved == tuple(measured)
    assert against.text == str(path)


def test_last_and_dates() -> None:
    assert read_against("LAST").saved is None
    assert read_against("last").upto == float("inf")
    day, noon = read_against("2026-11-20"), read_against("2026-11-20T12:00")
    # a day counts until its end
    assert day.upto - noon.upto == pytest.approx(12 * 3600, abs=1)
    assert read_against("2026-11-20T12:00+00:00").upto == 1795176000.0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not JSON"),
        ("[]", "no nodectl.probe/1 in it"),
        ('{"measurements": {}}', "no nodectl.probe/1 in it"),
        ('{"schema": "nodectl.probe/1", "measurements": [1]}', "malformed"),
        ('{"schema": "nodectl.probe/1", "measurements": [{"probe": "tcp", "hosts": ["a"], "value": "9"}]}', "0.value"),
        (
            '{"schema": "nodectl.probe/1", "measurements": [{"probe": "tcp", "hosts": ["a"], "value": NaN}]}',
            "finite number",
        ),
    ],
)
def test_a_file_that_is_no_saved_probe(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "before.json"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_against(str(path))
    assert str(path) in refused.value.message
    assert told in refused.value.message
