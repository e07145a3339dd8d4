"""The host's processors."""

from nodectl.facts.base import Fact, output
from nodectl.model.facts import Cpu
from nodectl.model.recording import Command, Recording
from nodectl.parsers.lscpu import parse_lscpu


def _read(recording: Recording) -> Cpu:
    return parse_lscpu(output(recording, "lscpu"))


FACT = Fact("cpu", lambda venv: (Command("lscpu", ("lscpu",)),), _read)
