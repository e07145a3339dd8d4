"""Run nodectl's main job on a fleet of this machine, with the commands that a user types: `make demo`."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from nodectl.provision.wheels import ensure_lab_share

NODECTL = str(Path(sys.executable).with_name("nodectl"))
# small enough that 4 hosts on 2 cores train it in about a minute
TRAINING = ["--layers", "2", "--d-model", "128", "--heads", "4", "--batch", "16", "--seq", "32"]
TRAINING += ["--samples", "1024", "--epochs", "3", "--log-every", "8"]
LAUNCH = ["launch", "--nproc-per-node", "1", "workload:transformer", "--", *TRAINING]
CLOSING = """
The same on your own nodes:
  nodectl init fleet --from gpu01,gpu02         look at the hosts and write an inventory
  export ANSIBLE_INVENTORY=$PWD/fleet/hosts.yml
  nodectl provision --check --diff              what would change; without --check, change it
  nodectl health                                compare every host with its profiles
  nodectl launch your_script.py                 train on all of them
"""

console = Console(stderr=True, highlight=False)


class DemoError(Exception):
    """A step did not do what it shows."""


def shown(title: str, args: Sequence[str]) -> str:
    """Print a heading and the command, run it, print its output as it comes, and return it."""
    console.print(f"\n[bold cyan]── {title}[/]")
    console.print(f"$ nodectl {shlex.join(args)}", style="bold", markup=False, soft_wrap=True)
    # one stream, so that lines keep their order
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen([NODECTL, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    lines = []
    for line in process.stdout or ():
        sys.stdout.write(line)
        sys.stdout.flush()
        lines.append(line)
    if process.wait() != 0:
        raise DemoError(f"`nodectl {shlex.join(args)}` exited with status {process.returncode}")
    return "".join(lines)


def require_no_change(provision_output: str) -> None:
    """Raise DemoError unless the table of a second run shows 0 changed tasks on every host."""
    changed = re.findall(r"^node\S*\s+\d+\s+(\d+)", provision_output, re.MULTILINE)
    if not changed or any(int(count) for count in changed):
        raise DemoError("the second provision changed a host")


def training_result(output: str, hosts: int) -> str:
    """Return the result of the workload's closing JSON line; DemoError unless all hosts took part and it learned."""
    line = next((line for line in reversed(output.splitlines()) if '"last_loss"' in line), "")
    if not line:
        raise DemoError("the training job printed no summary")
    summary = json.loads(line[line.index('{"') :])
    if not summary["last_loss"] < summary["first_loss"] or len(summary["hosts"]) != hosts:
        raise DemoError(f"the training job did not learn on {hosts} hosts: {summary}")
    return f"loss {summary['first_loss']:.3f} to {summary['last_loss']:.3f}, {summary['samples_per_s']:.0f} samples/s"


def run(hosts: int, lab_options: Sequence[str]) -> Table:
    """Run all steps; return a table of their times."""
    table = Table(title="What this machine has just done")
    for name in ("step", "result"):
        table.add_column(name, overflow="fold")
    table.add_column("seconds", justify="right")

    def add(step: str, result: str, started: float) -> None:
        table.add_row(step, result, f"{time.monotonic() - started:.1f}")

    started = time.monotonic()
    ensure_lab_share(lambda text: console.print(text, markup=False, soft_wrap=True))
    add("download", "PyTorch for the hosts, kept for the next run", started)
    try:
        started = time.monotonic()
        up = ["lab", "up", "-n", str(hosts), *lab_options]
        inventory = shown("A fleet on this machine", up).splitlines()[-1]
        os.environ["ANSIBLE_INVENTORY"] = inventory
        console.print(f"$ export ANSIBLE_INVENTORY={inventory}", style="bold", markup=False, soft_wrap=True)
        add("lab up", f"{hosts} hosts, each with its own network, files and sshd", started)

        started = time.monotonic()
        shown("Ansible provisions the hosts; it warns of limits that a lab host cannot raise", ["provision", "--yes"])
        add("provision", "every host matches its profiles", started)

        started = time.monotonic()
        require_no_change(shown("A second run changes nothing", ["provision", "--yes"]))
        add("provision again", "nothing to change", started)

        started = time.monotonic()
        shown("One command on all hosts", ["exec", "--", "uname", "-sr"])
        add("exec", "identical output is shown once", started)

        started = time.monotonic()
        shown("Compare every host with its profiles and with the others", ["health"])
        add("health", "no findings", started)

        started = time.monotonic()
        shown("Measure every network path", ["probe", "tcp", "--duration", "2", "--pairs", "ring"])
        shown("Measure collectives over all hosts", ["probe", "nccl", "--sizes", "64KiB,16MiB", "--repetitions", "3"])
        add("probe", "the network, then collectives over all hosts", started)

        started = time.monotonic()
        add(
            "launch",
            training_result(
                shown("Train a small transformer on all hosts; its last line is a summary in JSON", LAUNCH), hosts
            ),
            started,
        )
    finally:
        shown("Remove the fleet", ["lab", "down"])
    return table


def main() -> int:
    """Run the demo and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--rate", help="rate of every link, e.g. 1gbit")
    parser.add_argument("--delay", help="one-way delay of every link, e.g. 5ms")
    args = parser.parse_args()
    options = [word for name in ("rate", "delay") if getattr(args, name) for word in (f"--{name}", getattr(args, name))]
    try:
        table = run(args.hosts, options)
    except DemoError as error:
        console.print(f"demo failed: {error}", style="bold red", markup=False)
        return 1
    Console().print(table)
    console.print(CLOSING, markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
