"""Reads the losses that a job's output tells while it grows: the first that is no number, and jumps upwards."""

from __future__ import annotations

import collections
import math
import os
import re
import time
from statistics import median
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Tuple

from . import outputs
from .folder import JobFolder

Event = Dict[str, Any]
NAN, SPIKE = "nan", "spike"

_LOOK_BYTES = 256 * 1024  # of all files in a look; of what comes faster the newest is read
_LONGEST_LINE = 2000
_MOST_SERIES, _MOST_EVENTS = 200, 40
_TEXT_CHARS = 200
_KEPT, _KNOWN = 50, 10
_DEVIATIONS, _RATIO = 8.0, 0.5
_RECORD, _ALONE = 2.0, 5.0  # times as far above the median as any other: with a second one after it, or by itself
_FLAT = 0.01  # a deviation is no smaller than this share of the median
_FIRST = 3  # so many that are no number before the first number are a mean over nothing

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
# `loss: 2.31`, `'loss': 2.31`, `train_loss=nan.0`, `lm loss: 1.2E+00`, `loss is tensor(nan, …)`, `trainLoss 2.3`
_LOSS = re.compile(
    r"(?:(?<![A-Za-z])(?:loss|Loss|LOSS)|(?<=[a-z])Loss)(?:_(?!scal|weight|f|coef|ratio|mask|thr|type)[A-Za-z]{1,12})?\b"
    r"['\"]?\s{0,20}(?:is\b)?[\s:=|]{0,20}['\"]?(?:tensor\(\[?)?"
    r"(?P<value>(?i:[-+]?(?:(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:e[-+]?\d{1,5})?|nan(?:\.0)?|inf(?:inity)?)))"
    r"(?!\w|\s?%|\.\w)"
)
_NAME = re.compile(r"(?:(?<![\w./-])[A-Za-z][\w-]{0,30}\s){0,2}[\w/.-]{0,40}$")
_STEP = re.compile(
    r"(?i)(?:\b|_)(?:steps?|iterations?|iters?)\b['\"]?[\s:=#\[]{0,20}(\d{1,15})(?![.\d])|\|\s*(\d{1,15})/\d+ \["
)
_RANK = re.compile(r"\[default(\d{1,5})\]:")
# of a line whose loss carries no such word itself
_OTHER_DATA = re.compile(r"(?i)(?<![a-z])(?:val|valid|validation|eval|evaluation|test|dev)(?![a-z])")
_NO_SERIES = re.compile(r"(?i)(?<![a-z])(?:best|min|max|lowest|prev|previous|last|target|packet)(?![a-z])")
# losses that work against each other, or follow what an agent meets, jump in good health
_RESTLESS = re.compile(
    r"(?i)(?<![a-z])(?:[dg]|gen|generator|disc|discriminator|critic|adv|adversarial|gan|policy|value|actor|[qv]f?\d?|td|kl)"
    r"(?![a-z])"
)


class Told(NamedTuple):
    """A loss in a line: its name, its value as written, and the step, None where the line names none."""

    name: str
    value: str
    step: Optional[int]


def read_line(line: str) -> List[Told]:
    """Return the losses of a line, each name once."""
    told: Dict[str, Told] = {}
    at = _STEP.search(line)
    step = int(at.group(1) or at.group(2)) if at else None
    for match in _LOSS.finditer(line):
        begin = match.start()
        before = _NAME.search(line, max(0, begin - 80), begin)
        name = (before.group() if before else "") + line[begin : match.start("value")].rstrip(" \t:=|'\"([+-.")
        name = re.sub(r"['\"\s:=|]+(?:is|tensor).*$", "", name).strip("-./ \t'\"")
        name = re.sub(r"^(?:with|and|the|a|has|INFO|step) ", "", name)
        if not _NO_SERIES.search(name):
            told.setdefault(name, Told(name, match.group("value"), step))
    one = next(iter(told), "")
    if len(told) == 1 and not _OTHER_DATA.search(one) and _OTHER_DATA.search(line) and "train" not in line.lower():
        return [told[one]._replace(name=f"val {one}")]
    return list(told.values())


class _Series:
    """One loss of one rank; `note` returns an event that has begun with this value."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calm = not _RESTLESS.search(name)
        self.values: Deque[float] = collections.deque(maxlen=_KEPT)
        self.last = ""
        self._told: Tuple[Optional[int], str] = (None, "")
        self._before = 0
        self._nan: Optional[Event] = None
        self._spike: Optional[Event] = None
        self._high, self._sure = 0, False

    def note(self, told: Told, event: Event) -> Optional[Event]:
        """Take the next value; the same step again, as a progress bar has it, counts once."""
        step, text = told.step, told.value
        if step == self._told[0] and (step is not None or text == self._told[1] != "nan"):
            return None
        was, self._told, self.last = self._told[0], (step, text), text
        if step is not None and was is not None and 1 < step < was:  # from a checkpoint
            self.values.clear()
            self._spike = None
        value = float(text.lower().replace("nan.0", "nan"))
        if math.isfinite(value):
            return self._number(value, event)
        if self._nan is None:
            self._nan = {**event, "kind": NAN, "early": not self.values}
            self._before = 0
            return self._nan
        self._before += 1
        return None

    def _number(self, value: float, event: Event) -> Optional[Event]:
        if self._nan is not None:
            if self._nan.pop("early", False) and self._before < _FIRST:
                self._nan["kind"] = ""
            self._nan["back"] = {"step": event["step"], "line": event["line"]}
            self._nan = None
        if self._spike is not None:
            return self._after_spike(self._spike, value, event)
        usual, times = self._excess(value)
        if times < _RECORD:
            self.values.append(value)
            return None
        self._high, self._sure = 0, times >= _ALONE
        self._spike = {**event, "kind": SPIKE, "usual": usual, "peak": value}
        return self._spike if self._sure else None

    def _excess(self, value: float) -> Tuple[float, float]:
        """Return the median so far, and how many times farther than any other this value is above it, 0 if not far."""
        if not self.calm or len(self.values) < _KNOWN or value <= max(self.values):
            return 0.0, 0.0
        usual = median(self.values)
        deviation = 1.4826 * median(abs(one - usual) for one in self.values)
        excess, record = value - usual, max(self.values) - usual
        far = excess > _DEVIATIONS * max(deviation, _FLAT * abs(usual)) and excess > _RATIO * abs(usual)
        return usual, excess / max(record, 1e-9 * excess) if far else 0.0

    def _after_spike(self, spike: Event, value: float, event: Event) -> Optional[Event]:
        """Return the spike where this second high value makes sure that it is one."""
        spike["peak"] = max(spike["peak"], value)
        self._high += 1
        if value - spike["usual"] <= 0.25 * (spike["peak"] - spike["usual"]):
            spike["back"] = {"step": event["step"], "line": event["line"]}
            self._spike = None
            self.values.extend([value] if self._sure else [spike["peak"], value])
        elif self._high >= _KEPT:  # it stays there
            self._spike = None
            self.values.clear()
        elif not self._sure:
            self._sure = True
            return spike
        return None


class Losses:
    """The losses of an attempt's ranks on this host; `events` may be read by another thread."""

    def __init__(self, job: JobFolder, first_rank: int) -> None:
        self._job, self._first_rank = job, first_rank
        self._files: Dict[str, outputs.Tail] = {}
        self._series: Dict[Tuple[Optional[int], str], _Series] = {}
        self._all: List[Event] = []
        self.events: List[Event] = []
        for name in outputs.shown_files(job):  # of attempts before
            self._files[name] = outputs.Tail(_size(job.at(name)), _LONGEST_LINE)

    def look(self) -> None:
        """Read what has come since the last time."""
        names = outputs.shown_files(self._job)
        for name in names:
            file = self._files.setdefault(name, outputs.Tail(0, _LONGEST_LINE))
            rank = outputs.local_rank(name)
            for number, line in file.read(self._job.at(name), max(4096, _LOOK_BYTES // len(names))):
                if b"oss" in line or b"OSS" in line:
                    self._take(rank, number, line[:_LONGEST_LINE].decode(errors="replace"))
        self._all = [event for event in self._all if event["kind"]]
        self.events = [{key: value for key, value in event.items() if key != "early"} for event in self._all]

    def _take(self, rank: Optional[int], number: Optional[int], line: str) -> None:
        line = _COLOUR.sub("", line)
        mark = _RANK.match(line)
        rank = int(mark.group(1)) if rank is None and mark else rank
        for told in read_line(line):
            series = self._series.get((rank, told.name))
            if series is None:
                if len(self._series) >= _MOST_SERIES:
                    continue
                series = self._series[rank, told.name] = _Series(told.name)
            event = {
                "name": told.name,
                "rank": None if rank is None else self._first_rank + rank,
                "value": told.value[:40],
                "step": told.step,
                "line": number,
                "text": line.strip()[:_TEXT_CHARS],
                "at": time.time(),
                "usual": None,
                "peak": None,
                "back": None,
            }
            begun = series.note(told, event)
            if begun is not None and len(self._all) < _MOST_EVENTS:
                self._all.append(begun)

    def last_bad(self, local_rank: int) -> str:
        """Return the last value of a loss of this rank that is no number, with its name; else ""."""
        for (rank, name), series in self._series.items():
            if rank in (None, local_rank) and series.last and not math.isfinite(float(series.last.replace(".0", ""))):
                return f"{name} {series.last}"
        return ""


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
