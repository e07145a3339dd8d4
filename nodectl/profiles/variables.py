"""Profiles of a host as Ansible is told them: plain data, under the names that plays and roles rely on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nodectl.profiles.addresses import addresses
from nodectl.profiles.families import DEBIAN, Family, family_of

if TYPE_CHECKING:
    from nodectl.profiles.host_compat import HostLook
    from nodectl.profiles.schema import Hardware, Stack, Tuning


def hardware_variables(hardware: Hardware, look: HostLook | None) -> dict[str, Any]:
    """`fleet.hardware`; where the profile does not know (`known` is false) it is what was seen on the host."""
    seen = look.node if look else None
    known = hardware.gpus is not None
    return {
        "known": known,
        "gpus": hardware.gpus or 0 if known or seen is None else len(seen.gpus),
        "gpu": hardware.gpu.model if hardware.gpu else None,
        "compute_capability": hardware.gpu.compute_capability if hardware.gpu else None,
        "nvswitch": hardware.nvswitch if known or seen is None else seen.nvswitch,
        "link": hardware.link,
        "rdma": any(nic.kind in ("infiniband", "roce") for nic in hardware.nics),
    }


def family_variables(look: HostLook | None) -> dict[str, Any]:
    """`fleet.family`: what the host's distribution calls what roles ask for."""
    os = look.node.os if look else None
    family = family_of(os.id if os else None)
    precompiled = family.precompiled_of(os.id) if os else None
    return {
        "name": family.family,
        "precompiled": precompiled.model_dump(mode="json") if precompiled else None,
        "repository": family.repository_of(os.id, os.version) if os else "",
        **family.model_dump(mode="json", include={"headers", "driver_needs", "other_names", "chrony", "remedies"}),
        **{name: list(getattr(family, name)) for name in ("sources_need", "rdma", "compiler", "deepspeed")},
    }


def stack_variables(stack: Stack, look: HostLook | None = None) -> dict[str, Any]:
    """`fleet.stack`: what is installed, and for which systems it exists."""
    family = family_of(look.node.os.id if look else None)
    stack = family.stack(stack)
    known, system = addresses(), stack.system
    cuda = stack.cuda is not None
    return {
        "requirements": list(stack.requirements),
        "index": known.index(stack.index) if stack.index else "",
        "index_packages": list(stack.index_packages),
        "python_min": stack.python.min if stack.python else "",
        "python_max": stack.python.max if stack.python else "",
        "torch": stack.torch,
        "cuda": stack.cuda,
        "cudnn": stack.cudnn,
        "nccl": stack.nccl,
        "os": list(stack.os),
        "architectures": list(stack.architectures),
        "driver": stack.driver.model_dump() if stack.driver else None,
        "toolkit": system.toolkit.model_dump() if system.toolkit else None,
        "system_cudnn": system.cudnn.model_dump() if system.cudnn else None,
        "system_nccl": system.nccl.model_dump() if system.nccl else None,
        "dcgm": list(stack.dcgm),
        "deepspeed": stack.deepspeed,
        "nccl_tests": _nccl_tests(stack.nccl_tests) if stack.nccl_tests else None,
        "nvidia_repository": _repository(family) if cuda else None,
        "unverified": sorted(stack.unverified),
    }


def _nccl_tests(version: str) -> dict[str, str]:
    source = addresses().nccl_tests
    return {"version": version, "url": source.url, "commit": source.commits.get(version, "")}


def _repository(family: Family) -> dict[str, str]:
    nvidia = addresses().nvidia
    key = nvidia.key_fingerprint if family.family == DEBIAN else nvidia.rpm_key_fingerprint
    return {"base_url": nvidia.base_url, "key_fingerprint": key}


def tuning_variables(tuning: Tuning, nccl: str | None) -> dict[str, Any]:
    """`fleet.sysctl`, `nccl_env`, `limits`, `nic` and `gpu`; what the tuning leaves alone is null."""
    return {
        "sysctl": [
            {"key": key, "value": setting.value, "never_lower": setting.never_lower, "why": setting.why}
            for key, setting in sorted(tuning.sysctl.items())
        ],
        "nccl_env": tuning.nccl_env(nccl),
        "limits": {name: setting.value for name, setting in sorted(tuning.limits.items())},
        "nic": _values(tuning.nic),
        "gpu": _values(tuning.gpu),
    }


def _values(group: Any) -> dict[str, Any]:
    return {name: getattr(getattr(group, name), "value", None) for name in type(group).model_fields}
