"""Which facts `health` needs of a host: all of them, with the kernel settings that its profiles set."""

from collections.abc import Sequence

from nodectl.facts import pcie
from nodectl.facts.base import Fact
from nodectl.facts.catalogue import commands_for, facts_for, read_facts
from nodectl.model.host import Host
from nodectl.model.recording import Command, Recording

# what only root sees, and what only a host with GPUs or NICs to talk to them is asked for
_ROOTED = ("kernel_events", "pcie")


def health_facts(sysctl_keys: Sequence[str], *, has_gpus: bool) -> tuple[Fact, ...]:
    """What only root sees is asked only where there are GPUs."""
    if has_gpus:
        return (*facts_for(sysctl_keys), pcie.BRIDGES)
    return tuple(fact for fact in facts_for(sysctl_keys) if fact.subject not in _ROOTED)


def commands_of(facts: Sequence[Fact], host: Host) -> tuple[Command, ...]:
    """All their commands, each key once."""
    return commands_for(host, facts)


def read_all(facts: Sequence[Fact], recording: Recording) -> dict[str, object]:
    """The dataclass (or Unread) of each subject."""
    return read_facts(recording, facts)
