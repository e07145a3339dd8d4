"""The files of a job's traces, brought from the hosts into one folder that is the operator's alone."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodectl.common import bounded_json
from nodectl.common.files import local_path
from nodectl.common.units import MIB
from nodectl.errors import UsageError
from nodectl.jobs.nodes import why
from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.model.trace import RankTrace
from nodectl.payload.common.frames import Reader
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out
from nodectl.transport.payload import run_payload

LIMIT_MIB = 1024
_MODULE = "jobs.traces"
_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Gathered:
    """What was brought into `folder`; `problems` by host. With `too_large` nothing was: it is more than the limit."""

    folder: Path
    files: int
    size_bytes: int
    problems: Mapping[str, str]
    too_large: bool = False


def gather(
    transport: Transport, hosts: Sequence[Host], job_id: str, traces: Sequence[RankTrace], folder: Path,
    *, forks: int, limit_mib: int = LIMIT_MIB,
) -> Gathered:  # fmt: skip
    """One file a rank, `HOST.RANK.json.gz`; hosts at once, a host's ranks one after the other."""
    wanted: dict[str, list[RankTrace]] = {}
    for trace in traces:
        if trace.file:
            wanted.setdefault(trace.host, []).append(trace)
    size = sum(trace.size_bytes for each in wanted.values() for trace in each)
    if size > limit_mib * MIB:
        return Gathered(folder, 0, size, {}, too_large=True)
    make_folder(folder)
    files, problems = 0, {}
    taken = [host for host in hosts if host.name in wanted]
    for host, sinks in fan_out(taken, lambda host: _of_host(transport, host, job_id, wanted[host.name], folder), forks):
        files += sum(not sink.problem for sink in sinks)
        if said := "; ".join(sink.problem for sink in sinks if sink.problem):
            problems[host.name] = said
    return Gathered(folder, files, size, problems)


def make_folder(folder: Path) -> None:
    """A private folder; UsageError where there cannot be one."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}", "give another folder with --to") from error


def _of_host(transport: Transport, host: Host, job_id: str, traces: Sequence[RankTrace], folder: Path) -> list[_Sink]:
    sinks = []
    for trace in traces:
        sink = _Sink(local_path(folder, host.name, trace.file), trace.size_bytes)
        try:
            with sink:
                done = run_payload(
                    transport, host, _MODULE, [job_id, trace.file], timeout_s=_TIMEOUT_S, bare=True, on_output=sink.take
                )
                sink.end(done)
        except OSError as error:
            sink.problem = f"{error.strerror}: {sink.path}"
        sinks.append(sink)
    return sinks


class _Sink:
    """Takes the frames of one file; it is there as a whole, or not at all."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path, self.problem = path, ""
        self._most, self._size, self._whole = size_bytes, 0, False
        self._frames = Reader()
        self._draft = path.with_name(f".{path.name}.partial")

    def __enter__(self) -> None:
        self._draft.unlink(missing_ok=True)
        # a link that somebody has put there meanwhile is not followed
        self._file = os.fdopen(os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if self.problem or not self._whole:
            self._draft.unlink(missing_ok=True)
        else:
            self._draft.replace(self.path)

    def take(self, stream: str, data: bytes) -> None:
        """What came; of a host that sends more than it has said nothing is kept."""
        if stream != "stdout" or self.problem:
            return
        try:
            for text in self._frames.feed(data):
                self._take_frame(bounded_json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
            self.problem = f"its answer cannot be read: {error}"
        except OSError as error:
            self.problem = f"{error.strerror}: {self.path}"

    def _take_frame(self, frame: Mapping[str, object]) -> None:
        if "end" in frame:
            self._whole = frame["end"] == self._size
            return
        data = base64.b64decode(str(frame["data"]), validate=True)
        self._size += len(data)
        if self._size > self._most:
            raise ValueError(f"it has more than the {self._most} bytes that were announced")
        self._file.write(data)

    def end(self, done: CommandResult) -> None:
        """Why it is not whole, where it is not."""
        if not self.problem and (done.outcome is not Outcome.RAN or done.exit_status or not self._whole):
            self.problem = why(done) if done.outcome is not Outcome.RAN or done.exit_status else "it was cut"
