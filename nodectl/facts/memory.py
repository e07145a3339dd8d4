"""The host's memory and its /dev/shm."""

from nodectl.facts.base import Fact, output
from nodectl.facts.disk import SHM, shm
from nodectl.model.facts import Memory
from nodectl.model.recording import Command, Recording
from nodectl.parsers.proc_meminfo import parse_meminfo


def _read(recording: Recording) -> Memory:
    mib = parse_meminfo(output(recording, "meminfo"))
    shared = shm(recording)
    return Memory(
        mib["MemTotal"], mib.get("MemAvailable"), mib.get("SwapTotal"), None if shared is None else shared.size_mib
    )


FACT = Fact("memory", lambda venv: (Command("meminfo", ("cat", "/proc/meminfo")), SHM), _read)
