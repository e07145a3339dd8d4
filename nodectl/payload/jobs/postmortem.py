"""Collects why a host's part of an attempt failed: the ranks' ends, with notes, logs, launcher and kernel."""

from __future__ import annotations

import signal
from functools import partial
from typing import Any, Callable, Dict, Iterable, List, Optional, Set

from . import flight, kernel, living, standing, steady
from .classify import LauncherWords, launcher_words, signal_name
from .clerk import News, Work
from .evidence import HostAtStart, Output, describe, tail, unseen
from .failures import FOLLOWED, first, row
from .folder import JobFolder, no_space, venv_of
from .ranks import Death, Rank, RankWatch

_READ_S = 4.0  # how long a log may take to be read before the end is reported without it
_LAST_WORDS_BYTES = 8000
_TOGETHER_S = 2.0
_NEVER = float("inf")
_ASKS = (signal.SIGTERM, signal.SIGHUP)
_ENDS = ("signal", "exit", "launcher")
_UNREAD = "its output could not be read"


class Postmortem:
    """Collects the failures of one attempt on this host: the supervisor reports what it sees, the clerk reads files.

    `failures`, `ends`, `living`, `xids` and `flight` go into the job's state; `now_s` is monotonic.
    """

    def __init__(
        self,
        job: JobFolder,
        plan: Dict[str, Any],
        at_start: HostAtStart,
        output: Output,
        watch: RankWatch,
        ask: Callable[[Work], None],
        causes: Callable[[], List[int]],
    ) -> None:
        """`causes` returns the hosts whose cause this one has heard: what fails here from then on is later."""
        self._job, self._plan, self._at_start, self._output = job, plan, at_start, output
        self._watch, self._ask, self._causes = watch, ask, causes
        self.failures: List[Dict[str, Any]] = []
        self.ends: List[Dict[str, Any]] = []
        self.living: List[Dict[str, Any]] = []
        self.xids: List[str] = []
        self.flight: Dict[str, Any] = {}
        self._deaths: List[Dict[str, Any]] = []
        self._stopped_at = _NEVER
        self._asked_launcher = False
        self._asked_living = False
        self._launcher_killed: Optional[float] = None
        self._host_leaves = False
        self._undescribed: Dict[int, float] = {}
        self._after: Dict[int, List[int]] = {}
        self._asked_s: Optional[float] = None
        self._said: Optional[LauncherWords] = None

    def fail(self, kind: str, message: str, **more: object) -> None:
        """Add a failure at this moment that belongs to no rank."""
        self.failures.append(row(kind, message, steady.now(), after=self._causes(), **more))

    def told(self, elsewhere: Iterable[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
        """Return the failure that the heartbeats report: the host's first, or a rank that was absent from a collective.

        `elsewhere` are the other hosts' first failures. Only this host knows which of its ranks ended well, and where
        the others were.
        """
        first_failure = first(self.failures)
        if first_failure is not None and first_failure["kind"] not in FOLLOWED:
            return first_failure
        echoes = [failure for failure in (*self.failures, *elsewhere) if failure["kind"] == "communication"]
        early = [end for end in self.ends if end["code"] == 0 and not end["stopped"]]
        if echoes and early:
            left = min(early, key=lambda end: float(end["time"]))
            more = {"class": "left_early", "rank": left["rank"], "exit_status": 0}
            evidence = ["its own end: exit status 0"]
            return row("left", standing.left_early("other ranks"), left["time"], evidence=evidence, **more)
        waiting = [failure for failure in echoes if failure.get("class") in standing.WAITED]
        broke = {failure["rank"] for failure in echoes}
        absent = [rank for rank in self.living if standing.stayed_away(rank, broke)]
        return _absent(absent[0], waiting) if waiting and absent else first_failure

    def note_leaving(self, kind: str, message: str) -> None:
        """Note that the host's part ends, and that launcher and ranks may have been asked to end as well."""
        self._host_leaves = True
        for failure in self.failures:
            self._excuse_leaving(failure)
        self.fail(kind, message)

    def _excuse_leaving(self, failure: Dict[str, Any]) -> None:
        asked = failure["exit_status"] is None or failure["exit_status"] - 128 in _ASKS
        if self._host_leaves and asked and failure["kind"] in _ENDS:
            failure.update({"kind": "terminated", "class": "terminated"})

    def note_stop(self, *, asked: bool) -> None:
        """Count the ranks' ends from now on as consequences of the stop; `asked`: the launcher was told to end."""
        self._stopped_at = steady.now()
        self._asked_launcher = asked

    def note_end(self, death: Death, now_s: float) -> None:
        """Note that a rank ended: have the living ranks looked at, then the evidence of its end read."""
        self.ends.append({"rank": death.rank, "code": death.code, "time": death.time, "stopped": death.after_stop})
        self._undescribed[death.rank], self._after[death.rank] = now_s, self._causes()
        if death.code != 0:
            self.look_at_living()
        self._ask(partial(self._describe, death))

    def look_at_living(self) -> None:
        """Have the clerk look at the living ranks, once, and only before they are told to end."""
        if not self._asked_living and self._stopped_at == _NEVER:
            self._asked_living = True
            self._ask(partial(self._read_living, self._watch.running()))

    def note_killed_launcher(self, number: int) -> None:
        """Note that the launcher was seen to die of this signal."""
        if not self._asked_launcher:
            self._blame_signal(number, _TOGETHER_S)

    def explain(self, now_s: float) -> bool:
        """Have the logs searched for ends that nobody saw; return True when that is done or has taken too long."""
        if self._asked_s is None:
            self._asked_s = now_s
            self._ask(self._read_unseen)
        return self.is_described(now_s) and (self._said is not None or now_s - self._asked_s > _READ_S)

    def is_described(self, now_s: float) -> bool:
        """Tell whether the evidence of all dead ranks has been read, or has taken too long."""
        return all(now_s - died_s > _READ_S for died_s in self._undescribed.values())

    def blame_launcher(self, exit_status: int) -> None:
        """Add the launcher's last message as the cause, for an end without a failed rank."""
        if self._said is None:
            self.fail("launcher", f"exit status {exit_status}; {_UNREAD}")
        else:
            more = {"class": self._said.category, "evidence": list(self._said.evidence)}
            self.fail("launcher", f"exit status {exit_status}: {self._said.message}", **more)

    def _read_living(self, ranks: List[Rank]) -> News:
        venv = venv_of(self._plan, self._plan["hosts"][self._plan["rank"]])
        rows = living.look(self._job.path, ranks, venv)
        return lambda: setattr(self, "living", rows)

    def _blame_signal(self, number: int, within_s: float) -> None:
        if self._host_leaves and number in _ASKS:
            return
        self._launcher_killed = steady.now()
        engine = (self._plan.get("start") or {}).get("engine", "torchrun")
        launcher = "the command" if engine == "command" else f"the launcher ({engine})"
        message = f"{launcher} was killed by signal {number} ({signal_name(number)})"
        status = 128 + number
        self.fail("launcher", message, exit_status=status, **{"class": "launcher_killed"})
        for failure in self.failures:
            self._excuse(failure, within_s)

    def _excuse(self, failure: Dict[str, Any], within_s: float = _TOGETHER_S) -> None:
        killed_at = self._launcher_killed
        if killed_at is None or failure["kind"] != "signal" or failure["exit_status"] not in (137, 143):
            return
        if abs(failure["time"] - killed_at) < within_s:
            failure.update({"kind": "terminated", "class": "terminated", "message": "ended with its launcher"})

    def _describe(self, death: Death) -> News:
        others = bool(self._deaths)
        failure = describe(death, self._at_start, after_another=others, stopped_at=self._stopped_at)
        if failure and failure["kind"] == "exit" and no_space(self._job.path):
            failure["message"] += f"; {no_space(self._job.path)}"
        self._deaths += [failure] if failure else []
        return lambda: self._take_description(death.rank, failure)

    def _take_description(self, rank: int, failure: Dict[str, Any]) -> None:
        self._undescribed.pop(rank, None)
        if failure:
            failure["after"] = self._after[rank]
            self._excuse(failure)
            self._excuse_leaving(failure)
            self.failures = [item for item in self.failures if _UNREAD not in item["message"]]  # it was read by now
            self.failures.append(failure)

    def _read_unseen(self) -> News:
        """Find ranks that failed between two looks, unseen unlike a neighbour's end; runs on the clerk's thread."""
        seen_ranks: Set[int] = {failure["rank"] for failure in (*self.failures, *self._deaths)}
        seen_ranks |= {end["rank"] for end in self.ends if end["code"] == 0}
        after_stop = self._stopped_at < _NEVER
        failures = unseen(self._plan, self._at_start, seen_ranks=seen_ranks, after_stop=after_stop)
        launcher = launcher_words(tail(self._output, _LAST_WORDS_BYTES))
        full = no_space(self._job.path)
        if full:
            launcher = launcher._replace(category="disk_full", message=full)
        dumps = flight.read_dumps(self._job.path, self._at_start.since_s)
        xids = [line.text for line in kernel.log_since(self._at_start.since_s)[0] if line.kind == "xid"]
        return lambda: self._take_unseen(failures, launcher, dumps, xids)

    def _take_unseen(
        self, failures: List[Dict[str, Any]], launcher: LauncherWords, dumps: Dict[str, Any], xids: List[str]
    ) -> None:
        self._said, self.flight, self.xids = launcher, dumps, xids
        for failure in failures:
            self._excuse_leaving(failure)
        self.failures += failures
        is_news = not self._asked_launcher and self._launcher_killed is None
        ends = ((item["kind"], item["exit_status"]) for item in self.failures)
        if launcher.signal and is_news and all(end[0] == "terminated" or end == ("signal", 143) for end in ends):
            self._blame_signal(launcher.signal, _NEVER)


def _absent(rank: Dict[str, Any], waiting: List[Dict[str, Any]]) -> Dict[str, Any]:
    message = standing.absence(rank, str(waiting[0]["class"]), "other ranks")
    category = "stopped" if rank["state"] in "tT" else str(waiting[0]["class"])
    more = {"class": category, "rank": rank["rank"], "evidence": [standing.NO_GROUPS]}
    return row("left", message, min(failure["time"] for failure in waiting), **more)
