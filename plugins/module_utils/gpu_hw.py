# SPDX-License-Identifier: Apache-2.0
"""A node's GPUs and PCIe bridges: what they hold, and what has to be run so that they hold what should be.

Roles send it along with their module, and `gpu_settings` installs it as the program that a boot runs: it needs
Python, and the programs nvidia-smi, lspci and setpci.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # nodes run this from Python 3.8 on, which cannot evaluate these
    from collections.abc import Callable, Mapping

    Run = Callable[[list[str]], tuple[int, str, str]]
    Gpu = dict[str, str]

FIELDS = {
    "uuid": "uuid",
    "index": "index",
    "persistence": "persistence_mode",
    "display": "display_active",
    "power_limit_w": "power.limit",
    "power_min": "power.min_limit",
    "power_max": "power.max_limit",
    "max_graphics": "clocks.max.graphics",
    "graphics_now": "clocks.current.graphics",
    "memory_now": "clocks.current.memory",
    "compute_mode": "compute_mode",
    "ecc": "ecc.mode.pending",
    "ecc_now": "ecc.mode.current",
    "mig": "mig.mode.pending",
    "mig_now": "mig.mode.current",
}
# each setting's option of nvidia-smi
OPTIONS = {
    "persistence": "-pm",
    "ecc": "-e",
    "mig": "-mig",
    "compute_mode": "-c",
    "power_limit_w": "-pl",
    "memory_clock": "-lmc",
    "clocks": "-lgc",
}
_STEP_MHZ = 15
_DEADLINE_S = 120
# nvidia-smi's exit status if an InfoROM is corrupted; it prints all rows, and a warning
_CORRUPTED = 14
_REFUSED = re.compile(r"not supported|^Unable to ", re.IGNORECASE)
# nvidia-smi's words for a value that this card does not have; any other word is an error
_ABSENT = ("[N/A]", "[Not Supported]", "[Requested functionality has been deprecated]", "[Not Available]")
# what of access control sends traffic between devices up to the root complex
ACS_FLAGS = ("SrcValid+", "ReqRedir+", "CmpltRedir+", "UpstreamFwd+")
_DEVICE = re.compile(r"((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (.*)")


class UnreadableError(Exception):
    """nvidia-smi cannot read a GPU: what it holds, and whether it can be set, is not known."""


class NoAnswerError(UnreadableError):
    """nvidia-smi shows no GPU at all, as before the reboot that an installed driver waits for."""


def gpus(run: Run) -> list[Gpu] | None:
    """Return each GPU's settings as nvidia-smi prints them, without units; None if nvidia-smi is not installed.

    UnreadableError if nvidia-smi fails, or prints anything else than the rows of all GPUs.
    """
    query = ",".join(FIELDS.values())
    status, out, err = run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"])
    if status == 127 and not shutil.which("nvidia-smi"):
        return None
    rows, others = [], []
    for line in filter(None, map(str.strip, out.splitlines())):
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(FIELDS):
            rows.append(dict(zip(FIELDS, cells)))  # noqa: B905 - Python 3.8
        elif not line.startswith("WARNING"):
            others.append(line)
    if status not in (0, _CORRUPTED) or others or not rows:
        reasons = [*others, *err.splitlines(), f"exit status {status}, {len(rows)} GPUs"]
        lost = [line for line in reasons if "device handle" in line or "GPU is lost" in line]
        kind = UnreadableError if rows else NoAnswerError
        raise kind(f"nvidia-smi: {(lost or reasons)[0].strip()}")
    for gpu in rows:
        errors = [f"{name} is {value}" for name, value in gpu.items() if value[:1] == "[" and value not in _ABSENT]
        if errors:
            raise UnreadableError(f"nvidia-smi cannot read GPU {gpu['index']}: {errors[0]}")
    return [{**gpu, **locked(gpu, read_locks())} for gpu in rows]


def locks_file() -> Path:
    """Return the file of the clocks that are locked. It lasts as long as a lock does, until the next boot."""
    return Path(os.environ.get("RUNTIME_DIRECTORY", "/run"), "nodectl-gpu-clocks.json")


def read_locks() -> dict[str, Gpu]:
    """{GPU: the clocks that it is locked at}: nvidia-smi sets them and does not print them."""
    return json.loads(locks_file().read_text(encoding="utf-8")) if locks_file().exists() else {}


def locked(gpu: Gpu, locks: Mapping[str, Gpu]) -> Gpu:
    """Pure: the clocks that the GPU is locked at; "" without a lock, and if a clock that is higher disproves it."""
    result = {}
    for name, now in (("clocks", gpu["graphics_now"]), ("memory_clock", gpu["memory_now"])):
        mhz = locks.get(gpu["uuid"], {}).get(name, "")
        result[name] = mhz if (number(now) or 0) <= (number(mhz) or 0) + _STEP_MHZ else ""
    return result


def number(text: str) -> float | None:
    """Return `700.00` as a number; None for `[N/A]` and the like."""
    return float(text) if re.match(r"\d+(\.\d+)?$", text) else None


def bridges(run: Run) -> dict[str, str] | None:
    """{bridge: its access control} of the PCIe bridges that have any; None where lspci does not answer."""
    status, out, _unused = run(["lspci", "-D", "-vvv"])
    return parse_bridges(out) if status == 0 else None


def parse_bridges(text: str) -> dict[str, str]:
    """Return the ACSCtl line of each PCI bridge in `lspci -vvv`."""
    controls, device = {}, ""
    for line in text.splitlines():
        head = _DEVICE.match(line)
        if head:
            device = head.group(1) if head.group(2).startswith("PCI bridge") else ""
        elif device and line.strip().startswith("ACSCtl:"):
            controls[device] = " ".join(line.split()[1:])
    return controls


def redirected(control: str) -> bool:
    """Return whether this access control sends traffic between devices through the root complex."""
    return any(flag in control.split() for flag in ACS_FLAGS)


def virtual(cpuinfo: str = "/proc/cpuinfo") -> bool:
    """Return whether this is a virtual machine, whose host relies on access control: it stays on."""
    flags = re.search(r"^flags\s*:(.*)$", Path(cpuinfo).read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    return bool(flags and "hypervisor" in flags.group(1).split())


def settings(gpu: Mapping[str, str]) -> dict[str, str]:
    """Return a GPU's settings that can be changed, each as nvidia-smi prints it and takes it."""
    return {name: gpu[name] for name in OPTIONS}


def targets(gpu: Gpu, wanted: Mapping[str, Any]) -> dict[str, str]:
    """Pure: the settings of a GPU that holds what is wanted; none that it lacks, or while a display uses it."""
    if gpu["display"] == "Enabled":
        return {}
    words = {True: "Enabled", False: "Disabled"}
    after = {name: words.get(wanted.get(name)) for name in ("persistence", "ecc", "mig")}
    after["compute_mode"] = wanted.get("compute_mode")
    after["power_limit_w"] = f"{wanted['power_limit_w']:.2f}" if wanted.get("power_limit_w") else None
    if wanted.get("clocks") and number(gpu["max_graphics"]):
        clocks = wanted["clocks"].replace("max", gpu["max_graphics"])
        after["memory_clock"], _unused, after["clocks"] = clocks.rpartition(",")
    return {name: value for name, value in after.items() if value is not None and not gpu[name].startswith("[")}


def setting_commands(uuid: str, wanted: Mapping[str, str], now: Mapping[str, str]) -> list[list[str]]:
    """Pure: what brings a GPU's settings from `now` to `wanted`; a value that nvidia-smi does not take is left out."""
    todo, switch = [], {"Enabled": "1", "Disabled": "0"}
    for name, value in wanted.items():
        option = OPTIONS[name]
        words = [option, f"{value},{value}" if option.startswith("-l") else switch.get(value, value.upper())]
        if value != now.get(name, value) and not value.startswith("["):
            todo.append(["nvidia-smi", "-i", uuid, *(words if value else [option.replace("-l", "-r")])])
    return todo


def power_refusal(gpu: Gpu, limit: int) -> str:
    """Return why this card cannot have the limit; "" if it can, or names no range."""
    low, high = number(gpu["power_min"]), number(gpu["power_max"])
    if low is None or high is None or low <= limit <= high:
        return ""
    return f"{gpu['uuid']}: a power limit of {limit} W is outside the card's {low:g} to {high:g} W"


def clock_refusal(run: Run, gpu: Gpu, clocks: str) -> str:
    """Return why this card cannot have the clocks; "" if it can."""
    query = "--query-supported-clocks=memory,graphics"
    pairs = run(["nvidia-smi", "-i", gpu["uuid"], query, "--format=csv,noheader,nounits"])[1]
    supported = [re.sub(r"\s", "", line) for line in pairs.splitlines()]
    if clocks == "max" or clocks in [*supported, *(pair.partition(",")[2] for pair in supported)]:
        return ""
    return f"{gpu['uuid']}: clocks {clocks} are none of the card's: nvidia-smi {query}"


def commands(run: Run, wanted: Mapping[str, Any]) -> list[list[str]]:
    """All that has to be run now; bridges only on bare metal."""
    asked = any(wanted.get(key) is not None for key in OPTIONS)
    todo = []
    for gpu in (gpus(run) if asked else None) or ():
        todo += setting_commands(gpu["uuid"], targets(gpu, wanted), settings(gpu))
    if wanted.get("acs") == "off" and not virtual():
        for device, control in sorted((bridges(run) or {}).items()):
            if redirected(control):
                todo.append(["setpci", "-s", device, "ECAP_ACS+0x6.w=0000"])
    return todo


def run_program(argv: list[str]) -> tuple[int, str, str]:
    """Return exit status and output; 127 if it is not installed, 124 if it did not end in time.

    A driver may hold a program so that it cannot be killed: it is not waited for.
    """
    try:
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function,consider-using-with
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        out, err = process.communicate(timeout=_DEADLINE_S)
    except OSError as error:
        return 127, "", f"{argv[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return 124, "", f"{argv[0]} did not end within {_DEADLINE_S} s"
    return process.returncode, out, err


def execute(run: Run, command: list[str]) -> str:
    """Run the command; return why it did not work. nvidia-smi exits with 0 if the card refuses a setting."""
    status, out, err = run(command)
    refused = [line for line in out.splitlines() if _REFUSED.search(line)]
    reason = (refused or [(err or out).strip()])[0] if status or refused else ""
    if command[0] == "nvidia-smi" and command[3][1:] in ("lgc", "rgc", "lmc", "rmc"):
        smi, option, mhz = command[:3], command[3], "".join(command[4:]).partition(",")[0]
        # before Volta a GPU has application clocks alone
        if "not supported" in reason.lower() and option in ("-lgc", "-rgc"):
            reason = reason if execute(run, [*smi, *application_clocks(run, smi, mhz)]) else ""
        if not reason:
            locks = read_locks()
            locks.setdefault(command[2], {})["clocks" if option.endswith("gc") else "memory_clock"] = mhz
            locks_file().write_text(json.dumps(locks), encoding="utf-8")
    return reason and f"{' '.join(command)}: {reason}"


def application_clocks(run: Run, smi: list[str], mhz: str) -> list[str]:
    """Return the options that stand for -lgc, and -rgc without a clock, before Volta."""
    memory = run([*smi, "--query-gpu=clocks.max.memory", "--format=csv,noheader,nounits"])[1].strip() if mhz else ""
    return ["-ac", f"{memory},{mhz}"] if mhz else ["-rac"]


def not_held(run: Run, wanted: Mapping[str, Any]) -> list[str]:
    """Read the settings back; return a reason for each GPU that does not hold what is wanted."""
    reasons = []
    for gpu in gpus(run) or ():
        for name, value in targets(gpu, wanted).items():
            if gpu[name] != value:
                now = gpu[name] or f"{gpu['graphics_now']} and {gpu['memory_now']} MHz"
                reasons.append(f"{gpu['uuid']}: {name} is {now} after it was set to {value or 'no lock'}")
    return reasons


def main(path: str) -> int:
    """Apply the settings of this file at a boot; 1 where something could not be set."""
    wanted = json.loads(Path(path).read_text(encoding="utf-8"))
    try:
        failures = [reason for command in commands(run_program, wanted) if (reason := execute(run_program, command))]
        failures = failures or not_held(run_program, wanted)
    except UnreadableError as error:
        failures = [str(error)]
    sys.stderr.write("".join(line + "\n" for line in failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))  # pylint: disable=ansible-bad-function
