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
from textwrap import fill

from nodectl.provision.wheels import ensure_lab_share
from nodectl.report.table import aligned

NODECTL = str(Path(sys.executable).with_name("nodectl"))
# small enough that 4 hosts on 2 cores train it in about a minute
TRAINING = ["--layers", "2", "--d-model", "128", "--heads", "4", "--batch", "16", "--seq", "32"]
TRAINING += ["--samples", "1024", "--epochs", "3", "--log-every", "8"]
LAUNCH = ["launch", "--nproc-per-node", "1", "workload:transformer", "--", *TRAINING]
CLOSING = """
On your own nodes (README.md: `uv tool install .` puts nodectl on PATH):
  nodectl init fleet --from gpu01,gpu02         look at the hosts and write an inventory
  export ANSIBLE_INVENTORY=$PWD/fleet/hosts.yml
  nodectl provision --check --diff              what would change; without --check, change it
  nodectl health                                compare every host with its profiles
  nodectl launch your_script.py                 train on all of them
"""

# the workload's closing line has all its figures
_SHOWN = 600


class DemoError(Exception):
    """A step did not do what it shows."""


def shown(title: str, about: str, args: Sequence[str]) -> str:
    """Print a heading, what to know about it and the command; run it, print its output as it comes, and return it."""
    _announce(title, about, f"nodectl {shlex.join(args)}")
    # one stream, so that lines keep their order
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen([NODECTL, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    lines = []
    for line in process.stdout or ():
        sys.stdout.write(line if len(line) <= _SHOWN else f"{line[:_SHOWN]} … ({len(line):,} characters in all)\n")
        sys.stdout.flush()
        lines.append(line)
    if process.wait() != 0:
        raise DemoError(f"`nodectl {shlex.join(args)}` exited with status {process.returncode}")
    return "".join(lines)


def _announce(title: str, about: str, command: str) -> None:
    _say(f"\n== {title}\n{fill(about, 80)}\n$ {command}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def bring_up(args: Sequence[str]) -> None:
    """Bring the lab up and use its inventory for all further commands."""
    about = (
        "Each host is a set of namespaces of this machine, with its own network, files, processes and sshd. The hosts "
        "have no GPU: the rates below show what the commands measure, not what your nodes reach."
    )
    _announce("A fleet on this machine", about, f"export ANSIBLE_INVENTORY=$(nodectl {shlex.join(args)})")
    done = subprocess.run([NODECTL, *args], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise DemoError(f"`nodectl {shlex.join(args)}` exited with status {done.returncode}")
    os.environ["ANSIBLE_INVENTORY"] = done.stdout.strip()


def require_no_change(provision_output: str) -> None:
    """Raise DemoError unless the table of a second run shows 0 changed tasks on every host."""
    changed = re.findall(r"^node\S*\s+(\d+)", provision_output, re.MULTILINE)
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
    losses = f"{summary['first_loss']:.3f} to {summary['last_loss']:.3f}"
    return f"loss {losses}, {summary['samples_per_s']:.0f} samples/s on average"


def run(hosts: int, lab_options: Sequence[str]) -> str:
    """Run all steps; return a table of their times."""
    rows = [("COMMAND", "RESULT", "SECONDS")]
    begun = started = time.monotonic()

    def add(command: str, result: str) -> None:
        nonlocal started
        now = time.monotonic()
        rows.append((command, result, f"{now - started:7.1f}"))
        started = now

    ensure_lab_share(_say)
    if time.monotonic() - started > 1:
        add("(download)", "PyTorch for the hosts, kept for the next run")
    try:
        bring_up(["lab", "up", "-n", str(hosts), *lab_options])
        add("lab up", f"{hosts} hosts are up")

        about = (
            "Ansible installs PyTorch and the launcher, the script that starts training, and writes settings. Four "
            "warnings are normal here: lab hosts run no systemd and share this machine's limits and clock, so the "
            "settings that the warnings name have no effect. "
            "`nodectl rollback` undoes a run."
        )
        shown("Provision the hosts", about, ["provision", "--yes"])
        add("provision", "PyTorch and the settings are on every host")

        about = (
            "Each task looks at the host again, so this run takes about as long as the first. The four warnings are "
            "those of the first run."
        )
        require_no_change(shown("Provision again: nothing changes", about, ["provision", "--yes"]))
        add("provision", "the second run changed nothing")

        shown("Run one command on all hosts", "Identical output is printed once.", ["exec", "--", "uname", "-sr"])
        add("exec", "every host gave the same answer")

        about = (
            "A profile describes what a host should be: its hardware, software and settings. Three checks are skipped "
            "on each host: two login limits and the clock, which a lab host cannot set. Limits of services are "
            "checked only where systemd runs. `--all` lists each check."
        )
        health = shown("Compare every host with its profiles and with the others", about, ["health"])
        add("health", health.splitlines()[-1])

        about = (
            "iperf3 measures both directions of every pair of hosts, three times for 1 s; pairs without a common host "
            "run at once. The second table lists the three slowest paths; SPREAD is (highest - lowest) / median of a "
            "path's three rates. All hosts share this machine's processors, so a SPREAD up to 100 % and retransmits "
            "are normal here. A path fails if it is far below the median of all paths and their spread does not "
            "explain it, or if it is below the floor of a hardware profile; the lab's profile has no floor. bbr is "
            "this machine's congestion control."
        )
        shown("Measure the network", about, ["probe", "tcp", "--duration", "1"])
        add("probe tcp", "every path was measured")

        about = (
            "NCCL needs GPUs; on these hosts gloo, PyTorch's library for CPUs, runs the same collectives over the "
            "network. Its algorithms differ from one collective to the next, and so do the rates. All hosts share "
            "this machine's processors, so a SPREAD of 100 % and more is normal here."
        )
        shown("Measure collectives", about, ["probe", "nccl", "--sizes", "64KiB,16MiB", "--repetitions", "3"])
        add("probe nccl", "every collective was measured, with gloo")

        about = (
            "A small transformer, one process on each host. A line of output is HOST | [LOCAL RANK] TEXT. Rank 0 "
            "prints the loss, and at the end all figures as one JSON object (docs/workloads.md), shortened here. The "
            "model learns a made-up series of vectors: the loss must end far below the first one, and may rise in "
            "between. The first steps warm up and are not timed."
        )
        add("launch", training_result(shown("Train on all hosts", about, LAUNCH), hosts))
    finally:
        about = "No process, mount or file of the hosts is left; the downloads stay in .cache."
        shown("Remove the fleet", about, ["lab", "down"])
    add("lab down", "nothing is left")
    rows.append(("all", "the demo passed", f"{started - begun:7.1f}"))
    return f"\nWhat this machine has just done, on {os.cpu_count()} processors\n\n{aligned(rows)}"


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
        _say(f"demo failed: {error}")
        return 1
    sys.stdout.write(f"{table}\n{CLOSING}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
