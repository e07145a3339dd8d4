"""Notes how long a rank works in a step before it meets the others; the script is unchanged, and no GPU is asked.

sitecustomize loads this in every rank. A step's mark is where the ranks have just met: as a torch optimizer's step
begins. What lies between two marks torch's flight recorder tells: when gloo's collectives were called, late by the rank
for which the others wait, and how long NCCL's took (TORCH_NCCL_ENABLE_TIMING), where that rank waits least.
`notes/RANK.pace.json` has the medians of blocks of steps, which end at the same steps on all ranks.
"""

from __future__ import annotations

import json
import os
import sys
import time
from bisect import bisect_left
from statistics import median
from typing import Any, Callable, Dict, List, Tuple

_HOOKED = "torch.optim.optimizer"
_DUMPS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
_FIRST_EVERY, _MOST_EVERY = 8, 1 << 16
_LEAST_S, _COST = 5.0, 400  # between two notes: so long, and so many times what a note costs
_MOST_BYTES = 8 << 20
_KEPT = 40

_torch: Any = None
_pace: Any = None
_waiting: List[Callable[[Any], None]] = []


def after_import(attach: Callable[[Any], None]) -> None:
    """Have `attach` called with torch's module of optimizers as soon as that is imported."""
    if not _waiting:
        sys.meta_path.insert(0, _AfterImport())
    _waiting.append(attach)


class _AfterImport:
    """Finds the module as Python would, and calls back when it has run; then it is off the list of finders."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != _HOOKED:
            return None
        from importlib.machinery import PathFinder

        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        spec = PathFinder.find_spec(name, path, target)
        run = getattr(spec.loader, "exec_module", None) if spec is not None else None
        if run is not None:

            def exec_module(module: Any) -> None:
                run(module)
                for attach in _waiting:
                    attach(module)

            spec.loader.exec_module = exec_module  # type: ignore[union-attr, method-assign]
        return spec


def is_compiling(torch: Any) -> bool:
    """Tell whether Dynamo traces a step that is compiled itself, and must find nothing to do (torch 2.3 and later)."""
    ask = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    return ask is not None and bool(ask())


def install() -> None:
    """Note the pace as soon as torch is imported."""
    after_import(_Pace().attach)


def _before_step(optimizer: Any, *_: Any) -> None:
    if not is_compiling(_torch):
        _pace.mark(optimizer)


class _Pace:
    """Marks the steps of the first optimizer, and notes them by blocks that end at multiples of `every`."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.place = os.path.join(os.environ["NODECTL_JOB_DIR"], "notes", os.environ["RANK"] + ".pace.json")
        self.whose = {"attempt": int(os.environ.get("NODECTL_ATTEMPT", "1")), "place": int(os.environ["LOCAL_RANK"])}
        self.marks: List[int] = []
        self.blocks: List[Dict[str, Any]] = []
        self.count, self.every = 0, _FIRST_EVERY
        self.optimizer = 0
        self.done = False

    def attach(self, module: Any) -> None:
        """Have every optimizer's step marked; torch before 2.0 has no hook for that."""
        register = getattr(module, "register_optimizer_step_pre_hook", None)
        if register is not None:
            global _torch, _pace
            _torch, _pace = sys.modules["torch"], self
            register(_before_step)

    def mark(self, optimizer: Any) -> None:
        """Mark a step; whatever goes wrong here is no concern of the script's, and ends the notes."""
        self.optimizer = self.optimizer or id(optimizer)
        if self.done or self.optimizer != id(optimizer) or os.getpid() != self.pid:
            return
        self.count += 1
        self.marks.append(time.time_ns())
        if self.count % self.every == 0:
            try:
                self.note()
            except Exception:
                self.done = True

    def note(self) -> None:
        """Add the block that ends here, and choose how long the next ones are."""
        began_s = time.thread_time()
        marks, self.marks = self.marks, self.marks[-1:]
        entries = _entries()
        if not entries or len(marks) < 3:
            self.done = not entries
            return
        lengths = [(marks[place] - marks[place - 1]) / 1e9 for place in range(1, len(marks))]
        block: Dict[str, Any] = {
            "step": self.count,
            "steps": len(lengths),
            "step_s": median(lengths),
            "groups": _by_group(marks, entries),
        }
        self.blocks = [*self.blocks, block][-_KEPT:]
        temporary = "%s.%d" % (self.place, self.pid)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump({**self.whose, "blocks": self.blocks}, file)
        os.replace(temporary, self.place)
        least_s = max(_LEAST_S, _COST * (time.thread_time() - began_s))
        self.every = _FIRST_EVERY
        while self.every * block["step_s"] < least_s and self.every < _MOST_EVERY:
            self.every *= 2


_Entry = Tuple[int, str, float]


def _entries() -> List[_Entry]:
    """Return when each collective was called (ns), in which group, and its seconds (gloo's: -1), in order."""
    library = sys.modules.get("torch._C._distributed_c10d")
    found: List[_Entry] = []
    for dump in filter(None, (getattr(library, name, None) for name in _DUMPS)):
        data = dump()
        rows = json.loads(data).get("entries", ()) if len(data) <= _MOST_BYTES else ()
        for row in rows:
            is_gloo = row["profiling_name"].startswith("gloo:")
            if not row["is_p2p"] and (is_gloo or row.get("duration_ms") is not None):
                seconds = -1.0 if is_gloo else row["duration_ms"] / 1e3
                found.append((row["time_created_ns"], str(row["process_group"][0]), seconds))
    return sorted(found)


def _by_group(marks: List[int], entries: List[_Entry]) -> Dict[str, List[float]]:
    """Return by group the medians over the steps: seconds until its first and its last collective was called.

    Of NCCL's it is, both times, minus the seconds within them: the differences between ranks mean the same.
    """
    found: Dict[str, List[Tuple[float, float]]] = {}
    places = [bisect_left(entries, (mark,)) for mark in marks]
    for place, mark in enumerate(marks[:-1]):
        begin, end = places[place : place + 2]
        if begin == 0:  # the recorder has lost what was before
            continue
        groups: Dict[str, List[_Entry]] = {}
        for entry in entries[begin:end]:
            groups.setdefault(entry[1], []).append(entry)
        for name, calls in groups.items():
            inside_s = -sum(seconds for _, _, seconds in calls)
            gloo = (calls[0][0] - mark) / 1e9, (calls[-1][0] - mark) / 1e9
            found.setdefault(name, []).append((inside_s, inside_s) if calls[0][2] >= 0 else gloo)
    return {name: [median(pair[place] for pair in pairs) for place in (0, 1)] for name, pairs in found.items()}
