"""systemd and logind read their files anew where their live answer is another than the files'."""

from collections.abc import Callable

import pytest

from ansible_collections.nodectl.fleet.plugins.modules import service_limits


def answering(text: str, status: int = 0) -> Callable[[list[str]], tuple[int, str, str]]:
    return lambda argv: (0, "", "") if "is-active" in argv else (status, text, "")


@pytest.mark.parametrize(
    ("name", "wanted", "live", "is_low"),
    [
        ("memlock", "unlimited", "infinity", False),
        ("memlock", "unlimited", "8388608", True),
        ("memlock", "8192", "8388608", False),  # KiB against bytes
        ("nofile", "1048576", "524288", True),
        ("nofile", "1024", "524288", False),
    ],
)
def test_systemd_is_asked_in_its_own_units(name: str, wanted: str, live: str, is_low: bool) -> None:
    assert service_limits.is_low(answering(f"{live}\n"), name, wanted) is is_low


def test_what_a_unit_gets_is_asked_not_what_it_may_raise_it_to() -> None:
    live = {"DefaultLimitNOFILE": "524288", "DefaultLimitNOFILESoft": "1024"}
    assert service_limits.is_low(lambda argv: (0, live[argv[-1]], ""), "nofile", "12000")


@pytest.mark.parametrize(
    ("answer", "status", "removes"), [("b false\n", 0, False), ("b true\n", 0, True), ("", 1, False)]
)
def test_logind_is_asked_itself(answer: str, status: int, removes: bool) -> None:
    assert service_limits.removes_ipc(answering(answer, status)) is removes
    assert service_limits.removes_ipc(lambda argv: (3, "", "")) is False, "logind does not run"


@pytest.mark.parametrize(
    ("name", "wanted", "most", "written"),
    [
        ("nofile", "4194304", "1048576", "1048576"),
        ("nofile", "unlimited", "1048576", "1048576"),
        ("nofile", "65536", "1048576", "65536"),
        ("nofile", "65536", "", "65536"),
        ("memlock", "unlimited", "1048576", "unlimited"),
    ],
)
def test_no_more_files_are_written_than_the_kernel_gives(name: str, wanted: str, most: str, written: str) -> None:
    assert service_limits.bounded(name, wanted, most) == written


@pytest.mark.parametrize(
    ("limits", "may_raise", "refused"),
    [
        ({"memlock": "unlimited", "nofile": "1048576"}, True, []),
        ({"memlock": "unlimited", "nofile": "4194304"}, True, ["limits_nofile"]),
        ({"memlock": "unlimited", "nofile": "unlimited"}, True, ["limits_nofile"]),
        ({"memlock": "unlimited", "nofile": "1024"}, False, ["limits_memlock"]),
        ({"memlock": "8192", "nofile": "1048576"}, False, ["limits_nofile"]),
    ],
)
def test_what_this_host_refuses_is_named(limits: dict[str, str], may_raise: bool, refused: list[str]) -> None:
    reasons = service_limits.not_settable(limits, "1048576", {"memlock": 8192.0, "nofile": 524288.0}, may_raise)
    assert [reason.partition(":")[0] for reason in reasons] == refused
