"""Profiles against what a host is: its system, GPUs and driver, as node_look found them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from nodectl.common.counting import counted
from nodectl.errors import ProfileError
from nodectl.profiles.compat import Problem, glibc_problems, gpu_problems
from nodectl.profiles.driver_policy import OWNED, DriverPolicy, driver_policy
from nodectl.profiles.families import family_of
from nodectl.profiles.matrix import Matrix
from nodectl.profiles.nccl import asks_for_ib, version_key
from nodectl.profiles.schema import Hardware, Stack, Tuning

# from Blackwell on the NVSwitches are not on the node's own bus
SWITCH_OFF_BUS = version_key("10.0")


class _Look(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Os(_Look):
    id: str = ""
    version: str = ""
    key: str = ""


class LiveDriver(_Look):
    """The driver as found: the loaded version, and where the installed one came from."""

    version: str | None = None
    origin: str = "none"
    packages: tuple[Mapping[str, Any], ...] = ()


class Node(_Look):
    """The part of a look that is judged; `recorded` names what was not found but given."""

    os: _Os = _Os()
    architecture: str = ""
    gpus: tuple[Mapping[str, Any], ...] = ()
    nvswitch: bool = False
    driver: LiveDriver = LiveDriver()
    # names of RDMA devices; None if the look does not tell
    rdma: tuple[str, ...] | None = None
    recorded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostLook:
    """Hold what was found on a host, and what the operator says of its driver."""

    node: Node
    driver: DriverPolicy | None = None

    @classmethod
    def create(cls, node: Mapping[str, Any], driver: Any = None) -> HostLook:
        """Make a look of node_look's document; ProfileError if it, or nodectl_driver, is malformed."""
        if driver not in ("keep", "manage", None, ""):
            raise ProfileError(f"nodectl_driver is {driver!r}", "make it keep or manage, or leave it away")
        try:
            return cls(Node.model_validate(node), driver or None)
        except ValidationError as error:
            raise ProfileError(f"the look at the host is malformed: {error.errors()[0]}", "see node_look") from error

    def policy(self, stack: Stack) -> DriverPolicy:
        """Return what is done with the driver, as the roles decide it."""
        wanted = stack.driver.model_dump() if stack.driver else None
        return driver_policy(self.node.driver.model_dump(), wanted, self.driver)


def host_problems(
    hardware: Hardware, stack: Stack, tuning: Tuning, look: HostLook, matrix: Matrix
) -> Iterator[Problem]:
    """Reasons why this host cannot be what its profiles say, or may not."""
    recorded = f" (recorded: {', '.join(look.node.recorded)})" if look.node.recorded else ""
    for problems in (
        _system(stack, look.node, matrix),
        _gpus(hardware, stack, look.node, matrix),
        _driver(stack, look, matrix),
        _ignored(look, stack, matrix),
        _network(hardware, tuning.nccl_env(stack.nccl), look.node),
    ):
        for problem in problems:
            yield replace(problem, reason=problem.reason + recorded)


def _system(stack: Stack, node: Node, matrix: Matrix) -> Iterator[Problem]:
    claimed, key = "the stack's profile", family_of(node.os.id).key(node.os.key)
    if stack.os and key not in stack.os:
        reason = f"the stack exists for {', '.join(stack.os)}, and this host runs {node.os.key or 'an unknown system'}"
        source = stack.sources.get("os", claimed)
        yield Problem("os", reason, source, other_stack=True)
    else:
        yield from glibc_problems(key, stack, matrix)
    if stack.architectures and node.architecture not in stack.architectures:
        reason = f"the stack exists for {', '.join(stack.architectures)}, and this host is {node.architecture}"
        yield Problem("architecture", reason, stack.sources.get("architectures", claimed), other_stack=True)


def _network(hardware: Hardware, env: Mapping[str, str], node: Node) -> Iterator[Problem]:
    if node.rdma == () and asks_for_ib(env):
        # what the profile promises a driver may bring that this run installs
        reason = "NCCL_NET=IB is set, and this host has no RDMA device: NCCL ends with 'network IB not found'"
        yield Problem(
            "nccl-net-ib-here", reason, "/sys/class/infiniband of the host", "no NCCL_NET", mild=hardware.has_rdma
        )


def _gpus(hardware: Hardware, stack: Stack, node: Node, matrix: Matrix) -> Iterator[Problem]:
    count, wanted = len(node.gpus), hardware.gpus
    # those that are the profile's, by their PCI ids: a card for the screen is none of them
    rows = (matrix.device(str(gpu.get("device", ""))) for gpu in node.gpus)
    alike = sum(bool(row and hardware.gpu and row.is_model(hardware.gpu.model)) for row in rows)
    if wanted and not count:
        reason = f"the profile says {counted(wanted, 'GPU')}, none seen here: nothing of the driver can be verified"
        yield Problem("gpus-not-seen", reason, "the PCI bus of the host", mild=True)
    elif wanted is not None and count != wanted and (not wanted or alike != wanted):
        reason = f"the profile says {counted(wanted, 'GPU')}, {count} seen here"
        # one that fell off the bus is health's to tell; more, or half of them, are another machine
        other = count > wanted or 2 * count <= wanted
        yield Problem("gpu-count", reason, "the PCI bus", mild=not other, misfit=other)
    if wanted is None and not count and stack.cuda:
        reason = f"the stack brings CUDA {stack.cuda}, and no GPU is seen here: nothing of the driver can be verified"
        yield Problem("gpus-not-seen", reason, "the PCI bus of the host", mild=True)
    if count and stack.cuda is None and stack.torch is not None and not wanted:
        seen = f"{counted(count, 'NVIDIA GPU')} {'is' if count == 1 else 'are'} seen here"
        reason = f"{seen}, which a stack without CUDA leaves idle"
        yield Problem("gpus-idle", reason, "the PCI bus of the host", misfit=True)
    yield from _models(hardware, stack, node, matrix)
    if hardware.nvswitch and count and not node.nvswitch:
        reason = "the profile claims NVSwitch and its fabric manager, and no NVSwitch is seen here"
        blackwell = hardware.gpu and version_key(hardware.gpu.compute_capability) >= SWITCH_OFF_BUS
        nearest = "nodectl_overrides: {hardware: {nvswitch: false, link: null}}"
        yield Problem("nvswitch", reason, "the PCI bus of the host", nearest, mild=bool(blackwell))


def _models(hardware: Hardware, stack: Stack, node: Node, matrix: Matrix) -> Iterator[Problem]:
    """GPUs that are not what the profile says are judged as what they are."""
    claimed = hardware.gpu.compute_capability if hardware.gpu else None
    identities = dict.fromkeys(str(gpu.get("device", "")) for gpu in node.gpus)
    model = hardware.gpu.model if hardware.gpu else ""
    devices = [row for row in map(matrix.device, identities) if row]
    # a card for the screen beside those that the profile means
    beside = any(row.compute_capability == claimed and row.is_model(model) for row in devices)
    rows = dict.fromkeys(row for row in devices if row.compute_capability != claimed or not row.is_model(model))
    architecture = node.architecture if node.architecture in ("x86_64", "aarch64") else None
    for row in rows:
        seen = f"{row.name}, compute capability {row.compute_capability}"
        if claimed:
            reason = f"the profile says {hardware.gpu and hardware.gpu.model}, and {seen}, is seen here"
            yield Problem("gpu-model", reason, row.source or "the PCI bus", mild=beside, misfit=not beside)
        if row.compute_capability == claimed:
            continue
        for problem in gpu_problems(row.compute_capability, stack, matrix, architecture):
            yield replace(
                problem,
                reason=f"seen here: {problem.reason}",
                source=problem.source and row.source and (f"{problem.source}; {row.source}"),
            )


def _driver(stack: Stack, look: HostLook, matrix: Matrix) -> Iterator[Problem]:
    row, live = matrix.cuda_row(stack.cuda), look.node.driver.version
    if row is None or live is None or look.policy(stack) == "manage":
        return
    least = stack.driver.min if stack.driver else row.min_driver
    if version_key(live) < version_key(row.min_driver):
        reason, source = f"CUDA {stack.cuda} needs driver {row.min_driver}", row.source
    elif version_key(live) < version_key(least):
        reason, source = f"the stack asks for driver {least}", stack.sources.get("driver", "")
    else:
        return
    nearest = f"a driver from {least} on, installed by whoever owns this one"
    if stack.driver and look.node.driver.origin not in OWNED:
        nearest = f"nodectl_driver: manage, which installs branch {stack.driver.branch}"
    yield Problem("driver-too-old", f"{reason}, and this host keeps {live}", source, nearest, other_stack=True)


def _ignored(look: HostLook, stack: Stack, matrix: Matrix) -> Iterator[Problem]:
    """GPUs on the PCI bus that the host's own driver, which is kept, does not know."""
    live = look.node.driver.version
    if live is None or look.policy(stack) == "manage":
        return
    devices = map(matrix.device, (str(gpu.get("device", "")) for gpu in look.node.gpus))
    for device in dict.fromkeys(row for row in devices if row):
        row = matrix.gpu(device.compute_capability)
        if row and (other := row.other_driver(live)):
            drivers, branch, source = other
            reason = f"{device.name}, which is seen here, {drivers}, and this host keeps {live}"
            nearest = f"a driver of branch {branch}, installed by whoever owns this one"
            yield Problem(
                "driver-ignores-gpu", reason, source and device.source and f"{source}; {device.source}", nearest
            )
