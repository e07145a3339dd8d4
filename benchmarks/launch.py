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
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from jinja2 import Environment

_ROOT = Path(__file__).resolve().parent.parent
_NODECTL = [sys.executable, "-m", "nodectl"]
_LAUNCHER = "/opt/nodectl/bin/nodectl-launch"
_VENV = "/opt/nodectl/venv"
# an environment as the pytorch role makes it, over the packages that the lab's share holds
_MAKE_VENV = f"""set -e
test -d /srv/nodectl/venv/lib
mkdir -p {_VENV}/bin
cp /srv/nodectl/venv/pyvenv.cfg {_VENV}
ln -s /srv/nodectl/venv/lib {_VENV}/lib
ln -s $(readlink -f /srv/nodectl/venv/bin/python) {_VENV}/bin/python
printf '#!%s/bin/python\\nfrom torch.distributed.run import main\\nmain()\\n' {_VENV} > {_VENV}/bin/torchrun
chmod 755 {_VENV}/bin/torchrun
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


@dataclass(frozen=True, slots=True)
class Lab:
    """A lab that is up: its inventory, SSH settings, and addresses in rank order."""

    inventory: str
    ssh_config: str
    addresses: Mapping[str, str]


def main() -> None:
    """Measure, and print the figures."""
    options = _options()
    signal.signal(signal.SIGTERM, _interrupt)
    seconds: dict[str, list[float]] = {"launch": [], "torchrun": []}
    with tempfile.TemporaryDirectory(prefix="nodectl-launch-") as folder:
        environment = _environment(folder)
        script = Path(folder) / "code" / "first.py"
        script.parent.mkdir()
        script.write_text(_SCRIPT)
        with _lab(options.hosts, environment) as lab:
            _prepare(lab)
            for number in range(-1, options.rounds):
                taken = {"launch": _launched(lab, script, environment), "torchrun": _by_hand(lab)}
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


def _environment(folder: str) -> dict[str, str]:
    Path(folder, "ansible.cfg").touch()
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "NODECTL_"))},
        "XDG_STATE_HOME": f"{folder}/state",
        "PYTHONPATH": str(_ROOT),
        "ANSIBLE_CONFIG": f"{folder}/ansible.cfg",
        "ANSIBLE_HOME": f"{folder}/ansible",
    }


@contextmanager
def _lab(hosts: int, environment: Mapping[str, str], *links: str) -> Iterator[Lab]:
    """A lab of its own, with these options of its links; down again whatever happens."""
    name = ["--name", f"launch-{os.getpid()}"]

    def lab(*arguments: str) -> str:
        return subprocess.run(
            [*_NODECTL, *arguments, *name], env=environment, stdout=subprocess.PIPE, text=True, check=True
        ).stdout

    try:
        inventory = lab("lab", "up", "-n", str(hosts), *links).strip()
        status = json.loads(lab("--output", "json", "lab", "status"))
        addresses = {host["name"]: host["address"] for host in status["hosts"]}
        yield Lab(inventory, str(Path(inventory).with_name("ssh_config")), addresses)
    finally:
        lab("lab", "down")


def _prepare(lab: Lab) -> None:
    """The launch script and, for the start by hand, the program on each host."""
    text = (_ROOT / "roles/launcher/templates/launch.sh.j2").read_text()
    rendered = Environment(autoescape=False).from_string(text).render(profiles="benchmark", venv=_VENV)  # noqa: S701
    for host in lab.addresses:
        place = f"mkdir -p {Path(_LAUNCHER).parent} && cat > {_LAUNCHER} && chmod 755 {_LAUNCHER}"
        subprocess.run([*_ssh(lab, host), place], input=rendered + "\n", text=True, check=True)
        subprocess.run([*_ssh(lab, host), _MAKE_VENV], check=True)
        subprocess.run([*_ssh(lab, host), "cat > /root/first.py"], input=_SCRIPT, text=True, check=True)


def _ssh(lab: Lab, host: str) -> list[str]:
    return ["ssh", "-F", lab.ssh_config, host]


def _launched(lab: Lab, script: Path, environment: Mapping[str, str]) -> float:
    command = [*_NODECTL, "-i", lab.inventory, "launch", "--nproc-per-node", "1", "--venv", _VENV, str(script)]
    return _first(([*command],), environment, len(lab.addresses))


def _by_hand(lab: Lab) -> float:
    port = 20_000 + secrets.randbelow(10_000)
    first, *_ = lab.addresses.values()
    commands = [
        [
            *_ssh(lab, host),
            f"OMP_WAIT_POLICY=PASSIVE {_VENV}/bin/torchrun --nnodes {len(lab.addresses)} --node-rank {rank}",
            f"--nproc-per-node 1 --master-addr {first} --master-port {port} --local-addr {address} /root/first.py",
        ]
        for rank, (host, address) in enumerate(lab.addresses.items())
    ]
    return _first(commands, os.environ, len(lab.addresses))


def _first(commands: Sequence[Sequence[str]], environment: Mapping[str, str], ranks: int) -> float:
    """Start them all; seconds until the last of so many ranks had its first all-reduce."""
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


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
