"""Measure exec, health, facts and provision of 10 to 1,000 simulated hosts (benchmarks/simulator.py), 2 % of them dead.

Among each fleet's hosts stand one that is silent after its banner and one that sends a byte a second. Said are wall
time, CPU time of nodectl and of the simulator, which share this machine's cores, and the most memory, open files and
threads at one time. A wrong answer, or a bad host that is not told as one, ends the benchmark. The last line is one
JSON object. Rivals are in benchmarks/fanout.py.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench_lab import NODECTL, ROOT, own_folder, watched

_SILENT_S = 60


@dataclass(frozen=True)
class Fleet:
    """Simulated hosts that answer; `bad`: kind by host."""

    inventory: str
    ssh_config: str
    hosts: Sequence[str]
    bad: Mapping[str, str]
    pid: int
    environment: Mapping[str, str]

    @property
    def unreachable(self) -> set[str]:
        """The hosts of which no command may say that it ran."""
        return {host for host, kind in self.bad.items() if kind != "drip"}

    def cpu_s(self) -> float:
        """Return the simulator's CPU time so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure, and print the figures."""
    options = _options()
    curve: list[dict[str, object]] = []
    with own_folder({"XDG_CACHE_HOME": "{folder}/cache"}) as (folder, environment):
        for hosts in options.hosts:
            bad = {} if options.all_good else bad_among(hosts)
            with simulated(folder / f"fleet{hosts}", environment, hosts, bad) as fleet:
                for name, (arguments, wrong) in _COMMANDS.items():
                    if name in options.commands and (name != "provision" or hosts <= options.provision_most):
                        curve.append(_measured(fleet, name, arguments, wrong, options))
    print(json.dumps({"name": "thousand", "load": os.getloadavg()[0], "curve": curve}))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=[10, 64, 300, 1000])
    parser.add_argument("--commands", nargs="+", choices=list(_COMMANDS), default=list(_COMMANDS))
    parser.add_argument("--provision-most", type=int, default=64, help="hosts: Ansible takes a second of CPU for each")
    parser.add_argument("--forks", type=int, default=64)
    parser.add_argument("--all-good", action="store_true", help="without bad hosts, some of which take 10 to 30 s")
    return parser.parse_args()


def bad_among(hosts: int) -> dict[str, int]:
    """Return how many hosts of each bad kind a fleet of so many has."""
    each = max(1, round(hosts * 0.02 / 3))
    return {"dead": each, "refused": each, "denied": each, "stuck": 1, "drip": 1}


@contextmanager
def simulated(folder: Path, environment: Mapping[str, str], hosts: int, bad: Mapping[str, int]) -> Iterator[Fleet]:
    """Yield simulated hosts that are up."""
    folder.mkdir()
    kinds = [word for kind, number in bad.items() for word in (f"--{kind}", str(number))]
    program = str(ROOT / "benchmarks" / "simulator.py")
    command = [sys.executable, program, "--hosts", str(hosts), "--folder", str(folder)]
    process = subprocess.Popen(
        [*command, "--delay", "1", *kinds], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        document = json.loads(process.stdout.readline() if process.stdout else b"")
        yield Fleet(**document, pid=process.pid, environment=environment)
    finally:
        process.communicate(timeout=_SILENT_S)


def _wrong_exec(fleet: Fleet, document: Mapping[str, Any]) -> list[str]:
    """Return the hosts whose answer is not what it should be."""
    outcomes = {result["host"]: (result["outcome"], result["stdout"]) for result in document["results"]}
    ran = [host for host in fleet.hosts if not fleet.bad.get(host)]
    wrong = [host for host in ran if outcomes[host] != ("ran", f"{host}\n")]
    return wrong + [host for host in fleet.unreachable if outcomes[host][0] != "unreachable"]


def _wrong_health(fleet: Fleet, document: Mapping[str, Any]) -> list[str]:
    missed = {finding["host"] for finding in document["findings"] if finding["check"] == "reach"}
    good = {host for host in fleet.hosts if not fleet.bad.get(host)}
    return sorted(fleet.unreachable - missed | good & missed | set(fleet.hosts) - set(document["hosts"]))


def _wrong_facts(fleet: Fleet, document: Mapping[str, Any]) -> list[str]:
    missed = set(document["unreachable"])
    good = {host for host in fleet.hosts if not fleet.bad.get(host)}
    gpus = {host: len(facts["gpus"]) for host, facts in document["hosts"].items()}
    serials = {host: str(facts["host_serial"]) for host, facts in document["hosts"].items()}
    alike = [host for host in serials if list(serials.values()).count(serials[host]) > 1]
    return sorted(fleet.unreachable - missed | good & missed | {host for host in good if not gpus.get(host)}) + alike


def _wrong_provision(fleet: Fleet, document: Mapping[str, Any]) -> list[str]:
    good, tallies = {host for host in fleet.hosts if not fleet.bad.get(host)}, document["hosts"]
    missed = {host for host in fleet.hosts if tallies[host]["failed"] + tallies[host]["unreachable"]}
    return sorted(good & missed | fleet.unreachable - missed)


# all that comes before the first role
_PROVISION = (
    *("provision", "--check", "--tags", "always", "-e", "nodectl_stack=cpu", "-e", "nodectl_hardware=auto"),
    *("-e", "nodectl_misfit=allow", "-e", "ansible_python_interpreter=/usr/bin/python3"),
)

# what is asked, and which hosts answered it wrongly
_COMMANDS: dict[str, tuple[tuple[str, ...], Callable[[Fleet, Mapping[str, Any]], list[str]]]] = {
    "exec": (("exec", "--", "hostname"), _wrong_exec),
    "health": (("health",), _wrong_health),
    "facts": (("facts",), _wrong_facts),
    "provision": (_PROVISION, _wrong_provision),
}


def _measured(
    fleet: Fleet,
    name: str,
    arguments: Sequence[str],
    wrong: Callable[[Fleet, Mapping[str, Any]], list[str]],
    options: argparse.Namespace,
) -> dict[str, object]:
    command = [*NODECTL, "-i", fleet.inventory, "--forks", str(options.forks), "--output", "json", *arguments]
    before = fleet.cpu_s()
    with tempfile.TemporaryFile() as output:
        cost = watched(command, fleet.environment, output=output)
        simulator_s = fleet.cpu_s() - before
        output.seek(0)
        if bad := wrong(fleet, json.load(output)):
            sys.exit(f"{name} of {len(fleet.hosts)} hosts: wrong of {', '.join(sorted(bad)[:8])}")
    print(
        f"{len(fleet.hosts):5} hosts  {name:<7} {cost.wall_s:6.2f} s wall  {cost.cpu_s:6.2f} s CPU  (simulator "
        f"{simulator_s:6.2f})  {cost.memory_mb:5.0f} MB  {cost.handles:4} files  {cost.threads:4} threads",
        flush=True,
    )
    figures = {key: round(value, 2) for key, value in asdict(cost).items()}
    return {"hosts": len(fleet.hosts), "command": name, **figures, "simulator_cpu_s": round(simulator_s, 2)}


if __name__ == "__main__":
    main()
