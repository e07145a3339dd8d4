"""If no floor is set, the fleet's own median with its spread is the reference, and it is said."""

from collections.abc import Mapping

from nodectl.model.measurement import Measurement
from nodectl.probes.floors import with_fleet


def gemm(host: str, value: float, precision: str = "bf16", **more: object) -> Measurement:
    return Measurement("gemm", (host,), value, "TFLOPS", host, conditions={"precision": precision, "gpu": 0, **more})


def said(*measurements: Measurement, hardware: Mapping[str, str] | None = None) -> list[object]:
    return [each.conditions.get("reference") for each in with_fleet(measurements, hardware or {})]


def test_hosts_of_other_hardware_are_no_reference() -> None:
    hosts = ("n1", "n2", "n3", "n4")
    kinds = dict(zip(hosts, ("l40s-8", "l40s-8", "l40s-8", "t4-4"), strict=True))
    assert [each is None for each in said(*(gemm(host, 240.0) for host in hosts), hardware=kinds)] == [
        *[False] * 3,
        True,
    ]
