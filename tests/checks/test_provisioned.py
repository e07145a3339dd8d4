"""What the roles install, judged by health's checks: PyTorch as imported, packages, launcher, driver, timer, RDMA."""

from dataclasses import replace
from typing import Any

import pytest

from nodectl.checks.check import Subject
from nodectl.checks.judge import judge
from nodectl.checks.stack.provisioned import FROZEN
from nodectl.facts.environment import Imported
from nodectl.model.facts import Unread
from nodectl.profiles.resolve import Resolved, resolve
from tests.facts.recorded import fact

A100 = resolve("dgx-a100", "cu121", "stock")
STACK = A100.stack
TORCH = Imported(
    f"{STACK.torch}+cu121",
    "",
    {"cuda": STACK.cuda or "", "cudnn": STACK.cudnn or "", "nccl": STACK.nccl or ""},
    {"nccl": "/opt/v/lib/libnccl.so.2", "cudnn": "/opt/v/lib/libcudnn.so.8"},
    own=("/opt/v",),
    distributions={name.partition("==")[0].lower(): name.partition("==")[2] for name in STACK.requirements},
    python=STACK.python.max if STACK.python else "",
)


CANONICAL_NEXT = "linux-modules-nvidia-580-server-open-6.8.0-100-generic"
CANONICAL = "linux-modules-nvidia-580-server-open-6.8.0-45-generic 6.8.0-45.45 ii "
TREE = "dkms\t535.183.01\t5\t\n"


def found(
    check: str, wanted: Resolved = A100, variables: dict[str, Any] | None = None, **facts: object
) -> dict[str, tuple[str, str]]:
    findings = judge(Subject("a", facts, wanted, variables or {}))
    return {each.subject: (each.status.value, each.actual) for each in findings if each.check == check}


def statuses(told: dict[str, tuple[str, str]]) -> dict[str, str]:
    return {subject: status for subject, (status, _) in told.items()}


def test_torch_that_loads_what_the_stack_says_is_fine() -> None:
    assert set(statuses(found("torch", torch_import=TORCH)).values()) == {"ok"}
    assert found("torch") == {}, "nobody imported it"


@pytest.mark.parametrize(
    ("changes", "subject", "status"),
    [
        ({"error": "ImportError: libcudart.so.12"}, "import", "failed"),
        ({"python": "3.99.1"}, "python", "failed"),
        ({"distributions": {}}, "torch", "failed"),
        ({"libraries": {**TORCH.libraries, "nccl": "9.9.9"}}, "NCCL", "failed"),
        ({"libraries": {name: text for name, text in TORCH.libraries.items() if name != "cudnn"}}, "cuDNN", "failed"),
        ({"files": {"nccl": "/usr/local/lib/libnccl.so.2"}}, "NCCL of two", "warning"),
        ({"shadowing": {"/usr/x": ("libnccl",)}}, "LD_LIBRARY_PATH", "warning"),
    ],
)
def test_torch_that_is_another_is_found(changes: dict[str, Any], subject: str, status: str) -> None:
    assert statuses(found("torch", torch_import=replace(TORCH, **changes)))[subject] == status


def test_an_environment_that_is_gone_is_failed() -> None:
    gone = Unread("absent", "python is not installed")
    assert statuses(found("torch", torch_import=gone)) == {"import": "failed"}


def test_the_answer_of_an_import_and_of_one_that_died() -> None:
    line = '{"version": "2.1", "cuda": "12.1", "nccl": "2.18.1", "nccl_path": "/v/l", "own": ["/v"], "shadowing": {}, '
    line += '"distributions": {"torch": "2.1"}, "python": "3.10.2"}'
    told: Imported = fact("torch_import", torch_import=f"a warning of its own\nNODECTL {line}\n")
    assert (told.version, told.libraries, told.files) == ("2.1", {"cuda": "12.1", "nccl": "2.18.1"}, {"nccl": "/v/l"})
    died = fact("torch_import", torch_import=(139, "", "Fatal Python error\nSegmentation fault\n"))
    assert died.version is None and died.error == "Segmentation fault"
    assert isinstance(fact("torch_import", torch_import="NODECTL {}"), Unread)


@pytest.mark.parametrize(
    ("text", "launcher", "torchrun"),
    [
        ("launcher 0 \ntorchrun 0 executable\n", "ok", "ok"),
        ("launcher 4 broken\ntorchrun 0 executable\n", "failed", "ok"),
        ("launcher 127 no such program, or not executable\ntorchrun 127 not there\n", "failed", "failed"),
    ],
)
def test_the_launcher_is_run_where_nodectl_has_been(text: str, launcher: str, torchrun: str) -> None:
    told = found("launcher", launcher=fact("launcher", launcher=text))
    assert statuses(told) == {"": launcher, "torchrun": torchrun}
    assert "broken" not in text or told[""][1] == "exit status 4: broken"
    assert found("launcher", launcher=fact("launcher", launcher=3)) == {}


def test_packages_are_there_in_their_version_and_held() -> None:
    assert STACK.system.toolkit and STACK.system.cudnn and STACK.system.nccl
    versions = {STACK.system.toolkit.package: STACK.system.toolkit.version or "1", **STACK.system.cudnn.packages}
    versions |= {**STACK.system.nccl.packages, **dict.fromkeys(STACK.dcgm, "4.4.1")}

    def told(check: str, **changes: str) -> dict[str, str]:
        lines = {name: f"{name} {version} hi" for name, version in versions.items()} | changes
        text = "".join(f"{line} \n" for line in lines.values() if line)
        return statuses(found(check, packages=fact("packages", packages=text)))

    for check in ("cuda", "cudnn", "nccl", "dcgm"):
        assert set(told(check).values()) == {"ok"}, check
    toolkit, nccl = STACK.system.toolkit.package, next(iter(STACK.system.nccl.packages))
    assert told("cuda", **{toolkit: f"{toolkit} {versions[toolkit]} ii"}) == {toolkit: "warning"}
    assert told("cuda", **{toolkit: ""}) == {toolkit: "failed"}
    assert told("cuda", **{toolkit: f"{toolkit} {versions[toolkit]} iU"}) == {toolkit: "failed"}, "only unpacked"
    cuda = versions[nccl].partition("+")[2]
    assert told("nccl", **{nccl: f"{nccl} 2.99.1-1+{cuda} hi"})[nccl] == "warning", "the nearest for the same CUDA"
    assert told("nccl", **{nccl: f"{nccl} 2.99.1-1+cuda99.1 hi"})[nccl] == "failed"
    assert told("dcgm", old="datacenter-gpu-manager 3.3 ii")["datacenter-gpu-manager"] == "failed"
    assert found("cuda", packages=fact("packages", packages=3)) == {}, "not provisioned by nodectl"


@pytest.mark.parametrize(
    ("running", "after", "modules", "packages", "trees", "status", "remedy"),
    [
        # precompiled, and the kernel was upgraded without its modules
        ("6.8.0-45-generic", "6.8.0-100-generic", "6.8.0-45-generic", CANONICAL, "", "warning", CANONICAL_NEXT),
        ("6.8.0-45-generic", "6.8.0-100-generic", "6.8.0-100-generic", CANONICAL, "", "ok", ""),
        # DKMS had no headers of the new one
        ("6.8.0-45", "6.8.0-100", "6.8.0-45", "", TREE, "warning", "linux-headers-6.8.0-100, then: dkms autoinstall"),
        ("5.14.0-427.el9", "5.14.0-503.el9", "5.14.0-427.el9", "", "", "warning", "provision again"),
        # rebooted into one without
        ("6.8.0-100", "6.8.0-100", "6.8.0-45", "", "", "warning", "provision again"),
        ("6.8.0-100", "6.8.0-100", "6.8.0-45", "", TREE, "", ""),  # DKMS itself is told
        ("6.8.0-100", "", "6.8.0-45", "", "", "", ""),  # a container
    ],
)
def test_a_next_kernel_without_the_drivers_modules_is_told_before_the_reboot(
    running: str, after: str, modules: str, packages: str, trees: str, status: str, remedy: str
) -> None:
    starts = f"next\t{after}\n" if after else ""
    text = f"kernel\t{running}\nmodule\t{modules}\n{starts}{trees}"
    facts = {"driver_build": fact("driver_build", driver_build=f"{text}\n")}
    if packages:
        facts["packages"] = fact("packages", packages=f"{packages}\n")
    findings = judge(Subject("a", facts, A100))
    of_boot = [each for each in findings if (each.check, each.subject) == ("driver_build", "next boot")]
    assert [each.status for each in of_boot] == [status] * bool(status)
    assert all(remedy in each.remedy for each in of_boot)


@pytest.mark.parametrize(
    ("package", "status", "actual"),
    [
        ("", "failed", "none of 535.216.01; no log of a build"),  # the newest by its numbers, not by its letters
        ("cuda-drivers-535 535.54.03-1 hi ", "ok", "5 modules of 535.54.03"),
        ("cuda-drivers-535 535.216.01-1 hi ", "failed", "none of 535.216.01; no log of a build"),
        ("cuda-drivers-535 535.183.01-1 hi ", "", ""),
    ],
)
def test_the_build_of_the_installed_driver_counts_not_that_of_one_before(
    package: str, status: str, actual: str
) -> None:
    wanted = resolve("dgx-a100", "cu121", "stock", overrides={"stack": {"driver": {"branch": "535", "min": "525"}}})
    text = "kernel\t6.1.0\ndkms\t535.216.01\t0\t\ndkms\t535.54.03\t5\t\n"
    facts = {
        "driver_build": fact("driver_build", driver_build=text),
        "packages": fact("packages", packages=f"{package}\n"),
    }
    assert found("driver_build", wanted, **facts) == ({"DKMS": (status, actual)} if status else {})


@pytest.mark.parametrize(
    ("text", "statuses_"),
    [
        ("systemd\nactive\n60\n", ["ok", "ok"]),
        ("systemd\nfailed\n7200\n", ["failed", "failed"]),
        ("systemd\nactive\n", ["ok", "failed"]),
        ("none\n", ["skipped"]),
        (3, ["failed"]),
    ],
)
def test_a_node_that_should_look_at_itself_does(text: str | int, statuses_: list[str]) -> None:
    timer = fact("health_timer", health_timer=text)
    asked = {"nodectl_health_timer": True}
    assert list(statuses(found("health_timer", variables=asked, health_timer=timer)).values()) == statuses_
    assert found("health_timer", health_timer=timer) == {}


URI = "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64/"
PINS = {
    name: version
    for versions in (STACK.system.cudnn, STACK.system.nccl)
    for name, version in (versions.packages.items() if versions else ())
}


def apt(changes: dict[str, str] | None = None, extra: str = "") -> object:
    """What the script prints of a host that is as the stack says; `changes` are candidates, `extra` more lines."""
    toolkit = STACK.system.toolkit
    assert toolkit is not None
    pins = PINS | ({toolkit.package: toolkit.version} if toolkit.version else {}) | (changes or {})
    candidates = "".join(f"candidate\t{name}\t{version}\n" for name, version in pins.items())
    frozen = "".join(f"frozen\t{name}\n" for name in FROZEN)
    release = "list\tdeveloper.download.nvidia.com_compute_cuda_repos_ubuntu2204_x86%5f64_Release\n"
    source = f"source\t/etc/apt/sources.list.d/nodectl-nvidia.sources\t{URI}\n"
    text = "".join([source, release, candidates, frozen, extra])
    return fact("nvidia_repository", nvidia_repository=text)


def test_a_repository_as_the_stack_says_is_fine() -> None:
    answers = statuses(found("nvidia_repository", nvidia_repository=apt()))
    assert set(answers.values()) == {"ok"}
    assert {"lists", "unattended upgrades", *PINS} <= set(answers)
    assert found("nvidia_repository", resolve("unknown", "cpu", "stock"), nvidia_repository=apt()) == {}
    assert found("nvidia_repository") == {}, "only verify asks"
    mirror = {"nvidia_repo_baseurl": "file:///mirror"}
    text = "source\t/a.sources\tfile:///mirror/debian12/x86_64/\nsource\t/b.list\tfile:///mirror/archive/x86_64/\n"
    repository = fact("nvidia_repository", nvidia_repository=text)
    mirrored = found("nvidia_repository", variables=mirror, nvidia_repository=repository)
    assert mirrored["file:///mirror"] == ("ok", "/a.sources"), "what else the mirror holds is not NVIDIA's"


@pytest.mark.parametrize(
    ("repository", "subject", "status"),
    [
        (fact("nvidia_repository", nvidia_repository=""), "lists", "failed"),
        (fact("nvidia_repository", nvidia_repository=""), "unattended upgrades", "failed"),
        (apt({"libcudnn8": "1.0"}), "libcudnn8", "failed"),
        (apt({"libcudnn8": "1.0+cuda12.1"}), "libcudnn8", "failed"),
        (apt({"libnccl2": "1.0+cuda12.1"}), "libnccl2", "ok"),
        (apt({"libnccl2": "1.0"}, f"offered\tlibnccl2\t{PINS['libnccl2']}\n"), "libnccl2", "failed"),
        (apt(extra=f"source\t/etc/apt/sources.list\t{URI}\n"), URI.partition("/ubuntu")[0], "failed"),
        (Unread("unknown", "it was cut"), "", "unknown"),
    ],
)
def test_a_repository_that_is_another_is_found(repository: object, subject: str, status: str) -> None:
    assert statuses(found("nvidia_repository", nvidia_repository=repository))[subject] == status
