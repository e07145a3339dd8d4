"""What a probe prints: the fleet, who is worst, pairs as a matrix; each value only where that is asked for."""

from collections.abc import Iterable

import pytest

from nodectl.common.units import format_value
from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.registry import kind_of
from nodectl.report.measurements import comparison_table, measurements_text
from nodectl.report.series import fleet_series
from tests.ledger.history.measured import memory


def test_collectives_over_all_hosts_fit_a_terminal_and_lose_nothing() -> None:
    given = {"backend": "gloo", "ranks": 4}
    hosts = tuple(f"node{number:02d}" for number in range(1, 5))
    one = [
        Measurement("nccl", hosts, 0.0372, "GB/s", "", 1.2, 0.03, {"collective": name, "size_bytes": size, **given})
        for name in ("all_reduce", "reduce_scatter")
        for size in (1 << 20, 1 << 26)
    ]
    shown = measurements_text(one, kind_of, [], width=80)
    assert max(map(len, shown.split("\n\n")[0].splitlines())) <= 80
    assert "all_reduce 64 MiB" in shown and "3 % of 1.20 GB/s" in shown
    wide = measurements_text(one, kind_of, [], width=200)
    assert "37.2 MB/s busbw = 298 Mbit/s" in wide and wide.count("gloo, 4 ranks") == 5


def trip(sender: str, receiver: str, us: float, **more: object) -> Measurement:
    """As the latency probe gives it."""
    conditions = {"p99_us": us * 2, "min_us": us / 2, "interfaces": [f"eth-{sender}", "eth0"], **more}
    return Measurement("latency", (sender, receiver), us, "us", f"{sender} -> {receiver}", None, 0.05, conditions)


def trips(hosts: int, slow: str = "", name: str = "node{:02d}") -> list[Measurement]:
    """Both ways between all; what begins or ends at `slow` takes twice as long."""
    names = [name.format(number + 1) for number in range(hosts)]
    return [
        trip(a, b, (41_000.0 if slow in (a, b) else 20_000.0) + 100 * place)
        for place, (a, b) in enumerate((a, b) for a in names for b in names if a != b)
    ]


def text(measured: Iterable[Measurement], findings: Iterable[Finding] = (), **how: object) -> str:
    return measurements_text(tuple(measured), kind_of, tuple(findings), **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (20836.109, "us", "20.8 ms"),
        (999.4, "us", "999 us"),
        (0.25, "us", "250 ns"),
        (2_500_000.0, "us", "2.50 s"),
        (0.42, "Gbit/s", "420 Mbit/s"),
        (391.27, "GB/s", "391 GB/s"),
        (1536.0, "MiB/s", "1.50 GiB/s"),
        (20836.0, "IOPS", "20,836 IOPS"),
        (0.0, "Gbit/s", "0 Gbit/s"),
        (9.996, "Gb/s", "10.0 Gb/s"),
    ],
)
def test_values_are_in_units_of_people(value: float, unit: str, shown: str) -> None:
    assert format_value(value, unit) == shown


def test_the_fleet_comes_first_with_median_spread_and_verdict() -> None:
    slow = Finding("node02", "latency", Status.FAILED, actual="slow", kind="host", hosts=("node02",))
    lines = text(trips(4, "node02"), [slow]).splitlines()
    assert lines[0].split() == ["PROBE", "WHAT", "MEASURED", "MEDIAN", "LOWEST", "TO", "HIGHEST"]
    assert "12 paths" in lines[1] and "20.1 to 42.0 ms" in lines[1]
    assert "latency: FAILED, 1 failed; no floor is set" in lines
    assert " us" not in "".join(lines)


def test_the_worst_three_are_named_worst_first() -> None:
    rates = [memory(f"gpu{n}", value) for n, value in enumerate([20.0, 15.0, 20.5, 12.0, 21.0, 18.0])]
    shown = text(rates)
    named = [line.split()[1] for line in shown.split("WORST FIRST")[1].splitlines()[1:4]]
    assert named == ["gpu3", "gpu1", "gpu5"]
    assert "-37 %" in shown and "gpu4" not in shown
    assert "3 of 6 values are not shown: --all shows each" in shown
    assert "gpu4" in text(rates, everything=True) and "--all" not in text(rates, everything=True)


def test_pairs_of_a_small_fleet_are_a_matrix() -> None:
    shown = text(trips(3))
    heading = "latency: ms, from row to column"
    rows = shown.split(f"{heading}\n")[1].splitlines()
    assert [line.split() for line in rows[:4]] == [
        ["node01", "node02", "node03"],
        ["node01", "-", "20.0", "20.1"],
        ["node02", "20.2", "-", "20.3"],
        ["node03", "20.4", "20.5", "-"],
    ]
    assert "--all" not in shown


def test_a_matrix_fits_the_terminal_or_is_none() -> None:
    many = trips(16)
    assert "from row to column" not in text(many) and "from row to column" in text(many, width=140)
    assert text(many).count("latency  node") == 10
    assert "230 of 240 values are not shown" in text(many)


def test_what_was_measured_again_is_marked_and_counts_once() -> None:
    again = [trip("node03", "node02", 24_000.0, again=1), trip("node03", "node02", 25_000.0, again=2)]
    measured = [*trips(3, "node02"), *again]
    shown = text(measured)
    assert "25.0*" in shown and "* measured again: the later value" in shown
    assert "latency: 1 of these were measured again; the first value counts here" in shown
    assert "6 paths" in shown and "measured again: 25.0 ms" in shown
    (one,) = fleet_series(measured, kind_of)
    assert one.median == fleet_series(trips(3, "node02"), kind_of)[0].median
    assert text(measured, everything=True).count("measured again, p99") == 2


def test_a_comparison_of_many_shows_the_largest_changes() -> None:
    from nodectl.ledger.history.compare import by_identity, compare

    old = [memory(f"gpu{n:02d}", 20.0) for n in range(40)]
    new = [memory(f"gpu{n:02d}", 20.0 + n / 10) for n in range(40)]
    compared = compare("LAST", new, by_identity(old))
    shown = comparison_table(compared, kind_of)
    assert shown.count("\nmemory") == 20 and "gpu39" in shown and "20 smaller changes are not shown: --all" in shown
    assert comparison_table(compared, kind_of, everything=True).count("\nmemory") == 40
