# SPDX-License-Identifier: Apache-2.0
"""A node's GPUs and PCIe bridges: what they hold, and what has to be run so that they hold what should be.

Roles send it along with their module, and `gpu_settings` installs it as the program that a boot runs: it needs
Python, and the programs nvidia-smi, lspci and setpci.
"""

from __future__ import annotations

import json
import re
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
    "persistence": "persistence_mode",
    "display": "display_active",
    "power": "power.limit",
    "power_min": "power.min_limit",
    "power_max": "power.max_limit",
    "memory": "clocks.applications.memory",
    "graphics": "clocks.applications.graphics",
    "max_memory": "clocks.max.memory",
    "max_graphics": "clocks.max.graphics",
}
# what of access control sends traffic between devices up to the root complex
ACS_FLAGS = ("SrcValid+", "ReqRedir+", "CmpltRedir+", "UpstreamFwd+")
_DEVICE = re.compile(r"((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (.*)")


def gpus(run: Run) -> list[Gpu] | None:
    """Each GPU's settings as nvidia-smi prints them, without units; None where it does not answer."""
    query = ",".join(FIELDS.values())
    status, out, _unused = run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"])
    if status != 0:
        return None
    rows = [[cell.strip() for cell in line.split(",")] for line in out.splitlines()]
    return [dict(zip(FIELDS, row)) for row in rows if len(row) == len(FIELDS)]  # noqa: B905 - Python 3.8


def number(text: str) -> float | None:
    """Return `700.00` as a number; None for `[N/A]` and the like."""
    return float(text) if re.match(r"\d+(\.\d+)?$", text) else None


def wanted_clocks(gpu: Gpu, clocks: str) -> str:
    """`memory,graphics` for this GPU; `max` is its own; empty where it has no application clocks."""
    if number(gpu["memory"]) is None or number(gpu["graphics"]) is None:
        return ""
    return f"{gpu['max_memory']},{gpu['max_graphics']}" if clocks == "max" else clocks


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
    return {
        "persistence": gpu["persistence"],
        "power": gpu["power"],
        "clocks": f"{gpu['memory']},{gpu['graphics']}",
    }


def targets(gpu: Gpu, wanted: Mapping[str, Any]) -> dict[str, str]:
    """Pure: the settings of a GPU that holds what is wanted; none that it lacks, or while a display uses it."""
    if gpu["display"] == "Enabled":
        return {}
    result = {}
    if wanted.get("persistence") is not None and gpu["persistence"] != "[N/A]":
        result["persistence"] = "Enabled" if wanted["persistence"] else "Disabled"
    if wanted.get("power_limit_w") and number(gpu["power"]) is not None:
        result["power"] = f"{wanted['power_limit_w']:.2f}"
    clocks = wanted_clocks(gpu, wanted["clocks"]) if wanted.get("clocks") else ""
    return {**result, "clocks": clocks} if clocks else result


def setting_commands(uuid: str, wanted: Mapping[str, str], now: Mapping[str, str]) -> list[list[str]]:
    """Pure: what brings a GPU's settings from `now` to `wanted`; a value that nvidia-smi does not take is left out."""
    smi, todo = ["nvidia-smi", "-i", uuid], []
    changes = {name: value for name, value in wanted.items() if value != now[name]}
    if changes.get("persistence") in ("Enabled", "Disabled"):
        todo.append([*smi, "-pm", "1" if changes["persistence"] == "Enabled" else "0"])
    if number(changes.get("power", "")) not in (None, number(now["power"])):
        todo.append([*smi, "-pl", changes["power"]])
    if all(number(clock) for clock in changes.get("clocks", "").split(",")):
        todo.append([*smi, "-ac", changes["clocks"]])
    return todo


def gpu_commands(run: Run, gpu: Gpu, wanted: Mapping[str, Any]) -> list[list[str]]:
    """Return what has to be run for one GPU; nothing where a display uses it, or for what it does not offer."""
    after, now = targets(gpu, wanted), settings(gpu)
    if "power" in after:
        after["power"] = now["power"] if power_refusal(gpu, wanted["power_limit_w"]) else str(wanted["power_limit_w"])
    if after.get("clocks", now["clocks"]) != now["clocks"] and clock_refusal(run, gpu, after["clocks"]):
        del after["clocks"]
    return setting_commands(gpu["uuid"], after, now)


def power_refusal(gpu: Gpu, limit: int) -> str:
    """Return why this card cannot have the limit; "" where it can, or names no range."""
    low, high = number(gpu["power_min"]), number(gpu["power_max"])
    if low is None or high is None or low <= limit <= high:
        return ""
    return f"{gpu['uuid']}: a power limit of {limit} W is outside the card's {low:g} to {high:g} W"


def clock_refusal(run: Run, gpu: Gpu, clocks: str) -> str:
    """Return why this card cannot have the clocks; "" where it can."""
    query = "--query-supported-clocks=memory,graphics"
    pairs = run(["nvidia-smi", "-i", gpu["uuid"], query, "--format=csv,noheader,nounits"])[1]
    if clocks in {re.sub(r"\s", "", line) for line in pairs.splitlines()}:
        return ""
    return f"{gpu['uuid']}: clocks {clocks} are none of the card's: nvidia-smi {query}"


def commands(run: Run, wanted: Mapping[str, Any]) -> list[list[str]]:
    """All that has to be run now; bridges only on bare metal."""
    asked = any(wanted.get(key) is not None for key in ("persistence", "clocks", "power_limit_w"))
    todo = [argv for gpu in (gpus(run) if asked else None) or () for argv in gpu_commands(run, gpu, wanted)]
    if wanted.get("acs") == "off" and not virtual():
        for device, control in sorted((bridges(run) or {}).items()):
            if redirected(control):
                todo.append(["setpci", "-s", device, "ECAP_ACS+0x6.w=0000"])
    return todo


def _run(argv: list[str]) -> tuple[int, str, str]:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)  # pylint: disable=ansible-bad-function
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, "", str(error)
    return done.returncode, done.stdout, done.stderr


def execute(run: Run, command: list[str]) -> str:
    """Run the command; return why it did not work. nvidia-smi exits with 0 if the card refuses a setting."""
    status, out, err = run(command)
    refused = [line for line in out.splitlines() if "not supported" in line.lower()]
    reason = refused[0] if status == 0 and refused else (err or out).strip() if status else ""
    return reason and f"{' '.join(command)}: {reason}"


def not_held(run: Run, wanted: Mapping[str, Any]) -> list[str]:
    """Read the settings back; return a reason for each GPU that does not hold what is wanted."""
    reasons = []
    for gpu in gpus(run) or ():
        now = settings(gpu)
        for name, value in targets(gpu, wanted).items():
            if now[name] != value:
                reasons.append(f"{gpu['uuid']}: {name} is {now[name]} after it was set to {value}")
    return reasons


def main(path: str) -> int:
    """Apply the settings of this file at a boot; 1 where something could not be set."""
    wanted = json.loads(Path(path).read_text(encoding="utf-8"))
    failures = [reason for reason in (execute(_run, command) for command in commands(_run, wanted)) if reason]
    failures = failures or not_held(_run, wanted)
    sys.stderr.write("".join(line + "\n" for line in failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))  # pylint: disable=ansible-bad-function
