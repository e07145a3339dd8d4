"""Where no floor is known, the fleet's own median with its spread is the reference, and it is said."""

from collections.abc import Mapping

from nodectl.model.measurement import Measurement
from nodectl.probes.floors import with_fleet
from nodectl.probes.registry import kind_of
from nodectl.report.measurements import measurements_text


def gemm(host: str, value: float, precision: str = "bf16", **more: object) -> Measurement:
    return Measurement("gemm", (host,), value, "TFLOPS", host, conditions={"precision": precision, "gpu": 0, **more})


def said(*measurements: Measurement, hardware: Mapping[str, str] | None = None) -> list[object]:
    return [each.conditions.get("reference") for each in with_fleet(measurements, hardware or {})]


def test_three_alike_are_held_beside_their_median() -> None:
    reference = "the fleet's own median: 240 TFLOPS of 3 values, standard deviation 0.6%"
    assert said(gemm("n1", 240.0), gemm("n2", 241.0), gemm("n3", 200.0)) == [reference] * 3


def test_two_of_a_kind_tell_nothing() -> None:
    assert said(gemm("n1", 240.0), gemm("n2", 241.0), gemm("n3", 200.0, "fp8")) == [None] * 3


def test_hosts_of_other_hardware_are_no_reference() -> None:
    hosts = ("n1", "n2", "n3", "n4")
    kinds = dict(zip(hosts, ("l40s-8", "l40s-8", "l40s-8", "t4-4"), strict=True))
    assert [each is None for each in said(*(gemm(host, 240.0) for host in hosts), hardware=kinds)] == [
        *[False] * 3,
        True,
    ]


def test_what_has_a_floor_keeps_it() -> None:
    floored = Measurement(
        "gemm", ("n4",), 200.0, "TFLOPS", "n4", 250.0, None, {"precision": "bf16", "reference": "own"}
    )
    assert said(gemm("n1", 240.0), gemm("n2", 240.0), gemm("n3", 240.0), floored)[-1] == "own"


def test_the_table_says_that_the_fleet_is_its_own_reference() -> None:
    measured = with_fleet([gemm(f"n{number}", 240.0 + number) for number in range(4)], {})
    text = measurements_text(measured, kind_of, ())
    assert "no floor is known; the values are compared with the fleet's median" in text
    alone = with_fleet([gemm("n1", 240.0), gemm("n2", 1.0)], {})
    assert "gemm: ok; no floor is known" in measurements_text(alone, kind_of, ())
