"""What ended a job, from what its hosts know: failures in one time, the first of them, and whom ranks waited for."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nodectl.common.counting import counted
from nodectl.jobs.clocks import Clocks, compare
from nodectl.jobs.remedies import remedy_of
from nodectl.model.job import Failure
from nodectl.payload.jobs.classify import KINDS, happened_s, severity
from nodectl.payload.jobs.standing import doing, stayed_away

# known here alone: two hosts that blame each other have a bad link
_KNOWN_HERE = {"link": float(KINDS.index("host_lost"))}
ECHOES = ("communication", "terminated")
_MOST_NAMED = 8
# "Ranks 1, 3 failed to pass monitoredBarrier"
_NAMED = re.compile(r"Ranks? ([\d, ]+) failed to pass monitoredBarrier")
_BARRIER = re.compile(r"\[Rank \d+\]: Rank (\d+) (?:failed|reported)")


@dataclass(frozen=True, slots=True)
class HostWords:
    """What one host told of a job: its name, its place in the plan, and its state document."""

    name: str
    rank: int
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Placed:
    """A failure with the place of its host, None where no host's clock tells its time."""

    failure: Failure
    host: int | None = None

    @property
    def place(self) -> tuple[float, float]:
        """The likeliest cause is the lowest."""
        return failure_place(self.failure)


def failure_place(item: Failure) -> tuple[float, float]:
    """Where it stands among a job's failures: the likeliest cause first, the time decides only within a class."""
    known = _KNOWN_HERE.get(item.kind)
    level = severity(item.kind, item.exit_status) if known is None else known
    return level, happened_s(item.kind, item.exit_status, item.time)


def failures_of(words: Sequence[HostWords], others: Iterable[Failure]) -> list[Failure]:
    """All failures, the likeliest cause first, with what speaks for it; `others` were not told by a rank's own host."""
    clocks = compare({each.rank: each.state.get("ways", {}) for each in words})
    placed = [
        Placed(_failure(each, item, clocks), each.rank)
        for each in words
        for item in each.state.get("failures", ())
        if item["kind"] != "host_lost"
    ]
    placed += [Placed(failure) for failure in others]
    placed += [Placed(failure, rank) for failure, rank in _left(words, placed, clocks)]
    placed.sort(key=lambda item: item.place)
    if not placed:
        return []
    first = _explained(placed, words, clocks)
    first = replace(first, remedy=remedy_of(first))
    return [first, *(item.failure for item in placed if item is not placed[0])]


def _failure(host: HostWords, item: Mapping[str, Any], clocks: Clocks) -> Failure:
    return replace(failure(host.name, item), time=clocks.correct(host.rank, float(item["time"])))


def failure(host: str, item: Mapping[str, Any]) -> Failure:
    """As a host wrote it; older ones know less."""
    return Failure(
        host,
        item["rank"],
        str(item["kind"]),
        str(item["message"]),
        item["exit_status"],
        float(item["time"]),
        category=str(item.get("class", item["kind"])),
        evidence=tuple(map(str, item.get("evidence", ()))),
        traceback=str(item.get("traceback", "")),
    )


def _left(words: Sequence[HostWords], placed: Sequence[Placed], clocks: Clocks) -> list[tuple[Failure, int]]:
    """The rank that ended well before the first of those that missed it in a collective."""
    causes = [item for item in placed if item.failure.kind not in ECHOES]
    echoes = [item.failure for item in placed if item.failure.kind == "communication"]
    if causes or not echoes:
        return []
    broke_at = min(echo.time for echo in echoes)
    ends = [
        (clocks.correct(host.rank, float(end["time"])), host, end)
        for host in words
        for end in host.state.get("ends", ())
        if end["code"] == 0 and not end.get("stopped")
    ]
    slack_s = {host.rank: clocks.uncertainty_s(host.rank, words[0].rank) + _ECHO_LAG_S for host in words}
    early = sorted(
        ((time, host.rank, host, end) for time, host, end in ends if time <= broke_at + slack_s[host.rank]),
        key=lambda item: item[:2],
    )
    if not early:
        return []
    time, _, host, end = early[0]
    many = len({echo.rank for echo in echoes})
    message = f"it ended with exit status 0 while {counted(many, 'other rank')} waited for it in a collective"
    evidence = ["its own end: exit status 0", *_first_words(echoes[:1])]
    others = [str(other["rank"]) for _, _, _, other in early[1:_MOST_NAMED]]
    if others:
        evidence.append(f"so did rank {', '.join(others)}, later")
    return [(Failure(host.name, end["rank"], "left", message, 0, time, "left_early", tuple(evidence)), host.rank)]


# its connections are closed, and its peers' errors written down, before a busy host has brought it to its end
_ECHO_LAG_S = 5.0


def _first_words(failures: Sequence[Failure]) -> list[str]:
    return [f"host {item.host}, rank {item.rank} then: {_line(item.message)}" for item in failures]


def _line(text: str) -> str:
    return text.partition("\n")[0][:300]


def _explained(placed: Sequence[Placed], words: Sequence[HostWords], clocks: Clocks) -> Failure:
    """The first failure, with who shares it, who cannot be told from it, and whom its ranks waited for."""
    first = placed[0]
    cause = first.failure
    if cause.kind == "communication":
        return _missing(placed, words)
    if cause.category == "collective_mismatch":
        return _odd_one(cause, words)
    if cause.category == "abort_at_exit":
        cause = _left_and_aborted(cause, [item.failure for item in placed[1:]])
    alike = [item.failure for item in placed[1:] if _is_alike(item.failure, cause)]
    lines = list(cause.evidence)
    if alike:
        ranks = sorted(item.rank for item in alike if item.rank is not None)
        lines.append(f"{counted(len(alike), 'other rank')} ended alike: {_numbers(ranks)}")
    lines += _rivals(first, placed, clocks)
    return replace(cause, evidence=tuple(lines))


def _left_and_aborted(cause: Failure, others: Iterable[Failure]) -> Failure:
    """A script that ended while others waited for it left early, however its process ended after that."""
    missed = {other.rank for other in others if other.kind == "communication"} - {cause.rank}
    if not missed:
        return cause
    message = f"its script ended while {counted(len(missed), 'other rank')} waited for it in a collective; then it was"
    return replace(cause, category="left_early", message=f"{message} {cause.message}")


def _is_alike(one: Failure, other: Failure) -> bool:
    same = (one.kind, one.category, _line(one.message)) == (other.kind, other.category, _line(other.message))
    return same and one.rank is not None and one.kind in ("exception", "exit", "signal")


def _numbers(ranks: Sequence[int]) -> str:
    more = len(ranks) - _MOST_NAMED
    return ", ".join(map(str, ranks[:_MOST_NAMED])) + (f" and {more} more" if more > 0 else "")


def _rivals(first: Placed, placed: Sequence[Placed], clocks: Clocks) -> list[str]:
    """Other causes that may have come before it, as far as the hosts' clocks tell."""
    lines = []
    for item in placed[1:]:
        if item.host is None or first.host is None or item.place[0] != first.place[0]:
            continue
        apart_s = item.failure.time - first.failure.time
        unsure_s = clocks.uncertainty_s(first.host, item.host)
        if abs(apart_s) <= unsure_s and not _is_alike(item.failure, first.failure):
            where = f"host {item.failure.host}" + ("" if item.failure.rank is None else f", rank {item.failure.rank}")
            lines.append(
                f"{where} failed within {unsure_s:.2f} s of it, which is as well as the clocks tell; it may have been"
                f" first: {_line(item.failure.message)}"
            )
    return lines[:_MOST_NAMED]


_WAITED = ("collective_timeout", "rendezvous")


def _missing(placed: Sequence[Placed], words: Sequence[HostWords]) -> Failure:
    """All that is known are ranks that waited in vain: the ranks that were elsewhere are named."""
    first = placed[0].failure
    echoes = [item.failure for item in placed if item.failure.kind == "communication"]
    waiting = [echo for echo in echoes if echo.category in _WAITED] or echoes
    if waiting[0].time <= first.time + _ECHO_LAG_S:  # who timed out and was aborted is gone later than it broke others
        first = waiting[0]
    living = [(host, rank) for host in words for rank in host.state.get("living", ())]
    gpu_lines = [(host, line) for host in words for line in host.state.get("xids", ())]
    if gpu_lines:
        host, line = gpu_lines[0]
        evidence = (f"kernel log: {line}", *_first_words(waiting[:1]))
        return replace(
            first, host=host.name, rank=None, kind="exception", category="xid", message=line, evidence=evidence
        )
    broke = {echo.rank for echo in echoes}
    absent = [(host, rank) for host, rank in living if stayed_away(rank, broke)]
    named = _named(waiting)
    chosen = next(((host, rank) for host, rank in absent if rank["rank"] in named), absent[0] if absent else None)
    if chosen is None or waiting[0].category not in _WAITED:
        return _behind(replace(first, evidence=(*first.evidence, *_living_lines(living))), words)
    host, rank = chosen
    others = sorted(other["rank"] for _, other in absent if other is not rank)
    category = waiting[0].category
    where = "meeting" if category == "rendezvous" else "collective"
    message = f"it did not come to the {where} in which {counted(len(waiting), 'other rank')} waited: {doing(rank)}"
    lines = [*_first_words(waiting[:1]), *_living_lines([chosen])]
    if others:
        lines.append(f"rank {_numbers(others)} did not come either")
    category = "stopped" if rank["state"] in "tT" else category
    return Failure(
        host.name, rank["rank"], "communication", message, None, first.time, category, tuple(lines), first.traceback
    )


# "op.preamble.length <= op.nbytes. 6000 vs 4": bytes that came, and that were expected
_SIZES = re.compile(r"op\.preamble\.length .{0,40}?(\d+) vs (\d+)")


# by torch's names of types; what is not here, has four bytes
_TYPE_BYTES = {
    **dict.fromkeys(("Bool", "Byte", "Char", "Float8_e4m3fn", "Float8_e5m2"), 1),
    **dict.fromkeys(("BFloat16", "Half", "Short"), 2),
    **dict.fromkeys(("ComplexFloat", "Double", "Long"), 8),
}


def _bytes(call: str) -> int:
    """How many bytes the sizes and the type in a call's words make."""
    elements = sum(math.prod(map(int, re.findall(r"\d+", each))) for each in re.findall(r"\[([\d, ]+)\]", call))
    return elements * _TYPE_BYTES.get(call.rpartition(" of type ")[2], 4)


def _words(call: Mapping[str, Any]) -> str:
    """A collective as it is told, and compared."""
    types = f" of type {call['types']}" if call.get("types") else ""
    return f"{call['collective']} number {call['number']} of sizes {call['sizes']}{types}"


def _odd_one(cause: Failure, words: Sequence[HostWords]) -> Failure:
    """Of ranks that called different things, the one that differs from most, by torch's flight recorder."""
    calls = [(host, rank, _words(call)) for host, rank, call in _calls(words)]
    counts = Counter(call for _, _, call in calls)
    lines = [f"flight recorder: rank {rank} called {call}" for _, rank, call in calls][:_MOST_NAMED]
    own = next((call for _, rank, call in calls if rank == cause.rank), "")
    if not own and len(counts) == 2:  # it was aborted, and gloo's words tell which of the two sizes it had itself
        got = _SIZES.search(cause.message)
        by_size = sorted(counts, key=_bytes, reverse=got is not None and int(got[1]) < int(got[2]))
        counts[by_size[0]] += 1 if got else 0
    usual = counts.most_common(2)
    if len(usual) == 2 and usual[0][1] > usual[1][1]:
        host, rank, call = next(row for row in calls if row[2] != usual[0][0])
        message = f"{_line(cause.message)}\nit called {call}; {counted(usual[0][1], 'other rank')} {usual[0][0]}"
        cause = replace(cause, host=host.name, rank=rank, message=message)
    return replace(cause, evidence=(*cause.evidence, *lines))


def _calls(words: Sequence[HostWords]) -> list[tuple[HostWords, int, Mapping[str, Any]]]:
    """The last collective of each rank in its first process group, where torch's flight recorder tells it."""
    calls: dict[int, tuple[HostWords, int, Mapping[str, Any]]] = {}
    for host in words:
        for rank, dump in host.state.get("flight", {}).items():
            for _, call in sorted(dump.get("groups", {}).items())[:1]:
                calls[int(rank)] = (host, int(rank), call)
        for item in host.state.get("failures", ()):
            groups = item.get("flight") or _watchdog(str(item["message"]))
            for _, call in sorted(groups.items())[:1]:
                calls[item["rank"]] = (host, item["rank"], call)
    return [calls[rank] for rank in sorted(calls)]


# as torch's watchdog of NCCL writes
_WORK = re.compile(r"WorkNCCL\(SeqNum=(\d+), OpType=(\w+)(?:, NumelIn=(\d+))?")
_ENQUEUED = re.compile(r"last enqueued (?:NCCL )?work: (\d+)")


def _watchdog(message: str) -> dict[str, dict[str, Any]]:
    """The collective of which NCCL's watchdog complains, by the last number that was enqueued; empty without."""
    work, enqueued = _WORK.search(message), _ENQUEUED.search(message)
    if work is None:
        return {}
    number = int(enqueued[1] if enqueued else work[1])
    return {"": {"collective": f"nccl:{work[2].lower()}", "number": number, "sizes": f"[[{work[3] or 0}]]"}}


def _backend(call: Mapping[str, Any]) -> str:
    return str(call["collective"]).partition(":")[0]


def _behind(first: Failure, words: Sequence[HostWords]) -> Failure:
    """Where nothing else tells: the rank that by the flight recorders began fewer collectives than the others."""
    calls = _calls(words)
    own = next((call for _, rank, call in calls if rank == first.rank), None)
    if own is not None:  # numbers of NCCL's collectives and of gloo's have nothing to do with each other
        calls = [row for row in calls if _backend(row[2]) == _backend(own)]
    numbers = Counter(call["number"] for _, _, call in calls)
    lines = [
        f"flight recorder: rank {rank} came to {call['collective']} number {call['number']}" for _, rank, call in calls
    ]
    first = replace(first, evidence=(*first.evidence, *lines[:_MOST_NAMED]))
    names = Counter(call["collective"] for _, _, call in calls)
    if first.category != "collective_timeout" or len(numbers) == len(names) == 1 or not calls:
        return first
    if len(numbers) == 1:
        return _other_call(first, calls, names)
    host, rank, call = min(calls, key=lambda row: row[2]["number"])
    message = (
        f"it came to {call['collective']} number {call['number']} only, where others wait in number {max(numbers)}"
        f"\n{_line(first.message)}"
    )
    return replace(first, host=host.name, rank=rank, message=message)


def _other_call(
    first: Failure, calls: Sequence[tuple[HostWords, int, Mapping[str, Any]]], names: Mapping[str, int]
) -> Failure:
    """Ranks that wait in different collectives, and so for ever: the fewer are named."""
    usual = max(names, key=lambda name: names[name])
    host, rank, call = next(row for row in calls if row[2]["collective"] != usual)
    message = f"it waits in {call['collective']}, where others wait in {usual}\n{_line(first.message)}"
    return replace(first, host=host.name, rank=rank, message=message, category="collective_mismatch")


def _named(waiting: Sequence[Failure]) -> set[int]:
    """Ranks that torch itself names as missing."""
    named: set[int] = set()
    for item in waiting:
        for match in _NAMED.findall(item.message):
            named |= {int(word) for word in match.replace(",", " ").split()}
        named |= {int(word) for word in _BARRIER.findall(item.message)}
    return named


def _living_lines(living: Iterable[tuple[HostWords, Mapping[str, Any]]]) -> list[str]:
    """What living ranks did at that time, those alike together."""
    groups: dict[str, list[int]] = defaultdict(list)
    for _, rank in living:
        if rank["stack"] or rank["state"] in "tTD":
            newest = rank["stack"][0] if rank["stack"] else ""
            groups[doing(rank) + (f"; newest call {newest}" if newest and newest not in doing(rank) else "")].append(
                rank["rank"]
            )
    return [f"rank {_numbers(sorted(ranks))}: {what}" for what, ranks in list(groups.items())[:_MOST_NAMED]]
