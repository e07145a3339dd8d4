"""Finds what ended a job from its hosts' reports: the first failure, and ranks others waited for."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nodectl.common.counting import counted
from nodectl.jobs import calls
from nodectl.jobs.calls import Call, Calls, numbers
from nodectl.jobs.remedies import remedy_of
from nodectl.model.job import Failure
from nodectl.payload.common.secret_words import without_secrets
from nodectl.payload.jobs.failures import FOLLOWED, KINDS, happened_s, severity
from nodectl.payload.jobs.standing import NO_GROUPS, WAITED, absence, doing, left_early, meets, stayed_away

# only the controller sees both sides: two hosts that blame each other have a bad link
_KNOWN_HERE = {"link": float(KINDS.index("host_lost"))}
_MOST_NAMED = 8
# "Ranks 1, 3 failed to pass monitoredBarrier"
_NAMED = re.compile(r"Ranks? ([\d, ]{1,9999}) failed to pass monitoredBarrier")
_BARRIER = re.compile(r"\[Rank \d+\]: Rank (\d{1,9}) (?:failed|reported)")
# the keys by which gloo's ranks find each other: "keys: /default_pg/0//cpu//0/2"
_KEY = re.compile(r"keys: \S{0,200}//cpu//\d{1,9}/(?:rank_)?(\d{1,9})\b")
# calls that the flight recorder does not record
_UNRECORDED = re.compile(r"distributed_c10d\.py\", line \d+, in (?:(?:send|recv)(?:_object_list)?|monitored_barrier)\n")


@dataclass(frozen=True, slots=True)
class HostWords:
    """One host's report of a job: its name, its place in the plan, and its state document."""

    name: str
    rank: int
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Placed:
    """A failure with its host's place in the plan (None if no host reported it), and the causes heard before it."""

    failure: Failure
    host: int | None = None
    after: frozenset[int] = frozenset()

    @property
    def place(self) -> tuple[float, int, float]:
        """The sort key, the likeliest cause first; a host's cause comes after those that it had heard of."""
        level, time_s = failure_place(self.failure)
        return level, len(self.after), time_s


def failure_place(item: Failure) -> tuple[float, float]:
    """Return its place among a job's failures: the likeliest cause first, the time decides only within a class."""
    rank_here = _KNOWN_HERE.get(item.kind)
    level = severity(item.kind, item.exit_status) if rank_here is None else rank_here
    return level, happened_s(item.kind, item.exit_status, item.time)


def failures_of(hosts: Sequence[HostWords], others: Iterable[Failure], job_id: str = "last") -> list[Failure]:
    """Return all failures, the likeliest cause first, with its evidence; `others` were not reported by a rank's own."""
    placed = [
        Placed(failure(host.name, item), host.rank, frozenset(item.get("after", ())))
        for host in hosts
        for item in host.state.get("failures", ())
        if item["kind"] != "host_lost"
    ]
    placed += [Placed(failure) for failure in others]
    placed += [Placed(failure, rank) for failure, rank in _left(hosts, placed)]
    placed.sort(key=lambda item: item.place)
    if not placed:
        return []
    first = _explained(placed, hosts)
    first = replace(first, remedy=remedy_of(first, job_id))
    # a time limit is over on all hosts at once
    rest = (item.failure for item in placed if item is not placed[0])
    return [first, *(item for item in rest if (item.kind, first.kind) != ("time_limit", "time_limit"))]


def failure(host: str, item: Mapping[str, Any]) -> Failure:
    """Read a failure as a host wrote it, without secrets that an exception quotes; older ones know less."""
    return Failure(
        host,
        item["rank"],
        item["kind"],
        without_secrets(item["message"]),
        item["exit_status"],
        item["time"],
        category=item.get("class", item["kind"]),
        evidence=tuple(map(without_secrets, item.get("evidence", ()))),
        traceback=without_secrets(item.get("traceback", "")),
    )


def _left(hosts: Sequence[HostWords], placed: Sequence[Placed]) -> list[tuple[Failure, int]]:
    """Return the failure of a rank that ended well before other ranks missed it in a collective."""
    causes = [item for item in placed if item.failure.kind not in FOLLOWED]
    echoes = [item.failure for item in placed if item.failure.kind == "communication"]
    if causes or not echoes:
        return []
    broke_at = min(echo.time for echo in echoes)
    ends = (
        (float(end["time"]), host.rank, host, end)
        for host in hosts
        for end in host.state.get("ends", ())
        if end["code"] == 0 and not end.get("stopped")
    )
    early = sorted((item for item in ends if item[0] <= broke_at + _ECHO_LAG_S), key=lambda item: item[:2])
    if not early:
        return []
    time, _, host, end = early[0]
    many = len({echo.rank for echo in echoes})
    message = left_early(counted(many, "other rank"))
    evidence = ["its own end: exit status 0", *_first_words(echoes[:1])]
    others = [str(other["rank"]) for _, _, _, other in early[1:_MOST_NAMED]]
    if others:
        evidence.append(f"so did rank {', '.join(others)}, later")
    return [(Failure(host.name, end["rank"], "left", message, 0, time, "left_early", tuple(evidence)), host.rank)]


# on a busy host its peers may record errors from closed connections before its own end is seen
_ECHO_LAG_S = 5.0


def _first_words(failures: Sequence[Failure]) -> list[str]:
    places = [next((f" ({line})" for line in item.evidence if line.startswith("at ")), "") for item in failures]
    return [
        f"host {item.host}, rank {item.rank} then: {_line(item.message)}{place}"
        for item, place in zip(failures[:_MOST_NAMED], places, strict=False)
    ]


def _line(text: str) -> str:
    return text.partition("\n")[0][:300]


def _explained(placed: Sequence[Placed], hosts: Sequence[HostWords]) -> Failure:
    """Return the first failure, with the ranks that share it, its possible rivals, and the ranks it waited for."""
    first = placed[0]
    cause = first.failure
    if cause.kind == "communication":
        return _missing(placed, hosts)
    if cause.category == "collective_mismatch":
        return _odd_one(cause, hosts)
    alike = [item.failure for item in placed[1:] if _is_alike(item.failure, cause)]
    lines = list(cause.evidence)
    if alike:
        ranks = sorted(item.rank for item in alike if item.rank is not None)
        lines.append(f"{counted(len(alike), 'other rank')} ended alike: {numbers(ranks)}")
    lines += _rivals_of_unknown_order(first, placed)
    return replace(cause, evidence=tuple(lines))


def _is_alike(one: Failure, other: Failure) -> bool:
    same = (one.kind, one.category, _line(one.message)) == (other.kind, other.category, _line(other.message))
    return one.kind == other.kind == "time_limit" or (
        same and one.rank is not None and one.kind in ("exception", "exit", "signal")
    )


def _rivals_of_unknown_order(first: Placed, placed: Sequence[Placed]) -> list[str]:
    lines = []
    for item in placed[1:]:
        known = item.host is None or first.host in (None, item.host) or first.host in item.after
        if not known and item.place[0] == first.place[0] and not _is_alike(item.failure, first.failure):
            where = f"host {item.failure.host}" + ("" if item.failure.rank is None else f", rank {item.failure.rank}")
            lines.append(f"order unknown: {where} failed before it heard of this: {_line(item.failure.message)}")
    return lines[:_MOST_NAMED]


def _missing(placed: Sequence[Placed], hosts: Sequence[HostWords]) -> Failure:
    """Return the failure of absent ranks if all failures are of ranks that waited in vain."""
    first = placed[0].failure
    echoes = [item.failure for item in placed if item.failure.kind == "communication"]
    waiting = [echo for echo in echoes if echo.category in WAITED] or echoes
    if waiting[0].time <= first.time + _ECHO_LAG_S:  # who timed out and was aborted is gone later than it broke others
        first = waiting[0]
    living = [(host, rank) for host in hosts for rank in host.state.get("living", ())]
    gpu_lines = [(host, line) for host in hosts for line in host.state.get("xids", ())]
    if gpu_lines:
        host, line = gpu_lines[0]
        evidence = (f"kernel log: {line}", *_first_words(waiting[:1]))
        return replace(_of_nobody(first, line, evidence), host=host.name, kind="exception", category="xid")
    calls = _last_calls(hosts)
    if waiting[0].category in WAITED and (never_meet := _never_meet(first, calls, hosts, waiting)) is not None:
        return never_meet
    broke = {echo.rank for echo in echoes}
    absent = [
        (host, rank) for host, rank in living if stayed_away(rank, broke) and calls.may_be_wanted(int(rank["rank"]))
    ]
    named = _named_as_missing(waiting)
    chosen = next(((host, rank) for host, rank in absent if rank["rank"] in named), absent[0] if absent else None)
    if chosen is None and waiting[0].category == "rendezvous" and (unmet := _unmet(first, hosts, waiting)) is not None:
        return unmet
    if chosen is None or waiting[0].category not in WAITED:
        first = _behind(first, calls, hosts, waiting)
        return replace(first, evidence=(*first.evidence, *_living_lines(living)))
    host, rank = chosen
    others = sorted(other["rank"] for _, other in absent if other is not rank)
    category = waiting[0].category
    message = absence(rank, category, counted(len(waiting), "other rank"))
    lines = [*_first_words(waiting[:1]), *_living_lines([chosen])]
    if others:
        lines.append(f"rank {numbers(others)} did not come either")
    if not calls.is_whole:
        lines.append(NO_GROUPS)
    category = "stopped" if rank["state"] in "tT" else category
    return Failure(host.name, rank["rank"], "communication", message, None, first.time, category, tuple(lines))


# ranks that asked the store are known to have found it; the others have not
_AT_STORE = re.compile(r"waiting for clients|wait timeout after \d+ ?ms, keys:")


def _unmet(first: Failure, hosts: Sequence[HostWords], waiting: Sequence[Failure]) -> Failure | None:
    """Blame the likeliest rank that did not find the store, or is named as missing; None if none found it."""
    came = {echo.rank for echo in waiting if echo.rank is not None and _AT_STORE.search(echo.message)}
    living = {int(rank["rank"]): doing(rank) for host in hosts for rank in host.state.get("living", ()) if meets(rank)}
    living |= {echo.rank: _line(echo.message) for echo in waiting if echo.rank is not None and echo.rank not in came}
    named = _named_as_missing(waiting) - came
    # rank 0 usually hosts the store, and waits there as well
    likely = sorted({*named, *living} - came, key=lambda rank: (rank not in named, rank == 0, rank))
    if not came:
        return None
    if not likely:
        message = f"rank {numbers(sorted(came))} waited for others; who did not come is not known"
        return _of_nobody(first, f"{message}\n{_line(first.message)}", _first_words(waiting))
    rank = likely[0]
    did = f": {living[rank]}" if rank in living else ""
    message = f"did not come to the store at which {counted(len(came), 'other rank')} waited{did}"
    if not any(_knows(host, rank) for host in hosts):
        return _of_nobody(first, f"rank {rank} {message}", _first_words(waiting))
    return replace(_moved(first, rank, hosts), message=f"it {message}", evidence=tuple(_first_words(waiting)))


def _of_nobody(first: Failure, message: str, evidence: Iterable[str]) -> Failure:
    return replace(first, rank=None, message=message, exit_status=None, evidence=tuple(evidence), traceback="")


def _odd_one(cause: Failure, hosts: Sequence[HostWords]) -> Failure:
    """Blame, among ranks that called different things, the one that differs from most, by torch's flight recorder."""
    rows = _last_calls(hosts).unlike()
    odd, usual, many = calls.odd_one(rows)
    lines = [f"flight recorder: rank {call.rank} called {call.words}" for call in rows[:_MOST_NAMED]]
    if odd is not None:
        cause = _blamed(cause, odd, usual, many, hosts)
    elif lines:
        lines.append("which of these calls is wrong is not known")
    return replace(cause, evidence=(*cause.evidence, *dict.fromkeys(lines)))


def _blamed(cause: Failure, odd: Call, usual: str, many: int, hosts: Sequence[HostWords]) -> Failure:
    message = f"{_line(cause.message)}\nit called {odd.words}; {counted(many, 'other rank')} {usual}"
    return replace(_moved(cause, odd.rank, hosts), message=message)


def _moved(first: Failure, rank: int, hosts: Sequence[HostWords]) -> Failure:
    """Return the failure as that of another rank: with the evidence of its own end, where it has one."""
    if rank == first.rank:
        return first
    for host in hosts:
        for item in host.state.get("failures", ()):
            if item["rank"] == rank:
                own_end = failure(host.name, item)
                lines = (*own_end.evidence, *_first_words([first]))
                return replace(first, host=host.name, rank=rank, evidence=lines, traceback=own_end.traceback)
    witnesses = (host.name for host in hosts if _knows(host, rank))
    lines = tuple(_first_words([first]))
    return replace(first, host=next(witnesses, first.host), rank=rank, evidence=lines, traceback="")


def _knows(host: HostWords, rank: int) -> bool:
    rows = (row for name in ("ends", "living", "failures") for row in host.state.get(name, ()))
    return str(rank) in host.state.get("flight", {}) or any(item["rank"] == rank for item in rows)


def _last_calls(hosts: Sequence[HostWords]) -> Calls:
    watchdog_calls, records = {}, {}
    for host in hosts:
        for item in host.state.get("failures", ()):
            if item["rank"] is not None:
                watchdog_calls[int(item["rank"])] = _watchdog(str(item["message"]))
                records[int(item["rank"])] = _recorded(item)
        for rank, dump in host.state.get("flight", {}).items():
            records[int(rank)] = records.get(int(rank)) or dump.get("groups")
    records = {
        rank: groups
        for rank in {*watchdog_calls, *records}
        if (groups := records.get(rank) or watchdog_calls.get(rank))
    }
    return calls.read(records)


def _recorded(item: Mapping[str, Any]) -> Any:
    """Return a failure's record; a rank that failed in an unrecorded call had ended all recorded ones."""
    groups = item.get("flight")
    if groups and _UNRECORDED.search(item.get("traceback", "")):
        return {name: {key: row[key] for key in row if key != "pending"} for name, row in groups.items()}
    return groups


# as torch's watchdog of NCCL writes
_WORK = re.compile(r"WorkNCCL\(SeqNum=(\d{1,18}), OpType=(\w+)(?:, NumelIn=(\d{1,18}))?")
_ENQUEUED = re.compile(r"last enqueued (?:NCCL )?work: (\d{1,18})")
_GUID = re.compile(r"\[PG ID \d+ PG GUID (\w+)")


def _watchdog(message: str) -> dict[str, dict[str, Any]]:
    """Return the collective of which NCCL's watchdog complains, by the last number that was enqueued; else {}."""
    work, enqueued, group = _WORK.search(message), _ENQUEUED.search(message), _GUID.search(message)
    if work is None:
        return {}
    number = int(enqueued[1] if enqueued else work[1])
    call = {"collective": f"nccl:{work[2].lower()}", "number": number, "sizes": f"[[{work[3] or 0}]]"}
    return {group[1] if group else "": call}


def _never_meet(
    first: Failure, recorded: Calls, hosts: Sequence[HostWords], waiting: Sequence[Failure]
) -> Failure | None:
    """Ranks that called different things in one place, or wait for each other in different groups; None for neither."""
    unlike, circle = recorded.unlike(), recorded.circle
    if unlike:
        odd, usual, many = calls.odd_one(unlike)
        lines = tuple(f"flight recorder: rank {call.rank} called {call.words}" for call in unlike[:_MOST_NAMED])
        first = replace(first, category="collective_mismatch")
        if odd is not None:
            blamed = _blamed(first, odd, usual, many, hosts)
            return replace(blamed, evidence=(*blamed.evidence, *lines))
        both = "; ".join(f"rank {call.rank} called {call.words}" for call in unlike[:_MOST_NAMED])
        message = f"{both}: these do not fit together, and which is wrong is not known\n{_line(first.message)}"
        return _of_nobody(first, message, (*_first_words(waiting), *lines))
    if not circle:
        return None
    circle_lines = "; ".join(recorded.line(rank) for rank in circle[:_MOST_NAMED])
    message = (
        f"ranks {numbers(circle)} wait for each other in different collectives, and none can go on: {circle_lines};"
        " which of them is out of order is not known"
    )
    rest = sorted(set(recorded.waits) - set(circle))
    lines = tuple(f"flight recorder: {recorded.line(rank)}" for rank in (*circle, *rest)[:_MOST_NAMED])
    return replace(_of_nobody(first, message, (*_first_words(waiting), *lines)), category="collective_mismatch")


def _behind(first: Failure, calls: Calls, hosts: Sequence[HostWords], waiting: Sequence[Failure]) -> Failure:
    """Blame the rank that by the flight recorders began fewer collectives than the others, if nothing else tells."""
    lines = [f"flight recorder: {calls.line(rank)}" for rank in sorted(calls.at)][:_MOST_NAMED]
    if calls.behind and first.category == "collective_timeout":
        first = _moved(first, calls.behind[0], hosts)
    elif calls.stuck_line and first.category == "collective_timeout":
        return _of_nobody(first, f"{calls.stuck_line}\n{_line(first.message)}", (*_first_words(waiting), *lines))
    first = replace(first, evidence=(*first.evidence, *lines))
    if first.category != "collective_timeout" or not calls.behind:
        return first
    rank = calls.behind[0]
    late = next(calls.at[other] for other in sorted(calls.waits) if rank in calls.waits[other])
    last = calls.begun[rank].get(late.group, 0)
    here = (call for call in calls.made if (call.rank, call.group, call.number) == (rank, late.group, last))
    came = next((call.collective for call in here), "collective")
    message = (
        f"it came to {came} number {last} only{late.place}, where others wait in {late.collective} number"
        f" {late.number}\n{first.message}"
    )
    return replace(first, message=message)


def _named_as_missing(waiting: Sequence[Failure]) -> set[int]:
    named: set[int] = set()
    for item in waiting:
        for match in _NAMED.findall(item.message):
            named |= {int(word) for word in match.replace(",", " ").split() if len(word) < 10}
        named |= {int(word) for pattern in (_BARRIER, _KEY) for word in pattern.findall(item.message)}
    return named


def _living_lines(living: Iterable[tuple[HostWords, Mapping[str, Any]]]) -> list[str]:
    groups: dict[str, list[int]] = defaultdict(list)
    for _, rank in living:
        if rank["stack"] or rank["state"] in "tTD":
            newest = rank["stack"][0] if rank["stack"] else ""
            groups[doing(rank) + (f"; newest call {newest}" if newest and newest not in doing(rank) else "")].append(
                rank["rank"]
            )
    return [f"rank {numbers(sorted(ranks))}: {what}" for what, ranks in list(groups.items())[:_MOST_NAMED]]
