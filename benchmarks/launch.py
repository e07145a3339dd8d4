"""From the command line to the first all-reduce: `nodectl launch` against torchrun started by hand over SSH.

Four lab hosts with a torch that the lab's share holds (`make test` puts it there), one rank each, gloo; in turn, in one
run. By hand: one `ssh` a host, all at once, with the script on the hosts already. A rank tells the time of its first
all-reduce by the machine's one clock. The last line is one JSON object; `ratios` are launch's median over torchrun's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench_lab import NODECTL, ROOT, Lab, lab
from jinja2 import Environment

_LAUNCHER = "/opt/nodectl/bin/nodectl-launch"
VENV = "/opt/nodectl/venv"
# an environment as the pytorch role makes it, over the packages that the lab's share holds
_MAKE_VENV = f"""set -e
test -d /srv/nodectl/venv/lib
mkdir -p {VENV}/bin
cp /srv/nodectl/venv/pyvenv.cfg {VENV}
ln -s /srv/nodectl/venv/lib {VENV}/lib
ln -s $(readlink -f /srv/nodectl/venv/bin/python) {VENV}/bin/python
printf '#!%s/bin/python\\nfrom torch.distributed.run import main\\nmain()\\n' {VENV} > {VENV}/bin/torchrun
chmod 755 {VENV}/bin/torchrun
"""
_DEADLINE_S = 120.0
_SCRIPT = """\
import os, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
assert one.item() == dist.get_world_size()
os.write(1, b"first all-reduce at %.6f\\n" % time.time())
dist.destroy_process_group()
"""
_FIRST = re.compile(r"first all-reduce at ([0-9.]+)")


def main() -> None:
    """Measure, and print the figures."""
    options = _options()
    seconds: dict[str, list[float]] = {"launch": [], "torchrun": []}
    with lab(options.hosts) as hosts:
        script = hosts.folder / "code" / "first.py"
        script.parent.mkdir()
        script.write_text(_SCRIPT)
        prepare(hosts)
        for number in range(-1, options.rounds):
            taken = {"launch": _launched(hosts, script), "torchrun": _by_hand(hosts)}
            if number < 0:
                continue  # the first round warms up: the payload is copied, files are read
            for name, value in taken.items():
                seconds[name].append(value)
            print(f"round {number + 1}  " + "  ".join(f"{name} {value:.2f} s" for name, value in taken.items()))
    print(json.dumps(_document(seconds, options.hosts)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=4, help="of the lab")
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def _document(seconds: Mapping[str, Sequence[float]], hosts: int) -> dict[str, object]:
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "name": "launch",
        "ratios": {"torchrun": round(medians["launch"] / medians["torchrun"], 3)},
        "seconds": {name: round(value, 3) for name, value in medians.items()},
        "hosts": hosts,
        "rounds": len(seconds["launch"]),
    }


def prepare(lab: Lab) -> None:
    """Put the launch script, the environment and, for the start by hand, the program on each host."""
    text = (ROOT / "roles/launcher/templates/launch.sh.j2").read_text()
    rendered = Environment(autoescape=False).from_string(text).render(profiles="benchmark", venv=VENV)  # noqa: S701
    for host in lab.hosts:
        place = f"mkdir -p {Path(_LAUNCHER).parent} && cat > {_LAUNCHER} && chmod 755 {_LAUNCHER}"
        lab.ssh(host, place, f"{rendered}\n".encode())
        lab.ssh(host, _MAKE_VENV)
        lab.ssh(host, "cat > /root/first.py", _SCRIPT.encode())


def _launched(lab: Lab, script: Path) -> float:
    command = [*NODECTL, "-i", lab.inventory, "launch", "--nproc-per-node", "1", "--venv", VENV, str(script)]
    return _first(([*command],), lab.environment, len(lab.hosts))


def _by_hand(lab: Lab) -> float:
    port = 20_000 + secrets.randbelow(10_000)
    first, *_ = lab.addresses.values()
    commands = [
        [
            *lab.argv(
                host, f"OMP_WAIT_POLICY=PASSIVE {VENV}/bin/torchrun --nnodes {len(lab.hosts)} --node-rank {rank}"
            ),
            f"--nproc-per-node 1 --master-addr {first} --master-port {port} --local-addr {address} /root/first.py",
        ]
        for rank, (host, address) in enumerate(lab.addresses.items())
    ]
    return _first(commands, os.environ, len(lab.hosts))


def _first(commands: Sequence[Sequence[str]], environment: Mapping[str, str], ranks: int) -> float:
    """Start them all; return the seconds until the last of so many ranks had its first all-reduce."""
    started = time.time()
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for command in commands
    ]
    said = "".join(process.communicate(timeout=_DEADLINE_S)[0] for process in running)
    times = [float(value) for value in _FIRST.findall(said)]
    if len(times) != ranks:
        raise SystemExit(f"{len(times)} of {ranks} ranks came to their first all-reduce:\n{said}")
    return max(times) - started


if __name__ == "__main__":
    main()
