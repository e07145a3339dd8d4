"""What the rdma probe makes of perftest's output: the figure that was printed, and the kind of each failure.

Outputs that perftest really printed over soft-RoCE lie beside the checkout (`../shared/samples/rxe`); the figure is
read here by its place in the last row, the unit from the header, with nothing of nodectl's parser.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nodectl.facts.parsers.rdma.perftest import parse_perftest
from nodectl.probes.rdma.errors import Run, classify
from nodectl.probes.rdma.result import value_of

# the first line: `# client (vm2): ib_write_bw -d rxe0 10.99.0.11`, or several commands of which the last one failed
_COMMAND = re.compile(r"^# (?:[^:]*: )?(?:.*(?:;|&&) )?(.*)$", re.MULTILINE)
_STATUS = re.compile(r"^# (?:\w+ )?exit status: (\d+)$", re.MULTILINE)
_ROW = re.compile(r"^\s*\d+(?:\s+-?[\d.]+){2,}\s*$")
_MB_S = 2**20 * 8 / 1e9
# what has happened there, by the name of the file: the end that is asked, and the kind
_KINDS: dict[str, str | None] = {
    "err.bad-gid.client": "bad_gid",
    "err.bad-hostname.client": "unresolved",
    "err.bad-option.client": "bad_option",
    "err.iters-mismatch.client": None,  # perftest takes different counts without a word; the probe gives both the same
    "err.link-cut-midrun.client": "link_cut",
    "err.no-device": "no_device",
    "err.no-device-arg-two-sided.client": None,  # perftest took the only device there was: no failure
    "err.no-host.client": "no_server",
    "err.no-server.client": "no_server",
    "err.nobody-connects.server": "no_client",
    "err.port-busy.server": "port_busy",
    "err.port-down": "port_down",
    "err.server-killed-midrun.client": "peer_lost",
    "err.size-mismatch.client": "mismatch",
    "err.test-mismatch.client": "mismatch",
    "err.wrong-device.client": "no_device",
}


def rdma(folder: Path) -> dict[str, Any]:
    """How many outputs were read, and what came out differently: nothing should."""
    figures, wrong, errors = 0, [], 0
    for path in sorted(folder.glob("*.txt")):
        name = path.stem
        if name.startswith("err."):
            continue
        printed = _printed(path.read_text())
        if printed is None:
            continue
        figures += 1
        told = value_of(parse_perftest(path.read_text()).rows[-1])
        if not math.isclose(told, printed, rel_tol=1e-12):
            wrong.append(f"{name}: {told} where {printed} is printed")
    for name, kind in _KINDS.items():
        errors += 1
        found = classify(_run(folder / f"{name}.txt"), _partner(folder, name))
        if (found.kind if found else None) != kind:
            wrong.append(f"{name}: {found} where it was {kind}")
    wrong += [f"{name}: an error of which nothing is known here" for name in _unknown(folder)]
    return {"figures": figures, "errors": errors, "wrong": wrong}


def _unknown(folder: Path) -> Iterator[str]:
    """Errors that no line above speaks of, but for the other ends of those."""
    for path in sorted(folder.glob("err.*.txt")):
        end = path.stem.rpartition(".")[2]
        if path.stem not in _KINDS and not (end in ("client", "server") and _other_end(path.stem) in _KINDS):
            yield path.stem


def _printed(text: str) -> float | None:
    """Return the last row's figure: average bandwidth in Gb/s, or typical (else average) latency in us."""
    rows = [line.split() for line in text.splitlines() if _ROW.match(line)]
    header = next((line for line in text.splitlines() if line.lstrip().startswith("#bytes")), "")
    if not rows or not header:
        return None
    cells = rows[-1]
    if "BW average" in header:
        return float(cells[3]) * (_MB_S if "MB/sec" in header else 1.0)
    # bytes, iterations, then min, max, typical, average, …; a run by duration has the average alone
    return float(cells[4] if "t_typical" in header else cells[2])


def _run(path: Path) -> Run:
    text = path.read_text()
    command = _COMMAND.search(text)
    if command is None:
        raise SystemExit(f"{path}: its first line names no command")
    status = _STATUS.search(text)
    exit_status = int(status[1]) if status else None
    is_server = path.stem.endswith(".server")
    return Run(shlex.split(command[1]), exit_status, text, timed_out=exit_status == 124, is_server=is_server)


def _partner(folder: Path, name: str) -> Run | None:
    path = folder / f"{_other_end(name)}.txt"
    run = _run(path) if path.is_file() and path.stem != name else None
    # of some failures the other end was never started
    return run if run is not None and any("ib_" in word for word in run.argv) else None


def _other_end(name: str) -> str:
    bare, _, end = name.rpartition(".")
    return {"client": f"{bare}.server", "server": f"{bare}.client"}.get(end, name)
