"""What a host is held against where profiles are named, half named, or not at all."""

from nodectl.health.host import order_of, wanted_of
from nodectl.model.host import Host
from nodectl.model.status import Status


def test_hardware_is_judged_where_nobody_named_the_stack() -> None:
    wanted = wanted_of(Host("a", "a"), {"hardware": "dgx-a100"}, ())
    assert wanted.resolved is not None and wanted.resolved.hardware.gpus == 8
    assert wanted.resolved.stack.torch is None and wanted.resolved.nccl_env == {}
    assert [(each.check, each.status) for each in wanted.findings] == [("profiles", Status.UNKNOWN)]


def test_the_name_of_an_nvlink_domain_is_one_of_the_variables_that_checks_see() -> None:
    host = Host("a", "a", variables={"nodectl_nvlink_domain": "r1"})
    assert order_of(host, {"hardware": "gb200-4"}, ()).variables["nodectl_nvlink_domain"] == "r1"


def test_a_host_without_any_profile_is_only_compared() -> None:
    wanted = wanted_of(Host("a", "a"), {}, ())
    assert wanted.resolved is None and wanted.findings[0].status is Status.UNKNOWN
