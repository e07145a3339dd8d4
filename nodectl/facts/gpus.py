"""The GPUs that the loaded driver shows."""

from nodectl.facts.base import Fact, entry, output
from nodectl.model.facts import Gpu, Gpus
from nodectl.model.recording import Command, Entry, Recording
from nodectl.parsers.nvidia_smi_query import GpuRow, NvidiaSmiQuery, parse_nvidia_smi_query

_COLUMNS = "index,name,uuid,pci.bus_id,memory.total,driver_version"
COMMAND = Command("nvidia-smi-query", ("nvidia-smi", f"--query-gpu={_COLUMNS}", "--format=csv"), deadline_s=20)


def query(recording: Recording) -> NvidiaSmiQuery:
    """nvidia-smi's table; a lost GPU makes it exit with an error after the rows of the others."""
    found: Entry = entry(recording, COMMAND.key)
    if found.exit_status != 0 and found.stdout.strip():
        return parse_nvidia_smi_query(found.stdout)
    return parse_nvidia_smi_query(output(recording, COMMAND.key))


def _read(recording: Recording) -> Gpus:
    if _no_devices(entry(recording, COMMAND.key)):
        return Gpus(0, ())
    table = query(recording)
    return Gpus(len(table.gpus), tuple(_gpu(row) for row in table.gpus), tuple(bus_id for bus_id, _ in table.lost))


def _no_devices(found: Entry) -> bool:
    # the driver is loaded and answers: none is a number here, not a failure
    return "no devices were found" in (found.stdout + found.stderr).lower()


def _gpu(row: GpuRow) -> Gpu:
    index, memory_mib = row.values.get("index"), row.values.get("memory.total")
    return Gpu(
        index=index if isinstance(index, int) else None,
        name=_text(row, "name"),
        uuid=_text(row, "uuid"),
        bus_id=_bus_id(_text(row, "pci.bus_id")),
        memory_total_mib=memory_mib if isinstance(memory_mib, int) else None,
        unavailable=row.unavailable,
    )


def _text(row: GpuRow, column: str) -> str | None:
    value = row.values.get(column)
    return None if value is None else str(value)


def _bus_id(text: str | None) -> str | None:
    # nvidia-smi prints a domain of eight digits, everything else one of four
    return text[4:].upper() if text and len(text) == 16 else text


FACT = Fact("gpus", lambda venv: (COMMAND,), _read)
