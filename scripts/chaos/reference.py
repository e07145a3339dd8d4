"""What an undisturbed run computes, and whether torch can read a checkpoint: both by the torch of the lab's share."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from nodectl.common.files import replace_file
from nodectl.common.paths import cache_dir

STEPS = 1500
_TRAIN = Path(__file__).with_name("train.py")
_STEP = re.compile(r"step (\d+) loss (\S+)")
_RUN_S = 600
_READER = """
import json, sys, torch
for line in sys.stdin:
    wrong = {}
    for path in json.loads(line):
        try:
            torch.load(path)["weights"].sum().item()
        except Exception as error:
            wrong[path] = f"{type(error).__name__}: {error}"
    print(json.dumps(wrong), flush=True)
"""


def steps_in(text: str) -> list[tuple[int, str]]:
    """Each step with its loss, bit by bit, in their order."""
    return [(int(number), loss) for number, loss in _STEP.findall(text)]


class Reference:
    """The losses of an undisturbed run on so many ranks: computed once, and kept in the cache folder."""

    def __init__(self, python: str, ranks: int) -> None:
        self._python, self._ranks = python, ranks
        key = hashlib.sha256(f"{_TRAIN.read_text()} {ranks} {STEPS}".encode()).hexdigest()[:16]
        self._kept = cache_dir() / "chaos" / f"{key}.json"
        self._losses: dict[int, str] = {}

    @property
    def losses(self) -> dict[int, str]:
        """Return the losses by their step."""
        if not self._losses and self._kept.exists():
            self._losses = {int(step): loss for step, loss in json.loads(self._kept.read_text()).items()}
        if not self._losses:
            self._losses = self._computed()
            self._kept.parent.mkdir(exist_ok=True)
            replace_file(self._kept, json.dumps(self._losses))
        return self._losses

    def _computed(self) -> dict[int, str]:
        options = ["--nproc-per-node", str(self._ranks), "--standalone", str(_TRAIN), "--pause", "0"]
        with tempfile.TemporaryDirectory(prefix="nodectl-chaos-") as folder:
            env = {**os.environ, "NODECTL_CHECKPOINT_DIR": folder, "OMP_NUM_THREADS": "1", "TMPDIR": folder}
            argv = [self._python, "-m", "torch.distributed.run", *options, "--steps", str(STEPS)]
            done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=_RUN_S, check=False)
        losses = dict(steps_in(done.stdout))
        if len(losses) != STEPS:
            sys.exit(f"the undisturbed run ended with {done.returncode}: {done.stderr[-2000:]}")
        return losses


class Reader:
    """A process that has torch and reads checkpoints."""

    def __init__(self, python: str) -> None:
        argv = [python, "-c", _READER]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def unreadable(self, paths: Sequence[Path]) -> dict[str, str]:
        """Return the checkpoints that torch.load does not read, with the reason."""
        pipe, answers = self._process.stdin, self._process.stdout
        if not paths or pipe is None or answers is None:
            return {}
        pipe.write(json.dumps([str(path) for path in paths]) + "\n")
        pipe.flush()
        return dict(json.loads(answers.readline()))

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()


def share_python() -> str:
    """Return the Python of the lab's share, which has torch."""
    return str(cache_dir() / "lab-share" / "venv" / "bin" / "python")
