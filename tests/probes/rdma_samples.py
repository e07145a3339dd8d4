"""Recorded runs of perftest, each with its command and exit status, as the classifier is given them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from nodectl.probes.rdma.errors import Run

FIXTURES = Path(__file__).parents[1] / "fixtures" / "tools" / "perftest"
SAMPLES = Path(__file__).parents[3] / "shared" / "samples" / "rxe"
_ENDS = (".client.", ".server.")
# of which there is one end alone
_SERVERS = ("err.port-busy.txt",)


def recorded(path: Path) -> Run:
    """The first line is `# …: COMMAND`, the last `# … exit status: N`; what is between was printed."""
    first, *printed, last = path.read_text().splitlines()
    command = re.sub(r"^# (?:[^:]*: )?| \(control: .*\)$", "", first)
    status = re.search(r"(\d+)$", last)
    assert status, f"{path.name} does not end with its exit status"
    timed_out, is_server = int(status[1]) == 124, ".server" in path.name or path.name in _SERVERS
    return Run(shlex.split(command), int(status[1]), "\n".join(printed), timed_out=timed_out, is_server=is_server)


def partner_of(path: Path) -> Path | None:
    """The other end's recording."""
    for own, other in (_ENDS, _ENDS[::-1]):
        if own in path.name:
            beside = path.with_name(path.name.replace(own, other))
            return beside if beside.is_file() and _is_run(beside) else None
    return None


def runs(folder: Path) -> list[Path]:
    """The recorded runs in a folder, without help texts, JSON and what is no run of perftest's."""
    return [path for path in sorted(folder.glob("*.txt")) if re.match(r"(?:ib_|err\.|ctl\.)", path.name)
            and not path.name.endswith(".help.txt") and _is_run(path)]  # fmt: skip


def _is_run(path: Path) -> bool:
    """Of some failures the other end was never started."""
    return any("ib_" in word for word in recorded(path).argv)
