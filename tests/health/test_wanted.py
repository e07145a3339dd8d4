"""What a host is held against where profiles are named, half named, or not at all."""

from nodectl.health.host import wanted_of
from nodectl.model.host import Host
from nodectl.model.status import Status


def test_hardware_is_judged_where_nobody_named_the_stack() -> None:
    wanted = wanted_of(Host("a", "a"), {"hardware": "dgx-a100"}, ())
    assert wanted.resolved is not None and wanted.resolved.hardware.gpus == 8
    assert wanted.resolved.stack.torch is None and wanted.resolved.nccl_env == {}
    assert [(each.check, each.status) for each in wanted.findings] == [("profiles", Status.UNKNOWN)]


def test_a_host_without_any_profile_is_only_compared() -> None:
    wanted = wanted_of(Host("a", "a"), {}, ())
    assert wanted.resolved is None and wanted.findings[0].status is Status.UNKNOWN
