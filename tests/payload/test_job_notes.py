"""What a rank's Python writes of its own end, and what its host reads of that, of the kernel and of torch's dumps."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.payload.jobs import flight, kernel, notes

HOOK = Path(notes.hook_folder())
RAISES = (
    "try:\n    open('/data/shard')\nexcept OSError as error:\n    raise RuntimeError('loading\\nfailed') from error\n"
)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a script as a launcher would start a rank."""
    started: list[subprocess.Popen[str]] = []

    def run(script: str, **variables: str) -> subprocess.Popen[str]:
        (tmp_path / "train.py").write_text(script)
        env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "NODECTL_IN_RANK")}
        env |= {"PYTHONPATH": str(HOOK), "RANK": "3", "LOCAL_RANK": "1", "NODECTL_JOB_DIR": str(tmp_path), **variables}
        process = subprocess.Popen(
            [sys.executable, str(tmp_path / "train.py")],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def test_an_uncaught_exception_is_kept_whole_with_what_it_came_from(run: Any, tmp_path: Path) -> None:
    begun = time.monotonic()
    process = run(RAISES)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said.count("Traceback")) == (1, 2)
    note = notes.read_error(str(tmp_path), 3, begun)
    assert note is not None
    assert [(link["type"], link["role"]) for link in note["chain"]] == [
        ("RuntimeError", "raised"),
        ("FileNotFoundError", "cause"),
    ]
    assert note["chain"][0]["message"] == "RuntimeError: loading\nfailed"
    assert note["text"].rstrip() == said.rstrip()
    assert notes.read_error(str(tmp_path), 3, time.monotonic()) is None


def test_a_crash_leaves_its_stack(run: Any, tmp_path: Path) -> None:
    process = run("import os, signal\ndef step(): os.kill(os.getpid(), signal.SIGSEGV)\nstep()")
    process.communicate(timeout=60)
    assert process.returncode == -11
    stack = notes.crash(str(tmp_path), 3)
    assert stack.startswith("Fatal Python error: Segmentation fault") and "line 2 in step" in stack


@pytest.mark.parametrize(
    "script",
    [
        "import traceback, sys\ntry: int('x')\nexcept ValueError: traceback.print_exc()\nsys.exit(3)",
        "raise SystemExit(3)",
        "import os\nif os.fork() == 0: raise ValueError('of a child')\nos.wait(); os._exit(3)",
    ],
)
def test_what_is_handled_or_another_process_has_is_no_note(run: Any, tmp_path: Path, script: str) -> None:
    process = run(script)
    process.communicate(timeout=60)
    assert process.returncode == 3
    assert notes.watch_of(str(tmp_path), 3)
    assert notes.read_error(str(tmp_path), 3) is None


def test_the_script_sees_its_environment_as_it_was_and_the_sitecustomize_that_was_hidden(
    run: Any, tmp_path: Path
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import os\nos.environ['HIDDEN'] = 'seen'\n")
    script = (
        "import os, sys\n"
        "print(os.environ.get('PYTHONPATH'), os.environ.get('HIDDEN'), any('in_rank' in p for p in sys.path))\n"
    )
    alone, _ = run(script).communicate(timeout=60)
    assert alone.split()[0] == "None"
    more, said = run(script, PYTHONPATH=f"{HOOK}:{tmp_path / 'site'}").communicate(timeout=60)
    assert (more.strip(), said) == (f"{tmp_path / 'site'} seen False", "")


KERNEL_LOG = """\
[  100.000001] NVRM: Xid (PCI:0000:10:1c): 79, pid=77, name=python, GPU has fallen off the bus.
[  200.500000] Out of memory: Killed process 4711 (python) total-vm:9000kB, anon-rss:8000kB
[  200.600000] python[99]: segfault at 0 ip 00007f sp 00007f error 4 in libnccl.so.2[7f+1]
[  201.000000] NVRM: Xid (PCI:0000:10:1c): 48, pid='<unknown>', name=<unknown>, DBE
[  202.000000] eth0: link up
"""


def test_lines_of_the_kernels_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_log", lambda: (KERNEL_LOG, ""))
    lines, problem = kernel.log_since(150.0)
    assert [(line.kind, line.pid) for line in lines] == [("oom", 4711), ("fault", 99), ("xid", None)]
    assert lines[0].text.startswith("Out of memory: Killed process 4711")
    assert problem == ""


ENTRY = {
    "collective_seq_id": 7, "profiling_name": "nccl:all_reduce", "process_group": ("0", "default_pg"),
    "state": "scheduled", "input_sizes": [[4]], "input_dtypes": ["Float"], "is_p2p": False,
    "frames": [
        {"filename": "/x/site-packages/torch/a.py", "line": 1, "name": "f"},
        {"filename": "/code/train.py", "line": 9, "name": "step"},
    ],
}  # fmt: skip


class Harm:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("harm-was-done",)


def test_dumps_of_the_flight_recorder_are_read_and_run_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    (ranks / "nccl_trace_job_rank_0").write_bytes(pickle.dumps({"version": "2.10", "entries": [ENTRY]}, protocol=2))
    (ranks / "nccl_trace_job_rank_1").write_bytes(pickle.dumps({"entries": [Harm()]}))
    (ranks / "nccl_trace_job_rank_2").write_bytes(b"\x80\x04cut")
    found = flight.read_dumps(str(tmp_path))
    assert found["0"]["groups"]["0"] == {
        "collective": "nccl:all_reduce",
        "number": 7,
        "sizes": "[[4]]",
        "types": "Float",
        "state": "scheduled",
        "called_at": "/code/train.py:9 step",
        "members": [],
        "recent": [],
        "pending": {"collective": "nccl:all_reduce", "number": 7, "sizes": "[[4]]", "types": "Float"},
    }
    assert "no plain data" in found["1"]["problem"]
    assert "cannot be read" in found["2"]["problem"]
    assert not (tmp_path / "harm-was-done").exists()
