"""`true` on many hosts: nodectl exec against clush, ansible and parallel-ssh, on the same lab hosts, in turns.

Wall time and the client's own CPU time (its children included), from starting the program to its end, inventory and
all. Every tool has the same key and 64 hosts at a time; host keys are checked by all but parallel-ssh, which cannot.
Ansible keeps its default settings, except that each run begins without connections of the run before. The last line
is one JSON object: `ratios` are nodectl's medians over the rival's, so less is better.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench_lab import NODECTL, Cost, Lab, cost, lab, own_folder

_BIN = Path(sys.executable).parent
_PARALLEL_SSH = """
import sys
from pssh.clients import ParallelSSHClient
key, user, forks, *hosts = sys.argv[1:]
client = ParallelSSHClient(hosts, user=user, pkey=key, pool_size=int(forks), num_retries=1, allow_agent=False)
output = client.run_command("true")
client.join(output)
sys.exit(any(host.exit_code != 0 for host in output))
"""


def main() -> None:
    """Measure, and print the figures."""
    options = _options()
    rivals = _present(options.skip_missing)
    # each run begins with nothing kept of the run before, and Ansible as it is by itself
    own = {"XDG_CACHE_HOME": "{folder}/cache", "ANSIBLE_HOST_KEY_CHECKING": "True"}
    with own_folder(own) as within, lab(options.hosts, within=within) as hosts:
        commands = {"nodectl": _nodectl, **{name: _RIVALS[name][1] for name in rivals}}
        costs = _measure(hosts, commands, options.rounds, options.forks)
    _report(costs, options.hosts)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--forks", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--skip-missing", action="store_true", help="go on without rivals that are not installed")
    return parser.parse_args()


def _nodectl(lab: Lab, forks: int) -> list[str]:
    return [*NODECTL, "-i", lab.inventory, "--forks", str(forks), "exec", "--", "true"]


def _clush(lab: Lab, forks: int) -> list[str]:
    return [program("clush"), "-f", str(forks), "-w", ",".join(lab.hosts), "-o", f"-F {lab.ssh_config}", "true"]


def _ansible_raw(lab: Lab, forks: int) -> list[str]:
    return [program("ansible"), "-i", lab.inventory, "all", "-f", str(forks), "-m", "raw", "-a", "true"]


def _ansible_ping(lab: Lab, forks: int) -> list[str]:
    return [program("ansible"), "-i", lab.inventory, "all", "-f", str(forks), "-m", "ping"]


def _parallel_ssh(lab: Lab, forks: int) -> list[str]:
    key = str(Path(lab.inventory).parent / "id_ed25519")
    return [sys.executable, "-c", _PARALLEL_SSH, key, "root", str(forks), *lab.addresses.values()]


# rival: (package that it is in, its command line)
_RIVALS: dict[str, tuple[str, Callable[[Lab, int], list[str]]]] = {
    "clush": ("clustershell", _clush),
    "ansible_raw": ("ansible-core", _ansible_raw),
    "ansible_ping": ("ansible-core", _ansible_ping),
    "parallel_ssh": ("parallel-ssh", _parallel_ssh),
}


def program(name: str) -> str:
    """Return where a program lies, first beside this Python."""
    beside = _BIN / name
    return str(beside) if beside.exists() else (shutil.which(name) or "")


def _present(skip_missing: bool) -> list[str]:
    """Return the rivals that are installed; ends with 2 and the names of the packages if one is not."""
    from importlib.metadata import PackageNotFoundError, version

    missing: dict[str, str] = {}
    for name, (package, _) in _RIVALS.items():
        try:
            version(package)
        except PackageNotFoundError:
            missing[name] = package
    if missing and not skip_missing:
        packages = " ".join(sorted(set(missing.values())))
        print(f"not installed: {packages}\n  try: pip install {packages}, or --skip-missing", file=sys.stderr)
        sys.exit(2)
    return [name for name in _RIVALS if name not in missing]


def _measure(
    lab: Lab, commands: Mapping[str, Callable[[Lab, int], list[str]]], rounds: int, forks: int
) -> dict[str, list[Cost]]:
    """Return the costs of `rounds` runs of each, in turns; a run before that counts for nothing."""
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    names = list(commands)
    for number in range(-1, rounds):
        start = max(number, 0) % len(names)
        for name in names[start:] + names[:start]:
            run = cost(commands[name](lab, forks), lab.environment)
            lab.end_masters()
            if number >= 0:
                costs[name].append(run)
                print(f"round {number + 1}  {name:<14} {run.wall_s:7.2f} s wall  {run.cpu_s:6.2f} s CPU", flush=True)
    return costs


def _report(costs: Mapping[str, Sequence[Cost]], hosts: int) -> None:
    wall = {name: statistics.median(cost.wall_s for cost in runs) for name, runs in costs.items()}
    cpu = {name: statistics.median(cost.cpu_s for cost in runs) for name, runs in costs.items()}
    ratios = {name: wall["nodectl"] / wall[name] for name in costs if name != "nodectl"}
    if "clush" in costs:
        ratios["clush_cpu"] = cpu["nodectl"] / cpu["clush"]
    document = {
        "name": "fanout",
        "ratios": {name: round(ratio, 3) for name, ratio in ratios.items()},
        "hosts": hosts,
        "seconds": {name: round(value, 3) for name, value in wall.items()},
        "cpu_seconds": {name: round(value, 3) for name, value in cpu.items()},
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
