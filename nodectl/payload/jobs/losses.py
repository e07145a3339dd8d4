"""Reads the losses that a job's output tells while it grows: the first that is no number, and jumps upwards."""

from __future__ import annotations

import collections
import itertools
import math
import re
import time
from statistics import median
from typing import Any, Collection, Deque, Dict, List, Optional, Tuple

from ..common.secret_words import without_secrets
from . import outputs
from .folder import JobFolder

Event = Dict[str, Any]
Told = Tuple[str, str, Optional[int]]  # a loss's name, its value as written, and the step where the line names one
_LOOK_BYTES = 256 << 10  # of all files in a look; of what comes faster the newest is read
_LONGEST_LINE, _TEXT_CHARS = 2000, 200
_MOST_SERIES, _MOST_EVENTS, _MOST_OF_ONE, _MOST_NAMES = 200, 40, 5, 20
_KEPT, _KNOWN = 50, 10
_DEVIATIONS, _LOG_DEVIATIONS, _RATIO = 8.0, 6.0, 0.25
_RECORD, _ALONE = 2.0, 5.0  # times as far above the median as any other: with a second one after it, or by itself
_FLAT = 0.01  # a deviation is no smaller than this share of the median
_FIRST = 3  # so many that are no number before the first number are a mean over nothing
_NORMS = 5  # a scaler of mixed precision skips steps whose gradient's norm is no number; so many in a row it does not

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
# `loss: 2.31`, `'loss': 2.31`, `train_loss=nan.0`, `lm loss: 1.2E+00`, `loss is tensor(nan, …)`, `'grad_norm': nan`
_LOSS = re.compile(
    r"(?:(?:(?<![A-Za-z])(?:loss|Loss|LOSS)|(?<=[a-z])Loss)"
    r"(?:(?:[_/](?!scal|weight|f|coef|ratio|mask|thr|type|time|ms|sec|std|var)| (?=train:))[A-Za-z]{1,12}){0,2}"
    r"|(?<![A-Za-z])grad[_ ]norm)\b['\"]?\s{0,20}(?:is\b)?[\s:=|]{0,20}['\"]?(?:tensor\(\[?)?"
    r"(?P<value>(?i:[-+]?(?:(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:e[-+]?\d{1,5})?|nan(?:\.0)?|inf(?:inity)?)))"
    r"(?!\w|\s?%|\.\w)"
)
_NAME = re.compile(r"(?:(?<![\w./-])[A-Za-z][\w-]{0,30}\s){0,2}[\w/.-]{0,40}$")
_STEP = re.compile(
    r"(?i)(?:\b|_)(?:steps?|iterations?|iters?)\b['\"]?[\s:=#\[]{0,20}(\d{1,15})(?![.\d%])|\|\s*(\d{1,15})/\d+ \["
)
_RANK = re.compile(r"\[default(\d{1,5})\]:")
_MOST_RANKS = 10**6
# of a line whose loss carries no such word itself
_OTHER_DATA = re.compile(r"(?i)(?<![a-z])(?:val|valid|validation|eval|evaluation|test|dev)(?![a-z])")
_NO_SERIES = re.compile(r"(?i)(?<![a-z])(?:best|min|max|lowest|prev|previous|last|target|packet)(?![a-z])")


def read_line(line: str) -> List[Told]:
    """Return the losses of a line, and the gradient's norm, each name once."""
    told: Dict[str, Told] = {}
    at = _STEP.search(line)
    step = int(at.group(1) or at.group(2)) if at else None
    for match in itertools.islice(_LOSS.finditer(line), _MOST_NAMES):
        begin = match.start()
        before = _NAME.search(line, max(0, begin - 80), begin)
        name = (before.group() if before else "") + line[begin : match.start("value")]
        name = re.sub(r"['\"\s:=|]+(?:is\b.*|tensor.*)?$", "", name).strip("-./ \t'\"")
        name = re.sub(r"^(?:with|and|the|a|has|INFO|step) ", "", name)
        if not _NO_SERIES.search(name):
            told.setdefault(name, (name, match.group("value"), step))
    one = next(iter(told), "")
    if len(told) == 1 and not _OTHER_DATA.search(one) and _OTHER_DATA.search(line) and "train" not in line.lower():
        return [(f"val {one}", *told[one][1:])]
    return list(told.values())


class _Series:
    """One loss of one rank; `note` returns an event as soon as it is sure that it has begun."""

    def __init__(self, name: str) -> None:
        self.told = 0
        self._is_norm = "norm" in name
        self._values: Deque[float] = collections.deque(maxlen=_KEPT)
        self._told: Tuple[Optional[int], str] = (None, "")
        self._nan: Optional[Event] = None
        self._spike: Optional[Event] = None
        self._count, self._sure = 0, False  # of values since the event began

    @property
    def bad(self) -> str:
        """Return the last value if it is no number, else an empty text."""
        return self._told[1] if self._nan is not None else ""

    def note(self, event: Event) -> Optional[Event]:
        """Take the next value; the same step again, as a progress bar has it, counts once."""
        step, text = event["step"], event["value"]
        (was, before), value = self._told, float(text.lower().replace("nan.0", "nan"))
        if step == was and (step is not None or (text == before and math.isfinite(value))):
            return None
        self._told = step, text
        if step is not None and was is not None and 1 < step < was:  # from a checkpoint
            self._values.clear()
            self._spike = None
        if math.isfinite(value):
            self._end_nan(event)
            return None if self._is_norm else self._number(value, event)
        if self._nan is None:
            self._nan, self._count = {**event, "kind": "nan"}, 0
        self._count += 1
        return self._nan if self._count == (_NORMS if self._is_norm else 1) else None

    def _end_nan(self, event: Event) -> None:
        if self._nan is not None:
            self._nan["back"] = _place(event)
            if not self._values and self._count <= _FIRST:
                self._nan["kind"] = ""
            self._nan = None

    def _number(self, value: float, event: Event) -> Optional[Event]:
        if self._spike is not None:
            return self._after_spike(self._spike, value, event)
        usual, times = self._excess(value)
        if times < _RECORD:
            self._values.append(value)
            return None
        self._spike, self._count = {**event, "kind": "spike", "usual": usual, "peak": value}, 0
        self._sure = times >= _ALONE
        return self._spike if self._sure else None

    def _excess(self, value: float) -> Tuple[float, float]:
        """Return the median so far, and how many times farther than any other this value is above it, 0 if not far."""
        if len(self._values) < _KNOWN or value <= max(self._values):
            return 0.0, 0.0
        usual = median(self._values)
        excess, record = value - usual, max(self._values) - usual
        scale = max(_deviation(self._values), _FLAT * abs(usual))
        # of what was mostly 0, as the loss of GRPO begins, nothing tells how far is far
        far = scale > 0 and excess > max(_RATIO * abs(usual), _DEVIATIONS * scale)
        if far and min(self._values) > 0:  # what varies by factors jumps by factors
            far = math.log(value / usual) > _LOG_DEVIATIONS * _deviation([math.log(one) for one in self._values])
        return usual, excess / max(record, 1e-9 * excess) if far else 0.0

    def _after_spike(self, spike: Event, value: float, event: Event) -> Optional[Event]:
        """Return the spike where this second high value makes sure that it is one."""
        spike["peak"] = max(spike["peak"], value)
        self._count += 1
        if value - spike["usual"] <= 0.25 * (spike["peak"] - spike["usual"]):
            spike["back"], self._spike = _place(event), None
            self._values.extend([value] if self._sure else [spike["peak"], value])
        elif self._count >= _KEPT:  # it stays there
            self._spike = None
            self._values.clear()
        elif not self._sure:
            self._sure = True
            return spike
        return None


def _deviation(values: Collection[float]) -> float:
    """Return the standard deviation that the median deviation stands for."""
    usual = median(values)
    return 1.4826 * median(abs(one - usual) for one in values)


def _place(event: Event) -> Dict[str, Optional[int]]:
    return {"step": event["step"], "line": event["line"]}


class Losses:
    """The losses of an attempt's ranks on this host; `events` may be read by another thread."""

    def __init__(self, job: JobFolder, first_rank: int) -> None:
        self._job, self._first_rank = job, first_rank
        self._files: Dict[str, outputs.Tail] = {}
        self._series: Dict[Tuple[Optional[int], str], _Series] = {}
        self._begun: List[Event] = []
        self.events: List[Event] = []
        for name in outputs.shown_files(job):  # of attempts before
            self._files[name] = outputs.Tail(outputs.size(job.at(name)), _LONGEST_LINE)

    def look(self) -> None:
        """Read what has come since the last time."""
        names = outputs.shown_files(self._job)
        for name in names:
            file, rank = self._files.setdefault(name, outputs.Tail(0, _LONGEST_LINE)), outputs.local_rank(name)
            for number, line in file.read(self._job.at(name), max(4096, _LOOK_BYTES // len(names))):
                if b"oss" in line or b"OSS" in line or b"norm" in line:
                    self._take(rank, number, line[:_LONGEST_LINE].decode(errors="replace"))
        self._begun = [event for event in self._begun if event["kind"]]
        self.events = [dict(event) for event in self._begun]

    def _take(self, rank: Optional[int], number: Optional[int], line: str) -> None:
        line = _COLOUR.sub("", line)
        mark = _RANK.match(line)
        rank = int(mark.group(1)) if rank is None and mark else rank
        place = {
            "rank": None if rank is None or rank >= _MOST_RANKS else self._first_rank + rank,
            "line": number,
            "at": time.time(),
        }
        empty = {"usual": None, "peak": None, "back": None}
        for name, value, step in read_line(line):
            if (rank, name) not in self._series and len(self._series) >= _MOST_SERIES:
                continue
            series = self._series.setdefault((rank, name), _Series(name))
            begun = series.note({"name": name, "value": value[:40], "step": step, **place, **empty})
            if begun is not None and series.told < _MOST_OF_ONE and len(self._begun) < _MOST_EVENTS:
                series.told += 1
                begun["text"] = without_secrets(line.strip())[:_TEXT_CHARS]
                self._begun.append(begun)

    def last_bad(self, local_rank: int) -> str:
        """Return the last value of a loss of this rank that is no number, with its name; else ""."""
        told = ((name, series.bad) for (rank, name), series in self._series.items() if rank in (None, local_rank))
        return next((f"{name} {bad}" for name, bad in told if bad and "norm" not in name), "")
