"""Which facts there are, and a host's facts from its recording."""

from nodectl.facts import clock, cpu, disk, gpus, kernel, lab, memory, nics, versions
from nodectl.facts.base import read_fact
from nodectl.model.host import Host
from nodectl.model.recording import Command, Recording

FACTS = (cpu.FACT, memory.FACT, nics.FACT, kernel.FACT, versions.FACT, gpus.FACT, disk.FACT, clock.FACT, lab.FACT)
DEFAULT_VENV = "/opt/nodectl/venv"


def venv_of(host: Host) -> str:
    """Where the launcher's Python environment lies on `host`."""
    folder = host.variables.get("pytorch_venv")
    # a template is Ansible's to render; the role's default stands for it
    return folder if isinstance(folder, str) and folder and "{{" not in folder else DEFAULT_VENV


def commands_for(host: Host) -> tuple[Command, ...]:
    """All commands of all facts, each key once."""
    unique = {command.key: command for fact in FACTS for command in fact.commands(venv_of(host))}
    return tuple(unique.values())


def read_facts(recording: Recording) -> dict[str, object]:
    """The dataclass (or Unread) of each subject."""
    return {fact.subject: read_fact(fact, recording) for fact in FACTS}
