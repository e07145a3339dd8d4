"""Where no floor is known, the fleet's own median with its spread is the reference, and it is said."""

from collections.abc import Mapping

from nodectl.model.measurement import Measurement
from nodectl.probes.floors import with_fleet


def gemm(host: str, value: float, precision: str = "bf16", **more: object) -> Measurement:
    return Measurement("gemm", (host,), value, "TFLOPS", host, conditions={"precision": precision, "gpu": 0, **more})


def said(*measurements: Measurement, hardware: Mapping[str, str] | None = None) -> list[object]:
    return [each.conditions.get("reference") for each in with_fleet(measurements, hardware or {})]


def test_three_alike_are_held_beside_their_median() -> None:
    reference = "the fleet's own median: 240 TFLOPS of 3 values, standard deviation 0.6%"
    assert said(gemm("n1", 240.0), gemm("n2", 241.0), gemm("n3", 200.0)) == [reference] * 3


def test_hosts_of_other_hardware_are_no_reference() -> None:
    hosts = ("n1", "n2", "n3", "n4")
    kinds = dict(zip(hosts, ("l40s-8", "l40s-8", "l40s-8", "t4-4"), strict=True))
    assert [each is None for each in said(*(gemm(host, 240.0) for host in hosts), hardware=kinds)] == [
        *[False] * 3,
        True,
    ]
