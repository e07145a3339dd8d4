"""Many launches in a row on one lab: whether the start stays as quick, and whether anything is left behind.

Each launch runs one rank a host that says the time and ends (`--engine command`: what is measured is nodectl, not an
import of torch). The jobs stay on the hosts until the end, so that a start that gets slower with what lies there shows;
then `jobs clean` removes them. Compared with the state after one launch before: processes, control groups, shared
memory, open ports and files of the hosts, and files of the operator's state folder. The last line is one JSON object:
`growth` is the median of the last fifth of the starts over the first fifth's, `left_over` what was found.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import time

from bench_lab import NODECTL, Lab, lab
from launch import prepare

_FIRST = re.compile(r"rank at ([0-9.]+)")
_DEADLINE_S = 120.0
_LOOK = """
ps -eo args= | grep -v -e '[p]s -eo' -e 'grep' -e 'sshd' -e '[b]ash -c' -e '[s]ort' -e 'sed' | sed 's/^/process /'
find /sys/fs/cgroup -mindepth 2 -type d -name '20*' 2>/dev/null | sed 's/^/control group /'
ls /dev/shm | sed 's/^/shared memory /'
ss -lntuH 2>/dev/null | tr -s ' ' | cut -d' ' -f1,5 | grep -v -e ':22$' | sed 's/^/port /'
find / -xdev -newer /run/launches -type f -not -path '/proc/*' -not -path '/sys/*' -not -path '/var/log/*' \
  -not -path '*/__pycache__/*' 2>/dev/null | sed 's/^/file /'
true
"""


def main() -> None:
    """Launch, look, and print the figures."""
    options = _options()
    starts: list[float] = []
    with lab(options.hosts) as hosts:
        prepare(hosts)
        for host in hosts.hosts:
            hosts.ssh(host, "touch /run/launches")
        _launched(hosts)
        _clean(hosts)
        before = _state(hosts)
        for number in range(options.launches):
            starts.append(_launched(hosts))
            print(f"launch {number + 1}  {starts[-1]:.2f} s", flush=True)
        _clean(hosts)
        left = {place: sorted(found - before[place]) for place, found in _state(hosts).items()}
    fifth = max(1, len(starts) // 5)
    document = {
        "name": "launches",
        "launches": len(starts),
        "hosts": options.hosts,
        "seconds": round(statistics.median(starts), 3),
        "growth": round(statistics.median(starts[-fifth:]) / statistics.median(starts[:fifth]), 3),
        "left_over": {place: found for place, found in left.items() if found},
    }
    print(json.dumps(document))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=4, help="of the lab")
    parser.add_argument("--launches", type=int, default=100)
    return parser.parse_args()


def _launched(lab: Lab) -> float:
    """Return the seconds from the command line to the last rank's first word; no code is copied."""
    code = lab.folder / "code"
    code.mkdir(exist_ok=True)
    words = ["launch", "--nproc-per-node", "1", "--engine", "command", "--", "sh", "-c", "date +'rank at %s.%N'"]
    started = time.time()
    done = subprocess.run(
        [*NODECTL, "-i", lab.inventory, *words],
        env=lab.environment,
        cwd=code,
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
    )
    times = [float(moment) for moment in _FIRST.findall(done.stdout)]
    if done.returncode or len(times) != len(lab.hosts):
        raise SystemExit(f"{len(times)} ranks spoke, exit status {done.returncode}:\n{done.stdout}{done.stderr}")
    return max(times) - started


def _clean(lab: Lab) -> None:
    lab.nodectl("jobs", "clean")


def _state(lab: Lab) -> dict[str, set[str]]:
    """Return what there is on each host, and here."""
    here = {str(path.relative_to(lab.folder)) for path in lab.folder.rglob("*")}
    return {"here": here, **{host: set(lab.ssh(host, _LOOK).splitlines()) for host in lab.hosts}}


if __name__ == "__main__":
    main()
