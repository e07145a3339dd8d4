"""Looks at a running job on all hosts at once, and judges what its ranks do and for which ranks others wait."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from nodectl.common.counting import counted
from nodectl.common.units import MIB
from nodectl.errors import ParseError
from nodectl.facts.parsers.nccl.ncclras import parse_ncclras
from nodectl.jobs.calls import Calls, numbers, odd_one
from nodectl.jobs.calls import read as read_calls
from nodectl.jobs.nodes import ask
from nodectl.jobs.rows import ExamineRow
from nodectl.model.host import Host
from nodectl.model.job import Look, RankNow
from nodectl.payload.common.secret_words import without_secrets
from nodectl.payload.jobs.standing import COLLECTIVES, UNKNOWN, doing, in_collective
from nodectl.transport.base import Transport

_TIMEOUT_S = 45.0
_MOST_NAMED, _MOST_PLACES = 12, 4


def look_at(transport: Transport, hosts: Sequence[Host], job_id: str, forks: int) -> Look:
    """Ask every host at once; takes about three seconds."""
    answers = ask(transport, hosts, lambda _: ["examine", job_id], forks=forks, timeout_s=_TIMEOUT_S, kind=ExamineRow)
    return judge({host: rows[0] for host, rows in answers.lines.items() if rows}, answers.problems)


def judge(reports: Mapping[str, Mapping[str, Any]], problems: Mapping[str, str], *, empty: bool = False) -> Look:
    """Judge the hosts' reports, given by host's name; `empty`: others answered, and had nothing to report."""
    ranks = sorted(
        (_rank(host, row) for host, report in reports.items() for row in report["ranks"]), key=lambda rank: rank.rank
    )
    missing = [rank for rank in ranks if not rank.waits and not rank.doing.startswith(UNKNOWN)]
    missing = missing or [rank for rank in ranks if not rank.waits]
    alike = Counter(rank.doing for rank in missing)
    missing.sort(key=lambda rank: (rank.moved, alike[rank.doing], rank.rank))  # the odd one first
    calls, lines = _flight({host: report.get("flight", {}) for host, report in reports.items()})
    verdict, named = _by_calls(calls) or _verdict(ranks, missing, calls)
    ended = sorted({rank for report in reports.values() for rank in report.get("ended", ())})
    if missing and len(missing) == len(ranks) and (ended or empty):
        others = f"rank {numbers(ended, _MOST_NAMED)} ended before" if ended else "no other rank lived"
        verdict, named = f"{_by_place(missing)}; {others}", tuple(rank.rank for rank in missing)
    evidence = [
        *lines,
        *_ras(reports),
        *_counters(reports),
        *(f"{host}: {line}" for host, report in reports.items() for line in report["xids"]),
        *(line for host, report in reports.items() for line in _stacks_told_by(host, report)),
    ]
    return Look(tuple(ranks), verdict, tuple(named), tuple(map(without_secrets, evidence)), problems)


def _rank(host: str, row: Mapping[str, Any]) -> RankNow:
    stack = tuple(map(str, row["stack"]))
    # the outermost frame of torch's communication is the function that the script called
    calls = [frame for frame in stack if COLLECTIVES.search(frame) and not frame.endswith(" wrapper")]
    call = calls[-1] if calls else ""
    return RankNow(
        host,
        int(row["rank"]),
        bool(stack) and in_collective(row),
        without_secrets(doing(row)),
        call.rpartition(" ")[2],
        bool(row["moved"]),
        float(row["cpu"]),
        row["output_age_s"],
        stack,
    )


# calls that need a counterpart on another rank
_POINT_TO_POINT = {
    **dict.fromkeys(("recv", "recv_object_list"), "each waits for another to send, and none does"),
    **dict.fromkeys(("send", "send_object_list"), "each waits for another to receive, and none does"),
}


def _by_calls(calls: Calls) -> tuple[str, tuple[int, ...]] | None:
    """Return the judgement by flight recorders on ranks that can never go on; None if they do not show any."""
    unlike, circle = calls.unlike(), calls.circle
    odd, usual, _ = odd_one(unlike)
    if odd is not None:
        return f"rank {odd.rank} called {odd.words}, the others {usual}: they will never meet", (odd.rank,)
    if circle:
        circle_lines = "; ".join(calls.line(rank) for rank in circle[:_MOST_NAMED])
        return f"rank {numbers(circle, _MOST_NAMED)} wait for each other, and none can go on: {circle_lines}", circle
    return None


def _verdict(ranks: Sequence[RankNow], missing: Sequence[RankNow], calls: Calls) -> tuple[str, tuple[int, ...]]:
    waiting = [rank for rank in ranks if rank.waits]
    if not ranks:
        return "no rank was found", ()
    if all(not rank.stack and rank.doing.startswith(UNKNOWN) for rank in ranks):
        return "what the ranks do is not known: their Python writes no stacks, and there is no py-spy", ()
    if waiting and missing:
        return _for_the_missing(waiting, missing), tuple(rank.rank for rank in missing)
    if waiting and calls.behind:
        late = numbers(calls.behind, _MOST_NAMED)
        return f"all ranks are in collectives; by torch's flight recorder rank {late} is behind", calls.behind
    if waiting and calls.stuck_line:
        return calls.stuck_line, ()
    if waiting:
        return _all_waiting(ranks, waiting)
    return "no rank waits in a collective", ()


def _for_the_missing(waiting: Sequence[RankNow], missing: Sequence[RankNow]) -> str:
    moves = "; it moved between two looks, so it may come yet" if any(rank.moved for rank in missing) else ""
    wait = "waits" if len(waiting) == 1 else "wait"
    called = ", ".join(sorted({rank.call for rank in waiting}))
    for_whom = f"for {_by_place(missing)}{moves}"
    if len({(rank.call, rank.doing) for rank in waiting}) == 1:
        return f"{names(waiting)} {wait} in {called} {for_whom}"
    return f"{names(waiting)} {wait} in {called} at different places, perhaps {for_whom}; {_GROUPS}"


def _by_place(ranks: Sequence[RankNow]) -> str:
    """Return `rank 3: it is at …; rank 1, 2 are in barrier (it is at …)`, of the first places."""
    groups: dict[tuple[str, str], list[RankNow]] = {}
    for rank in ranks:
        groups.setdefault((rank.call if rank.waits else "", rank.doing.strip()), []).append(rank)
    more = len(groups) - _MOST_PLACES
    parts = [
        f"{names(alike)} {'is' if len(alike) == 1 else 'are'} in {call} ({words})"
        if call
        else f"{names(alike)}: {words}"
        for (call, words), alike in list(groups.items())[:_MOST_PLACES]
    ]
    return "; ".join([*parts, *([f"and {counted(more, 'other place')}"] if more > 0 else [])])


# a stack shows no arguments, so the process group is not known
_GROUPS = "or for each other, where their calls are of different process groups, which stacks do not tell"


def _all_waiting(ranks: Sequence[RankNow], waiting: Sequence[RankNow]) -> tuple[str, tuple[int, ...]]:
    places = Counter((rank.call, rank.doing) for rank in waiting)
    if any(rank.moved for rank in ranks):
        return "all ranks are in collectives, and move", ()
    if len(places) > 1:
        (usual, most), (_, second), *_ = places.most_common(2)
        odd = [rank for rank in waiting if most == second or (rank.call, rank.doing) != usual]
        others = "" if most == second else f", the others in {usual[0]} ({usual[1].strip()})"
        return f"{_by_place(odd)}{others}: perhaps they never meet; {_GROUPS}", tuple(rank.rank for rank in odd)
    call = waiting[0].call
    why = _POINT_TO_POINT.get(call, "the network between them, a GPU, or different sizes, perhaps")
    return f"all ranks are in {call} and none moves: {why}", ()


def names(ranks: Sequence[RankNow]) -> str:
    """Return `rank 3`, or `rank 0, 1, 2 and 5 more`."""
    return f"rank {numbers([rank.rank for rank in ranks], _MOST_NAMED)}"


def _flight(dumps: Mapping[str, Mapping[str, Any]]) -> tuple[Calls, list[str]]:
    lines = [
        f"{host}: flight recorder of rank {rank}: {dump['problem']}"
        for host, by_rank in dumps.items()
        for rank, dump in by_rank.items()
        if "problem" in dump
    ]
    calls = read_calls(
        {int(rank): dump.get("groups", {}) for by_rank in dumps.values() for rank, dump in by_rank.items()}
    )
    return calls, [*lines, *(f"flight recorder: {calls.line(rank)}" for rank in sorted(calls.at)[:_MOST_NAMED])]


def _ras(reports: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines: dict[str, list[str]] = {}
    for host, report in reports.items():
        if report["ras"]:
            lines.setdefault(_ras_words(str(report["ras"])), []).append(host)
    return [f"NCCL RAS on {', '.join(hosts[:_MOST_NAMED])}: {summary}" for summary, hosts in lines.items()]


def _ras_words(text: str) -> str:
    try:
        ras = parse_ncclras(text)
    except ParseError as error:
        return f"its answer cannot be read: {error.message}"
    worst = sorted({item.status for item in ras.communicators}) or ["no communicators"]
    parts = [f"{', '.join(worst)} of {counted(len(ras.communicators), 'communicator')}"]
    if ras.outliers:
        parts.append(
            "behind or ahead: " + ", ".join(f"rank {item.rank} ({item.host})" for item in ras.outliers[:_MOST_NAMED])
        )
    if ras.missing_ranks:
        parts.append(
            "missing: " + ", ".join(f"rank {item.rank} ({item.host})" for item in ras.missing_ranks[:_MOST_NAMED])
        )
    if ras.dead:
        parts.append("dead: " + ", ".join(f"process {item.pid} on {item.host}" for item in ras.dead[:_MOST_NAMED]))
    if worst == ["OK"]:
        parts.append("it has been seen to say so of jobs that hung")
    return "; ".join(parts)


def _counters(reports: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = []
    for host, report in reports.items():
        rates = [f"{name} {rate / MIB:.1f} MiB/s" for name, rate in report["network"].items()]
        gpus = [
            f"GPU {_plain(gpu['index'])} {_plain(gpu['use_percent'])} % {_plain(gpu['power_w'])} W"
            for gpu in report["gpus"][:_MOST_NAMED]
        ]
        if rates or gpus:
            lines.append(f"{host}: {', '.join([*rates, *gpus])}")
    return lines


def _stacks_told_by(host: str, report: Mapping[str, Any]) -> list[str]:
    ways = {way: [row["rank"] for row in report["ranks"] if row.get("by") == way] for way in ("py-spy", "signal")}
    told = "; ".join(f"rank {numbers(ranks, _MOST_NAMED)} by {way}" for way, ranks in ways.items() if ranks)
    moment = f", {clock(report['times']['ranks'])}" if "ranks" in report.get("times", {}) else ""
    return [f"{host}{moment}: stacks of {told}"] if told else []


def clock(seconds: float) -> str:
    """Return the time of day of a moment, by this machine's zone."""
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def _plain(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"
