"""Why a node's part of a job that Slurm ran failed: as on hosts over SSH, from the files that its ranks have left.

It is read on another host, later: no exit status was seen, and no kernel asked.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from . import notes, stayed
from .classify import Evidence, judge, launcher_words, signal_name, torchrun_exit
from .flight import summary
from .ranks import Output, log_of, tail

_SUMMARY_BYTES = 256 * 1024
_TRACEBACK_CHARS = 6000
_SIGTERM = 15
End = Dict[str, Any]
Failure = Dict[str, Any]


def failures(folder: str, node: int, ranks: int, end: End) -> List[Failure]:
    """Those of the node's ranks, else its launcher's; `end` has `exit_status`, `time` and `up_s` of the node then."""
    output = Output(os.path.join(folder, "ranks", f"{node}.log"))
    text = tail(output, _SUMMARY_BYTES)
    found = [_of_rank(folder, node, node * ranks + local_rank, local_rank, text, end) for local_rank in range(ranks)]
    return [each for each in found if each] or [_of_launcher(text, end)]


def _of_rank(folder: str, node: int, rank: int, local_rank: int, text: str, end: End) -> Optional[Failure]:
    note, code = notes.read_error(folder, rank, float("-inf")), torchrun_exit(text, local_rank)
    if code is None and note is not None:
        code = 1
    if not code:
        return None
    known = Evidence(code=code, code_from_log=True, note=note, after_another=code == -_SIGTERM)
    if note is None:  # which says all; of many jobs and ranks, logs are long to read
        place = os.path.join(folder, "ranks", str(node))
        log = log_of(place, Output(f"{place}.log"), local_rank)
        known = known._replace(
            watched=notes.is_watched(folder, rank),
            left=notes.has_left(folder, rank),
            stack=notes.crash(folder, rank),
            **log,
        )
    verdict = judge(known)
    failure = {
        "kind": verdict.kind,
        "class": verdict.category,
        "message": verdict.message,
        "rank": rank,
        "exit_status": code if code >= 0 else 128 - code,
        "time": _raised_at(note, end),
        "evidence": list(verdict.evidence),
        "traceback": verdict.traceback[-_TRACEBACK_CHARS:],
        **({"flight": summary(note.get("flight"))} if note and note.get("flight") else {}),
    }
    stayed.explain(failure, folder)
    return failure


def _raised_at(note: Optional[Dict[str, Any]], end: End) -> float:
    """By the node's clock: a note tells how long the node had been up."""
    if note is None or end["up_s"] is None:
        return float(end["time"])
    return float(end["time"]) - max(0.0, float(end["up_s"]) - float(note["monotonic_s"]))


def _of_launcher(text: str, end: End) -> Failure:
    status, said = int(end["exit_status"]), launcher_words(text)
    failure = {"rank": None, "exit_status": status, "time": end["time"], "traceback": ""}
    if said.signal == _SIGTERM or status == 128 + _SIGTERM:
        words = "its launcher was asked to end (SIGTERM)"
        return {**failure, "kind": "terminated", "class": "terminated", "message": words, "evidence": []}
    if status > 128:
        words = f"the launcher (torchrun) was killed by signal {status - 128} ({signal_name(status - 128)})"
        return {**failure, "kind": "launcher", "class": "launcher_killed", "message": words, "evidence": []}
    verdict = judge(Evidence(code=status, log=text, shared=True))
    category = said.category if said.category != "launcher" else verdict.category
    evidence = list(verdict.evidence)
    return {**failure, "kind": verdict.kind, "class": category, "message": verdict.message, "evidence": evidence}
