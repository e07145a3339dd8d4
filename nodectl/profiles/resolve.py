"""The only merge of profiles: base, hardware, stack, tuning, then a host's overrides, into what one host should be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nodectl.common.resources import profiles_dir
from nodectl.errors import ProfileError
from nodectl.profiles import KINDS, SETTINGS
from nodectl.profiles.addresses import addresses
from nodectl.profiles.compat import IncompatibleError, Problem, nearest_stack, profile_problems
from nodectl.profiles.families import family_of
from nodectl.profiles.gpus import completed, composed, is_composed
from nodectl.profiles.host_compat import HostLook, host_problems
from nodectl.profiles.load import Document, check_document, find_profiles, read_document, read_profile
from nodectl.profiles.matrix import matrix
from nodectl.profiles.overrides import (
    MISFIT,
    NCCL_ENV,
    OVERRIDES,
    checked_nccl_env,
    checked_overrides,
    checked_reasons,
    merge_fields,
    merge_settings,
    misfit_allowed,
)
from nodectl.profiles.role_values import merge_role_value
from nodectl.profiles.schema import Hardware, Stack, Tuning

_MODELS: dict[str, type[Hardware | Stack | Tuning]] = {"hardware": Hardware, "stack": Stack, "tuning": Tuning}
_REMEDY = "choose another combination, or give your reasons in nodectl_allow_unsupported to go on with a warning"
_MEANT = f"choose another combination; {MISFIT}: allow, where it is meant"


@dataclass(frozen=True, slots=True)
class Resolved:
    """Hold what one host should be; `names` holds the profiles' names by kind.

    `problems` are those that do not stop it: warnings, and refusals that the reasons in `unsupported`, or
    nodectl_misfit, allow.
    `refusals` are what the host itself stands against, where a host was looked at.
    """

    names: Mapping[str, str]
    hardware: Hardware
    stack: Stack
    tuning: Tuning
    problems: tuple[Problem, ...] = ()
    refusals: tuple[Problem, ...] = ()
    unsupported: tuple[str, ...] = ()
    look: HostLook | None = None

    @property
    def nccl_env(self) -> dict[str, str]:
        """NCCL variables, rendered for the stack's NCCL."""
        return self.tuning.nccl_env(self.stack.nccl)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what an operator must be told each time these profiles are used."""
        return tuple(self._warnings())

    def _warnings(self) -> Iterator[str]:
        debug = ", ".join(self.tuning.debug_variables)
        if debug:
            text = f"tuning {self.names['tuning']} persists {debug}: of NCCL's debugging class, which may cost speed"
            yield f"{text} or hang a job; use it to measure, not to stay"
        if self.look and self.look.node.recorded:
            what = ", ".join(self.look.node.recorded)
            yield f"recorded, not found on this host: {what} (nodectl_recorded_look, or a lab host that is dressed)"
        allowed = " / ".join(self.unsupported)
        for problem in self.problems:
            if problem.refuses and problem.misfit and not allowed:
                yield f"allowed by {MISFIT}: {problem.reason}"
            else:
                yield (
                    f"unsupported, and allowed because: {allowed}. {problem.text}" if problem.refuses else problem.text
                )

    def as_variables(self) -> dict[str, Any]:
        """Plain data for Ansible: names, hardware, stack, tuning's groups, warnings, refusals, way_out, unsupported."""
        return {
            "names": dict(self.names),
            "hardware": hardware_variables(self.hardware, self.look),
            "family": family_variables(self.look),
            "stack": stack_variables(self.stack, self.look),
            "sysctl": [
                {"key": key, "value": setting.value, "never_lower": setting.never_lower, "why": setting.why}
                for key, setting in sorted(self.tuning.sysctl.items())
            ],
            "nccl_env": self.tuning.nccl_env(self.stack.nccl),
            "limits": {name: setting.value for name, setting in sorted(self.tuning.limits.items())},
            "nic": _values(self.tuning.nic),
            "gpu": _values(self.tuning.gpu),
            "warnings": list(self.warnings),
            "refusals": [problem.text for problem in self.refusals],
            # what a misfit says ends with its own way out
            "way_out": "" if all(problem.misfit for problem in self.refusals) else _REMEDY,
            "unsupported": list(self.unsupported),
        }


def resolve(
    hardware: str,
    stack: str,
    tuning: str,
    *,
    overrides: Mapping[str, Any] | None = None,
    nccl_env: Mapping[str, Any] | None = None,
    roles: Mapping[str, Any] | None = None,
    extra_dirs: Sequence[Path] = (),
    allow_unsupported: Any = (),
    misfit: Any = None,
    look: HostLook | None = None,
) -> Resolved:
    """Merge and validate; ProfileError for an unknown name or a malformed profile, its child for an impossible pair.

    A host's own values go over the profiles' in this order: `overrides`, `nccl_env`, `roles` (its variables of roles).

    What a host itself stands against is not raised but returned, so that it is refused before anything changes.
    """
    allowed, meant = checked_reasons(allow_unsupported), misfit_allowed(misfit)
    names = dict(zip(KINDS, (hardware, stack, tuning), strict=True))
    merged = merge(names, overrides=overrides, nccl_env=nccl_env, roles=roles, extra_dirs=extra_dirs)
    if look:
        # the branch of the driver is the one that the host's system gets
        os, driver = look.node.os, merged.stack.driver
        driver = driver and driver.of_system(family_of(os.id).key(os.key))
        merged = replace(merged, stack=merged.stack.model_copy(update={"driver": driver}))
    of_profiles, of_host = _judge(merged, look, checked_overrides(overrides).get("stack", {}), extra_dirs)

    def stands(problem: Problem) -> bool:
        return problem.refuses and not (meant and problem.misfit)

    # which machine it is, a host that was looked at tells
    refused = [problem for problem in of_profiles if stands(problem) and (look is None or not problem.misfit)]
    if refused and not allowed:
        text = "; ".join(problem.text for problem in refused)
        remedy = _MEANT if all(problem.misfit for problem in refused) else _REMEDY
        raise IncompatibleError(f"hardware {hardware}, stack {stack}, tuning {tuning}: {text}", remedy, of_profiles)
    standing = [] if allowed else [problem for problem in (*of_profiles, *of_host) if stands(problem)]
    used = any(map(stands, (*of_profiles, *of_host)))
    return replace(
        merged,
        problems=tuple(problem for problem in (*of_profiles, *of_host) if problem not in standing),
        refusals=tuple(standing),
        unsupported=allowed if used else (),
        look=look,
    )


def merge(
    names: Mapping[str, str],
    *,
    overrides: Mapping[str, Any] | None = None,
    nccl_env: Mapping[str, Any] | None = None,
    roles: Mapping[str, Any] | None = None,
    extra_dirs: Sequence[Path] = (),
) -> Resolved:
    """Return what a host should be, not judged; without a stack's name no version is expected of it."""
    changes, variables = checked_overrides(overrides), checked_nccl_env(nccl_env)
    checked: dict[str, Any] = {"stack": Stack.model_construct(description="not named", torch=None)}
    for kind, name in names.items():
        document = _load(kind, name, extra_dirs)
        if kind == "tuning":
            checked[kind] = _own_tuning(name, document, changes, variables, roles or {})
        else:
            _change(document, changes.get(kind, {}))
            checked[kind] = check_document(_MODELS[kind], document, f"{kind} {name} with {OVERRIDES}")
    return Resolved(names, **checked)


def _change(document: Document, changes: Mapping[str, Any]) -> None:
    """Put a host's own values over a profile's. A branch of the driver that it names is meant for its system."""
    merge_fields(document, changes)
    driver = document.get("driver")
    if isinstance(driver, dict) and "branch" in (changes.get("driver") or {}):
        driver.pop("branches", None)


def _own_tuning(
    name: str, document: Document, changes: Document, nccl_env: Document, roles: Mapping[str, Any]
) -> Tuning:
    """Return the tuning with the host's values; ProfileError naming the host's variable that holds a wrong one."""

    def checked(variable: str) -> Tuning:
        return check_document(Tuning, document, f"tuning {name} with {variable}")

    merge_settings(document, changes)
    before = deepcopy(document)
    merge_settings(document, {"nccl": nccl_env}, NCCL_ENV)
    try:
        tuning = checked(NCCL_ENV)
    except ProfileError:
        # what is wrong without it too is not its fault
        check_document(Tuning, before, f"tuning {name} with {OVERRIDES}")
        raise
    for variable, value in roles.items():
        merge_role_value(document, variable, value)
        tuning = checked(variable)
    return tuning


def _judge(
    merged: Resolved, look: HostLook | None, changes: Mapping[str, Any], extra_dirs: Sequence[Path]
) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    def of_profiles(stack: Stack) -> tuple[Problem, ...]:
        return tuple(profile_problems(merged.hardware, stack, merged.tuning, matrix()))

    def of_host(stack: Stack) -> tuple[Problem, ...]:
        return tuple(host_problems(merged.hardware, stack, merged.tuning, look, matrix())) if look else ()

    gpus = merged.hardware.gpus
    cuda_wanted = bool(merged.stack.cuda) if gpus is None else gpus > 0

    def works(stack: Stack) -> bool:
        # a CPU build runs beside GPUs that are only seen, and is no way out for who asked for CUDA
        if bool(stack.cuda) != cuda_wanted:
            return False
        # that the profile is another machine's is the same with any stack
        problems = (problem for problem in (*of_profiles(stack), *of_host(stack)) if problem.refuses)
        return not any(problem.other_stack or not problem.misfit for problem in problems)

    first, second = of_profiles(merged.stack), of_host(merged.stack)
    if any(problem.other_stack and not problem.nearest for problem in (*first, *second)):
        named = nearest_stack(merged.stack, load_stacks(extra_dirs, changes), works)
        first, second = (
            tuple(
                replace(problem, nearest=problem.nearest or named) if problem.other_stack else problem
                for problem in problems
            )
            for problems in (first, second)
        )
    return first, second


def load_stacks(extra_dirs: Sequence[Path] = (), changes: Mapping[str, Any] | None = None) -> dict[str, Stack]:
    """All stacks known here by name, with a host's changes, without malformed ones: refused if they are used."""
    stacks: dict[str, Stack] = {}
    for name in find_profiles("stack", extra_dirs):
        with suppress(ProfileError):
            document = _load("stack", name, extra_dirs)
            _change(document, changes or {})
            stacks[name] = check_document(Stack, document, f"stack {name}")
    return stacks


def load_profile(kind: str, name: str, extra_dirs: Sequence[Path] = ()) -> Hardware | Stack | Tuning:
    """One profile by itself, validated; a tuning comes without the base. Hardware may be composed: `4 x rtx4090`."""
    if kind == "hardware" and is_composed(name) and name not in find_profiles(kind, extra_dirs):
        return composed(name)
    document, path = read_profile(kind, name, extra_dirs)
    document = completed(document) if kind == "hardware" else document
    return check_document(_MODELS[kind], _with_origin(document, f"{kind} {name}"), str(path))


def base_tuning() -> Tuning:
    """Return what holds on every node, whatever its profiles."""
    path = profiles_dir() / "base.yml"
    return check_document(Tuning, _with_origin(read_document(path), "base"), str(path))


def _load(kind: str, name: str, extra_dirs: Sequence[Path]) -> Document:
    document = load_profile(kind, name, extra_dirs).model_dump(exclude_unset=True)
    if kind != "tuning":
        return document
    base = base_tuning().model_dump(exclude_unset=True)
    for group in SETTINGS:
        document[group] = base.get(group, {}) | document.get(group, {})
    return document


def _with_origin(document: Document, origin: str) -> Document:
    """Return the document with its origin in each setting; malformed settings are left for the schema to refuse."""
    marked = dict(document)
    for group in SETTINGS:
        settings = document.get(group)
        if isinstance(settings, dict):
            marked[group] = {
                key: {"origin": origin, **setting} if isinstance(setting, dict) else setting
                for key, setting in settings.items()
            }
    return marked


def hardware_variables(hardware: Hardware, look: HostLook | None) -> dict[str, Any]:
    """Return `fleet.hardware`; if the profile does not know (`known` is false) it is what was seen on the host."""
    seen = look.node if look else None
    counted = hardware.gpus is not None
    return {
        "known": counted,
        "gpus": hardware.gpus or 0 if counted or seen is None else len(seen.gpus),
        "gpu": hardware.gpu.model if hardware.gpu else None,
        "compute_capability": hardware.gpu.compute_capability if hardware.gpu else None,
        "nvswitch": hardware.nvswitch if counted or seen is None else seen.nvswitch,
        "link": hardware.link,
        "rdma": hardware.has_rdma,
    }


def family_variables(look: HostLook | None) -> dict[str, Any]:
    """Return `fleet.family`: what the host's distribution calls what roles ask for."""
    os = look.node.os if look else None
    family = family_of(os.id if os else None)
    precompiled = family.precompiled_of(os.id, os.version) if os else None
    return {
        "name": family.family,
        "precompiled": precompiled.model_dump(mode="json") if precompiled else None,
        "repository": family.repository_of(os.id, os.version) if os else "",
        **family.model_dump(mode="json", include={"headers", "driver_needs", "other_names", "chrony", "remedies"}),
        **{name: list(getattr(family, name)) for name in ("rdma", "compiler", "deepspeed")},
    }


def stack_variables(stack: Stack, look: HostLook | None = None) -> dict[str, Any]:
    """Return `fleet.stack`: what is installed, and for which systems it exists."""
    family = family_of(look.node.os.id if look else None)
    stack = family.stack(stack)
    places, system = addresses(), stack.system
    # without a host the key is that of Ubuntu's long-known releases
    distribution = family.repository_of(look.node.os.id, look.node.os.version) if look else "ubuntu2204"
    key = next((key for key, signed in places.nvidia.keys.items() if distribution in signed), "")
    return {
        "requirements": list(stack.requirements),
        "index": places.index(stack.index) if stack.index else "",
        "index_packages": list(stack.index_packages),
        "python_min": stack.python.min if stack.python else "",
        "python_max": stack.python.max if stack.python else "",
        "torch": stack.torch,
        "cuda": stack.cuda,
        "cudnn": stack.cudnn,
        "nccl": stack.nccl,
        "os": list(stack.os),
        "architectures": list(stack.architectures),
        "driver": stack.driver.model_dump(exclude={"branches"}) if stack.driver else None,
        "toolkit": system.toolkit.model_dump() if system.toolkit else None,
        "system_cudnn": system.cudnn.model_dump() if system.cudnn else None,
        "system_nccl": system.nccl.model_dump() if system.nccl else None,
        "dcgm": list(stack.dcgm),
        "deepspeed": stack.deepspeed,
        "nccl_tests": stack.nccl_tests
        and {
            "version": stack.nccl_tests,
            "url": places.nccl_tests.url,
            "commit": places.nccl_tests.commits.get(stack.nccl_tests, ""),
        },
        "nvidia_repository": {"base_url": places.nvidia.base_url, "key_fingerprint": key} if stack.cuda else None,
        "unverified": sorted(stack.unverified),
    }


def _values(group: Any) -> dict[str, Any]:
    return {name: getattr(getattr(group, name), "value", None) for name in type(group).model_fields}
