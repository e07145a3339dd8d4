"""perftest's programs on this host: which version, what they can do, and one run of one of them."""

import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

from ...jobs.syscalls import die_with_parent

HELP_S = 20.0
MOST_BYTES = 1 << 18
POLL_S = 0.02
# what a program that was told to end may still take
END_S = 2.0
# of interest: what not every version or build has
OPTIONS = ("--use_cuda", "--use_cuda_dmabuf", "--out_json", "--report_gbits")


def output_of(argv: Sequence[str]) -> str:
    """Return what a program prints on both channels."""
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=HELP_S
    )
    return done.stdout.decode(errors="replace")


def look(names: Sequence[str]) -> Dict[str, Any]:
    """Each program's version and those of OPTIONS that it has; nothing of one that is not installed."""
    known = {}
    for name in names:
        if shutil.which(name):
            version = re.search(r"Version:?\s*(\S+)", output_of([name, "--version"]))
            shown = set(re.findall(r"--[\w-]+", output_of([name, "--help"])))
            options = [option for option in OPTIONS if option in shown]
            known[name] = {"version": version.group(1) if version else None, "options": options}
    return known


def open_file() -> Any:
    """One that nobody else sees, and that goes when it is closed."""
    return os.fdopen(os.memfd_create("perftest"), "w+b")


class Program:
    """A run that has started; its output goes to files, so that nothing is lost when it is killed."""

    def __init__(self, argv: Sequence[str], cpus: Sequence[int], json_wanted: bool) -> None:
        """`cpus` are those to run on, none for all; ones that this process may not use are left out."""
        self.argv = list(argv)
        self._out, self._err = open_file(), open_file()
        self._folder = tempfile.mkdtemp(prefix="nodectl-rdma-") if json_wanted else None
        self.cpus = sorted(set(cpus) & os.sched_getaffinity(0))
        self.timed_out = False
        if self._folder:
            self.argv += ["--out_json", "--out_json_file=%s" % (Path(self._folder) / "result.json")]
        # a pipe or a file is buffered as a whole, and what a killed program had to say would be lost
        lines = ["stdbuf", "-oL"] if shutil.which("stdbuf") else []
        self._process = subprocess.Popen(
            [*lines, *self.argv],
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            env=dict(os.environ, CUDA_DEVICE_ORDER="PCI_BUS_ID"),
            preexec_fn=self._prepare,
        )

    def _prepare(self) -> None:
        die_with_parent()
        if self.cpus:
            os.sched_setaffinity(0, self.cpus)

    def running(self) -> bool:
        return self._process.poll() is None

    def wait(self, timeout_s: float) -> None:
        """Until it ends by itself, or is ended after this time."""
        until = time.monotonic() + timeout_s
        while self.running() and time.monotonic() < until:
            time.sleep(POLL_S)
        self.timed_out = self.running()
        self.end()

    def end(self) -> None:
        """Kill it, if it runs."""
        if self.running():
            self._process.terminate()
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def outcome(self) -> Dict[str, Any]:
        """Its exit status and all that it printed; nothing of it stays, so this may be asked once."""
        outcome = {
            "argv": self.argv,
            "status": self._process.returncode,
            "stdout": content(self._out),
            "stderr": content(self._err),
            "timed_out": self.timed_out,
            "json": self._json(),
            "cpus": self.cpus,
        }
        self.clear()
        return outcome

    def clear(self) -> None:
        """Nothing of it stays."""
        self.end()
        self._out.close()
        self._err.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _json(self) -> Optional[str]:
        path = Path(self._folder or "/nonexistent") / "result.json"
        return path.read_text(errors="replace")[:MOST_BYTES] if self._folder and path.is_file() else None


def content(file: Any) -> str:
    """The beginning of a file that a program has written."""
    file.seek(0)
    data: bytes = file.read(MOST_BYTES)
    return data.decode(errors="replace")


def not_started(argv: Sequence[str], error: OSError) -> Dict[str, Any]:
    """The outcome of a program that could not be started."""
    complaint = "%s: %s" % (argv[0], error.strerror)
    return {
        "argv": list(argv),
        "status": 127,
        "stdout": "",
        "stderr": complaint,
        "timed_out": False,
        "json": None,
        "cpus": [],
    }
