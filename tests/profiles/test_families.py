"""RHEL's kind of hosts: which stacks they may have, and what packages are called there."""

from typing import Any

import pytest

from nodectl.profiles.families import families, family_of
from nodectl.profiles.host_compat import HostLook
from nodectl.profiles.resolve import Resolved, load_stacks, resolve
from tests.profiles.test_node_look import Root


def on(stack: str, system: str, version: str, overrides: dict[str, Any] | None = None) -> Resolved:
    release = version if system == "ubuntu" else version.partition(".")[0]
    node = {"os": {"id": system, "version": version, "key": f"{system}-{release}"}, "architecture": "x86_64"}
    return resolve("dgx-a100", stack, "stock", overrides=overrides, look=HostLook.create(node))


@pytest.mark.parametrize(
    ("stack", "system", "version", "refused"),
    [
        ("cu128", "rocky", "9.8", False),
        ("cu128", "rhel", "9.4", False),
        ("cu121", "almalinux", "8.10", False),
        ("cu128", "rhel", "10.0", True),
        ("cu13", "almalinux", "10.1", False),
        ("cu13", "rocky", "8.10", True),
        ("cu116", "rocky", "9.8", True),
        ("cu128", "fedora", "42", True),
        ("cu128", "centos", "9", True),
    ],
)
def test_a_stack_is_for_rhel_and_what_is_built_from_it(stack: str, system: str, version: str, refused: bool) -> None:
    problems = [problem.text for problem in on(stack, system, version).refusals if problem.code == "os"]
    assert bool(problems) == refused
    assert not refused or f"this host runs {system}-{version.partition('.')[0]}" in problems[0]


def test_names_versions_and_key_are_the_family_s() -> None:
    variables = on("cu121", "rocky", "9.8").as_variables()
    stack, family = variables["stack"], variables["family"]
    assert stack["system_cudnn"]["packages"] == {
        "libcudnn8": "8.9.0.131-1.cuda12.1",
        "libcudnn8-devel": "8.9.0.131-1.cuda12.1",
    }
    assert stack["system_nccl"]["packages"] == {"libnccl": "2.17.1-1+cuda12.1", "libnccl-devel": "2.17.1-1+cuda12.1"}
    assert (family["repository"], family["headers"]) == ("rhel9", "kernel-devel-{kernel}")
    assert on("cu128", "rhel", "9.8").as_variables()["stack"]["system_cudnn"]["packages"] == {
        "libcudnn9-cuda-12": "9.10.2.21-1",
        "libcudnn9-devel-cuda-12": "9.10.2.21-1",
    }


@pytest.mark.parametrize(
    ("system", "version", "key"),
    [
        ("ubuntu", "24.04", "3BF863CC"),
        ("ubuntu", "26.04", "60DF8A40"),
        ("debian", "12", "3BF863CC"),
        ("debian", "13", "8793F200"),
        ("rocky", "8.10", "D42D0685"),
        ("rhel", "9.8", "D42D0685"),
        # of rhel10's no whole fingerprint is published
        ("almalinux", "10.1", ""),
    ],
)
def test_each_repository_has_the_key_that_signs_it(system: str, version: str, key: str) -> None:
    assert on("cu132", system, version).as_variables()["stack"]["nvidia_repository"]["key_fingerprint"][-8:] == key


@pytest.mark.parametrize(
    ("system", "version", "overrides", "branch"),
    [
        ("ubuntu", "24.04", {}, "580"),
        ("rocky", "10.1", {}, "580"),
        ("ubuntu", "26.04", {}, "595"),
        ("debian", "13", {}, "595"),
        ("debian", "13", {"stack": {"driver": {"branch": "610"}}}, "610"),
    ],
)
def test_a_repository_that_begins_with_a_later_branch_gets_that(
    system: str, version: str, overrides: dict[str, Any], branch: str
) -> None:
    resolved = on("cu132", system, version, overrides)
    assert resolved.as_variables()["stack"]["driver"] == {"branch": branch, "min": "580", "flavour": "open"}


@pytest.mark.parametrize(
    ("system", "version", "name"), [("ubuntu", "22.04", "ubuntu2204"), ("debian", "12", "debian12")]
)
def test_debian_s_own_names_are_as_they_stand_in_the_stack(system: str, version: str, name: str) -> None:
    family = family_of(system)
    assert family.repository_of(system, version) == name
    for stack in load_stacks().values():
        assert family.stack(stack) == stack


def test_every_system_of_a_stack_has_a_family() -> None:
    known = {name for family in families() for name in (family.alike,) if name} | set(family_of("debian").systems)
    assert {key.partition("-")[0] for stack in load_stacks().values() for key in stack.os} <= known


def rocky(root: Root, kernels: tuple[str, ...] = ()) -> dict[str, Any]:
    root.write("etc/os-release", 'NAME="Rocky Linux"\nID="rocky"\nVERSION_ID="9.8"\nPLATFORM_ID="platform:el9"\n')
    for kernel in kernels:
        root.write(f"boot/vmlinuz-{kernel}")
        root.write(f"boot/initramfs-{kernel}.img", "x" * 2**20)
    return root.look()


def test_a_minor_version_is_the_same_system_and_the_rescue_kernel_is_none(tmp_path: Any) -> None:
    root = Root(tmp_path)
    kernels = ("0-rescue-6d2c8f", "5.14.0-611.41.1.el9_7.x86_64", "5.14.0-687.51.1.el9_8.x86_64")
    looked = rocky(root, kernels)
    assert looked["os"] == {"id": "rocky", "version": "9.8", "key": "rocky-9"}
    boot = looked["boot"]
    assert boot["kernel"] == kernels[-1] and boot["needed_mib"] == 1 and boot["free_mib"] is not None


def test_parts_of_a_driver_of_rpm_and_locked_kernels_are_told(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ansible_collections.nodectl.fleet.plugins.module_utils import dnf

    signed = "RSA/SHA512, Key ID 9cd0a493d42d0685"
    lines = (
        f"nvidia-open\t3\t580.126.20\t1.el9\tnoarch\t(none)\t(none)\t{signed}\t1",
        "nvidia-driver-cuda\t3\t580.126.20\t1.el9\tx86_64\tRPM Fusion\t(none)\t(none)\t1",
        "nvidia-container-toolkit\t0\t1.19.1\t1\tx86_64\tNVIDIA\t(none)\t(none)\t1",
        "kernel-core\t0\t5.14.0\t687.51.1.el9_8\tx86_64\tRocky\t(none)\t(none)\t1",
    )
    monkeypatch.setattr(dnf, "rows", lambda _root="/": dnf.parse_rows("\n".join(lines)))
    root = Root(tmp_path)
    root.write("etc/dnf/plugins/versionlock.list", "kernel-core-0:5.14.0-687.51.1.el9_8.*\n")
    looked = rocky(root)
    assert looked["driver"]["packages"] == [
        {"name": "nvidia-driver-cuda", "version": "580.126.20-1.el9", "from": "other"},
        {"name": "nvidia-open", "version": "580.126.20-1.el9", "from": "nvidia"},
    ]
    assert looked["driver"]["origin"] == "foreign"
    assert looked["boot"]["held"] == ["kernel-core-5.14.0-687.51.1.el9_8.x86_64"]
