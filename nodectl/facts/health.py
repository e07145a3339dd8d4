"""Which facts `health` needs of a host: all that `facts` shows, and what the host's profiles set."""

from collections.abc import Sequence

from nodectl.facts import settings
from nodectl.facts.base import Fact, read_fact
from nodectl.facts.catalogue import FACTS, venv_of
from nodectl.model.host import Host
from nodectl.model.recording import Command, Recording


def health_facts(sysctl_keys: Sequence[str], *, has_gpus: bool) -> tuple[Fact, ...]:
    """What only root sees is asked only where there are GPUs."""
    rooted = (settings.LOG, settings.BRIDGES) if has_gpus else ()
    kernel = (settings.sysctl_fact(sysctl_keys),) if sysctl_keys else ()
    return (*FACTS, *kernel, settings.LIMITS, settings.NCCL, settings.SYNC, *rooted)


def commands_of(facts: Sequence[Fact], host: Host) -> tuple[Command, ...]:
    """All their commands, each key once."""
    return tuple({command.key: command for fact in facts for command in fact.commands(venv_of(host))}.values())


def read_all(facts: Sequence[Fact], recording: Recording) -> dict[str, object]:
    """The dataclass (or Unread) of each subject."""
    return {fact.subject: read_fact(fact, recording) for fact in facts}
