"""site.yml on hosts where it changes nothing: nodectl's settings against those of Ansible, on the same lab, in turns.

`default` is ansible-playbook with an empty ansible.cfg and told only where roles and plugins lie: no pipelining, forks
5, its own strategy. `shipped` has this checkout's ansible.cfg, with mitogen; `no_mitogen` the same without. Each run
begins without connections of the run before. Each task must give the same outcome and the same values on each host:
only what differs between two runs of `default` itself (a clock, a process number) is not compared. The last line is
one JSON object: `ratios` are medians of wall time over those of `default`, so less is better.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_lab import ROOT, Lab, lab, own_folder
from provision_results import Results, differences, read_results, unsteady

_BIN = Path(sys.executable).parent
_CONFIGURATIONS = ("default", "no_mitogen", "shipped")
_UNWANTED = ("changed", "failed", "unreachable")


@dataclass(frozen=True, slots=True)
class Run:
    """The cost of one run, and what each task said."""

    wall_s: float
    cpu_s: float
    results: Results


def main() -> None:
    """Measure, compare, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--playbook", type=Path, default=ROOT / "playbooks" / "site.yml")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds: at least 2, or nothing says what differs from run to run by itself")
    more = {
        "PATH": os.pathsep.join([str(_BIN), os.environ.get("PATH", os.defpath)]),
        "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "benchmarks" / "callback_plugins"),
        "ANSIBLE_CALLBACKS_ENABLED": "task_results",
    }
    with own_folder(more) as own:
        wheels = [sys.executable, "-m", "nodectl.provision.wheels"]
        subprocess.run(wheels, env=own[1], stdout=sys.stderr, check=True)
        with lab(options.hosts, within=own) as hosts:
            runs = _measure(hosts, options.playbook, options.rounds)
    differing = _compare(runs)
    _report(runs, options.hosts, differing)
    sys.exit(1 if differing else 0)


def _settings(name: str) -> dict[str, str]:
    """Return the variables of a configuration."""
    if name == "shipped":
        return {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    # the plays name the strategy themselves, which would carry them over mitogen whatever ansible.cfg says
    linear = {"NODECTL_STRATEGY": "linear"}
    return linear | (
        {"ANSIBLE_COLLECTIONS_PATH": str(ROOT)} if name == "default" else {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    )


def _measure(lab: Lab, playbook: Path, rounds: int) -> dict[str, list[Run]]:
    """Return `rounds` runs of each, in turns; a first run brings the hosts into the state."""
    first = _run(lab, playbook, "shipped")
    print(f"first run, which changes the hosts: {first.wall_s:7.2f} s wall", flush=True)
    runs: dict[str, list[Run]] = {name: [] for name in _CONFIGURATIONS}
    for number in range(rounds):
        start = number % len(_CONFIGURATIONS)
        for name in _CONFIGURATIONS[start:] + _CONFIGURATIONS[:start]:
            run = _run(lab, playbook, name)
            if unwanted := [key for key, found in run.results.items() if found["outcome"] in _UNWANTED]:
                play, role, task, host, _ = unwanted[0]
                outcome = run.results[unwanted[0]]["outcome"]
                raise SystemExit(f"{name}: {host} {outcome} at '{role or play}: {task}': nothing to measure")
            runs[name].append(run)
            print(f"round {number + 1}  {name:<11} {run.wall_s:7.2f} s wall  {run.cpu_s:6.2f} s CPU", flush=True)
    return runs


def _run(lab: Lab, playbook: Path, name: str) -> Run:
    results, output = lab.folder / "results.jsonl", lab.folder / "output"
    results.unlink(missing_ok=True)
    command = [str(_BIN / "ansible-playbook"), "-i", lab.inventory, str(playbook)]
    environment = {**lab.environment, **_settings(name), "TASK_RESULTS": str(results)}
    with output.open("w") as out:
        started = time.monotonic()
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
    lab.end_masters()
    said = output.read_text(errors="replace")
    if process.returncode != 0:
        raise SystemExit(f"{said[-3000:]}\n{name} ended with {process.returncode}: nothing to measure")
    if name == "shipped" and "mitogen is not used" in said:
        raise SystemExit(next(line for line in said.splitlines() if "mitogen is not used" in line))
    return Run(wall_s, usage.ru_utime + usage.ru_stime, read_results(results))


def _compare(runs: Mapping[str, Sequence[Run]]) -> list[str]:
    """Return the differences of the other configurations' results from those of `default`."""
    ignored = unsteady([run.results for run in runs["default"]])
    if paths := sorted({path for _, path in ignored}):
        print(f"not compared, since Ansible's own runs differ in it: {', '.join(paths)}")
    reference = runs["default"][0].results
    found = [
        f"{name}: {text}"
        for name, done in runs.items()
        for run in done
        for text in differences(reference, run.results, ignored)
    ]
    return sorted(set(found))


def _report(runs: Mapping[str, Sequence[Run]], hosts: int, differing: Sequence[str]) -> None:
    for text in differing:
        print(f"not the same: {text}")
    wall = {name: statistics.median(run.wall_s for run in of) for name, of in runs.items()}
    cpu = {name: statistics.median(run.cpu_s for run in of) for name, of in runs.items()}
    document = {
        "name": "provision",
        "ratios": {
            "default_ansible": round(wall["shipped"] / wall["default"], 3),
            "default_ansible_no_mitogen": round(wall["no_mitogen"] / wall["default"], 3),
        },
        "hosts": hosts,
        "rounds": len(runs["default"]),
        "results_compared": len(runs["default"][0].results),
        "results_differing": len(differing),
        "seconds": {name: round(value, 3) for name, value in wall.items()},
        "cpu_seconds": {name: round(value, 3) for name, value in cpu.items()},
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
