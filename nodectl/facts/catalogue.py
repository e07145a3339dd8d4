"""Which facts there are, and a host's facts from its recording."""

from collections.abc import Sequence

from nodectl.common import node_paths
from nodectl.facts import (
    clock,
    cpu,
    disk,
    gpu_links,
    gpus,
    infiniband,
    kernel,
    lab,
    libraries,
    log,
    memory,
    nics,
    pcie,
    processes,
    settings,
    units,
    versions,
)
from nodectl.facts.base import Fact, read_fact
from nodectl.model.host import Host
from nodectl.model.recording import Command, Recording

FACTS = (
    cpu.FACT,
    cpu.NUMA,
    memory.FACT,
    memory.ERRORS,
    nics.FACT,
    infiniband.PORTS,
    infiniband.GIDS,
    kernel.FACT,
    kernel.BOOT,
    kernel.KNOBS,
    kernel.MODULES,
    settings.sysctl_fact(),
    settings.LIMITS,
    units.LIMITS,
    versions.FACT,
    libraries.FACT,
    gpus.FACT,
    gpu_links.TOPOLOGY,
    gpu_links.P2P,
    gpu_links.NVLINK,
    gpu_links.MANAGER,
    pcie.FACT,
    log.EVENTS,
    disk.FACT,
    disk.MOUNTS,
    clock.FACT,
    settings.SYNC,
    settings.NCCL,
    units.FACT,
    units.SLURM,
    processes.FACT,
    processes.LISTENING,
    lab.FACT,
)


def venv_of(host: Host) -> str:
    """Where the launcher's Python environment lies on `host`."""
    folder = host.variables.get("pytorch_venv")
    # a template is Ansible's to render; the role's default stands for it
    return folder if isinstance(folder, str) and folder and "{{" not in folder else node_paths.VENV


def facts_for(sysctl_keys: Sequence[str] = ()) -> tuple[Fact, ...]:
    """All facts; the kernel settings with those that a tuning sets."""
    if not sysctl_keys:
        return FACTS
    return tuple(settings.sysctl_fact(sysctl_keys) if fact.subject == "sysctl" else fact for fact in FACTS)


def commands_for(host: Host, facts: Sequence[Fact] = FACTS) -> tuple[Command, ...]:
    """All commands of the facts, each key once."""
    return tuple({command.key: command for fact in facts for command in fact.commands(venv_of(host))}.values())


def read_facts(recording: Recording, facts: Sequence[Fact] = FACTS) -> dict[str, object]:
    """The dataclass (or Unread) of each subject."""
    return {fact.subject: read_fact(fact, recording) for fact in facts}
