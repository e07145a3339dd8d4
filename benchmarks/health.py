"""`nodectl health` on many lab hosts, and on 1,000 recorded nodes.

Live: client CPU against that of `nodectl exec -- true`, and wall time against exec's plus what the same number of
collectors take when they run here, all at once, in the same script. Replay: copies of the bundled dgx-a100, each with
identities of its own. Memory is what all of the client's processes hold together, shared pages counted once. The last
line is one JSON object: `ratios` are health's figures over what they are held against, so less is better.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from bench_lab import NODECTL, Watched, lab, own_folder, watched

from nodectl.health.host import order_of
from nodectl.model.host import Host
from nodectl.recordings.collect import new_nonce, script
from nodectl.recordings.folder import bundled
from nodectl.recordings.mask import Template

_COLLECTORS = 1.2
_RECORDING = "dgx-a100"


def main() -> None:
    """Measure, and print the figures."""
    options = _options()
    document: dict[str, object] = {"name": "health"}
    with own_folder() as (folder, environment):
        if options.hosts:
            document.update(_live(options, (folder, environment)))
        if options.recorded:
            document.update(_replay(options.recorded, folder / "recording", environment))
    print(json.dumps(document))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=64, help="of the lab; 0: none")
    parser.add_argument("--recorded", type=int, default=1000, help="nodes to replay; 0: none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--as", dest="dress", metavar="RECORDING", help="dress the lab's hosts in it")
    return parser.parse_args()


def _live(options: argparse.Namespace, within: tuple[Path, dict[str, str]]) -> dict[str, object]:
    environment, dress = within[1], ["--as", options.dress] if options.dress else []
    with lab(options.hosts, *dress, within=within) as hosts:
        command = [*NODECTL, "-i", hosts.inventory, "--forks", str(options.hosts)]
        collector = _collector(json.loads(hosts.nodectl("--forks", str(options.hosts), "--output", "json", "health")))
        costs: dict[str, list[Watched]] = {"exec": [], "health": [], "collectors": []}
        for number in range(-1, options.rounds):
            done = {
                "exec": watched([*command, "exec", "--", "true"], environment),
                "health": watched([*command, "health"], environment),
                "collectors": _collected(collector, options.hosts),
            }
            if number < 0:
                continue  # the first round warms up
            for name, cost in done.items():
                costs[name].append(cost)
                print(f"round {number + 1}  {name:<10} {cost.wall_s:6.2f} s wall  {cost.cpu_s:6.2f} s CPU", flush=True)
    wall = {name: statistics.median(cost.wall_s for cost in runs) for name, runs in costs.items()}
    cpu = {name: statistics.median(cost.cpu_s for cost in runs) for name, runs in costs.items()}
    ratios = {
        "exec_cpu": cpu["health"] / cpu["exec"],
        "wall": wall["health"] / (wall["exec"] + _COLLECTORS * wall["collectors"]),
    }
    return {
        "ratios": {name: round(ratio, 3) for name, ratio in ratios.items()},
        "hosts": options.hosts,
        "seconds": {name: round(value, 3) for name, value in wall.items()},
        "cpu_seconds": {name: round(value, 3) for name, value in cpu.items()},
        "memory_mb": round(max(cost.memory_mb for cost in costs["health"])),
    }


def _collector(health: Mapping[str, Mapping[str, Mapping[str, str]]]) -> bytes:
    """Return the script that health sends to each host of the lab's profiles."""
    names = next(iter(health["profiles"].values()))
    host = Host("here", "here", variables={f"nodectl_{kind}": name for kind, name in names.items()})
    return script(order_of(host, {}, ()).commands, new_nonce())


def _collected(collector: bytes, number: int) -> Watched:
    """So many collectors at once, on this machine."""
    before, started = os.times(), time.monotonic()
    running = []
    for _ in range(number):
        # S: a fixed argv; the text goes to the shell's standard input, as over SSH
        process = subprocess.Popen(
            ["sh", "-s"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        if process.stdin:
            process.stdin.write(collector)
            process.stdin.close()
        running.append(process)
    for process in running:
        process.wait()
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Watched(time.monotonic() - started, cpu_s)


def _replay(number: int, folder: Path, environment: Mapping[str, str]) -> dict[str, object]:
    source = bundled()[_RECORDING]
    texts = {path.name: path.read_text() for path in (source / "node01").iterdir()}
    template = Template.of(texts, "node01")
    folder.mkdir()
    shutil.copy(source / "recording.yml", folder)
    for node in range(1, number + 1):
        own = folder / f"node{node:04}"
        own.mkdir()
        for name, text in template.filled(own.name).items():
            (own / name).write_text(text)
    watched([*NODECTL, "--replay", _RECORDING, "health"], environment)
    cost = watched([*NODECTL, "--replay", str(folder), "health"], environment, output=None)
    print(f"{number} recorded nodes  {cost.wall_s:.2f} s wall  {cost.cpu_s:.2f} s CPU  {cost.memory_mb:.0f} MB")
    return {
        f"replay_{number}_s": round(cost.wall_s, 2),
        f"replay_{number}_cpu_s": round(cost.cpu_s, 2),
        "replay_memory_mb": round(cost.memory_mb),
    }


if __name__ == "__main__":
    main()
