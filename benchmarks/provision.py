"""site.yml on hosts where it changes nothing: these plays against those of commit a74066d5, in turns.

Each side has a lab of its own, since each writes its hosts' files in its own words. Both run under `linear` with the
same forks, pipelining and ControlPersist, and each run begins without connections of the run before. The last line is
one JSON object: `ratios` are medians over those of the earlier plays, so less is better (goal: 0.8).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_lab import ROOT, Lab, lab, own_folder

_BIN = Path(sys.executable).parent
_THEN = "a74066d5"
_CONFIGURATION = """
[defaults]
forks = {forks}
gathering = explicit
interpreter_python = auto_silent
deprecation_warnings = false
[ssh_connection]
pipelining = true
ssh_args = -o ControlMaster=auto -o ControlPersist=60s
[inventory]
host_pattern_mismatch = ignore
"""


@dataclass(frozen=True, slots=True)
class Run:
    """The cost of one run, and how many tasks had each outcome, on all hosts together."""

    wall_s: float
    cpu_s: float
    outcomes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Side:
    """Plays in `folder`, and the hosts that they alone provision."""

    folder: Path
    lab: Lab

    def run(self) -> Run:
        """Run site.yml; the benchmark ends if it fails."""
        results = self.lab.folder / "results.jsonl"
        results.unlink(missing_ok=True)
        plays = {"PYTHONPATH": str(self.folder), "ANSIBLE_COLLECTIONS_PATH": str(self.folder)}
        argv = [str(_BIN / "ansible-playbook"), "-i", self.lab.inventory, str(self.folder / "playbooks" / "site.yml")]
        with (self.lab.folder / "output").open("w+") as output:
            started = time.monotonic()
            process = subprocess.Popen(
                argv,
                env={**self.lab.environment, **plays, "TASK_RESULTS": str(results)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )
            _, status, usage = os.wait4(process.pid, 0)
            wall_s = time.monotonic() - started
            process.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            if process.returncode != 0:
                raise SystemExit(f"{output.read()[-3000:]}\n{argv} ended with {process.returncode}: nothing to measure")
        self.lab.end_masters()
        outcomes = Counter(json.loads(line)["outcome"] for line in results.read_text().splitlines())
        return Run(wall_s, usage.ru_utime + usage.ru_stime, outcomes)


def main() -> None:
    """Measure, compare, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=4, help="of each side")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--forks", type=int, default=20)
    options = parser.parse_args()
    more = {
        "PATH": os.pathsep.join([str(_BIN), os.environ.get("PATH", os.defpath)]),
        "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "benchmarks" / "callback_plugins"),
        "ANSIBLE_CALLBACKS_ENABLED": "task_results",
        # of the earlier plays, which name their own
        "NODECTL_STRATEGY": "linear",
    }
    with own_folder(more) as own:
        folder, environment = own
        (folder / "ansible.cfg").write_text(_CONFIGURATION.format(forks=options.forks))
        then = folder / "then"
        then.mkdir()
        archive = subprocess.run(["git", "-C", str(ROOT), "archive", _THEN], stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(then)], input=archive, check=True)
        wheels = [sys.executable, "-m", "nodectl.provision.wheels"]
        subprocess.run(wheels, env=environment, stdout=sys.stderr, check=True)
        with lab(options.hosts, within=own, name="then") as old, lab(options.hosts, within=own, name="now") as new:
            runs = _measure({"then": Side(then, old), "now": Side(ROOT, new)}, options.rounds)
    _report(runs, options.hosts)


def _measure(sides: Mapping[str, Side], rounds: int) -> dict[str, list[Run]]:
    """Return `rounds` runs of each, in turns; a first run brings the hosts into the state."""
    for name, side in sides.items():
        print(f"first run, {name:<4} {side.run().wall_s:7.2f} s wall", flush=True)
    runs: dict[str, list[Run]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in list(sides)[:: -1 if number % 2 else 1]:
            run = sides[name].run()
            if run.outcomes.keys() & {"changed", "failed", "unreachable"}:
                raise SystemExit(f"{name}: {dict(run.outcomes)}: nothing to measure")
            runs[name].append(run)
            print(f"round {number + 1}  {name:<4} {run.wall_s:7.2f} s wall  {run.cpu_s:6.2f} s CPU", flush=True)
    return runs


def _report(runs: Mapping[str, Sequence[Run]], hosts: int) -> None:
    wall = {name: statistics.median(run.wall_s for run in of) for name, of in runs.items()}
    cpu = {name: statistics.median(run.cpu_s for run in of) for name, of in runs.items()}
    document = {
        "name": "provision",
        "ratios": {"earlier_plays": round(wall["now"] / wall["then"], 3), "cpu": round(cpu["now"] / cpu["then"], 3)},
        "hosts": hosts,
        "rounds": len(runs["now"]),
        "tasks": {name: of[0].outcomes for name, of in runs.items()},
        "seconds": {name: round(value, 3) for name, value in wall.items()},
        "cpu_seconds": {name: round(value, 3) for name, value in cpu.items()},
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
