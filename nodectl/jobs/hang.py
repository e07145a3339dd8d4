"""What the ranks of a running job do at this moment, and who waits for whom: one look at all hosts, judged together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from nodectl.common.counting import counted
from nodectl.common.units import MIB
from nodectl.errors import ParseError
from nodectl.jobs.nodes import ask
from nodectl.model.host import Host
from nodectl.model.look import Look, RankNow
from nodectl.parsers.nccl.ncclras import parse_ncclras
from nodectl.payload.jobs.standing import COLLECTIVES, doing, in_collective
from nodectl.transport.base import Transport

_TIMEOUT_S = 45.0
_MOST_NAMED = 12


def look_at(transport: Transport, hosts: Sequence[Host], job_id: str, forks: int) -> Look:
    """Ask every host at once; takes about three seconds."""
    answers = ask(transport, hosts, lambda _: ["examine", job_id], forks=forks, timeout_s=_TIMEOUT_S)
    return judge({host: rows[0] for host, rows in answers.lines.items() if rows}, answers.problems)


def judge(told: Mapping[str, Mapping[str, Any]], problems: Mapping[str, str]) -> Look:
    """The verdict over what the hosts told, by host."""
    ranks = sorted(
        (_rank(host, row) for host, said in told.items() for row in said["ranks"]), key=lambda each: each.rank
    )
    missing = [each for each in ranks if not each.waits and (each.stack or "stopped" in each.doing)]
    behind, lines = _flight({host: said.get("flight", {}) for host, said in told.items()})
    verdict, named = _verdict(ranks, missing, behind)
    evidence = [
        *lines,
        *_ras(told),
        *_counters(told),
        *(f"{host}: {line}" for host, said in told.items() for line in said["xids"]),
    ]
    return Look(tuple(ranks), verdict, tuple(named), tuple(evidence), problems)


def _rank(host: str, row: Mapping[str, Any]) -> RankNow:
    stack = tuple(map(str, row["stack"]))
    # of the frames of torch's communication the outermost is what the script called
    calls = [frame for frame in stack if COLLECTIVES.search(frame) and not frame.endswith(" wrapper")]
    call = calls[-1] if calls else ""
    return RankNow(
        host,
        int(row["rank"]),
        bool(stack) and in_collective(row),
        doing(row),
        call.rpartition(" ")[2],
        bool(row["moved"]),
        float(row["cpu"]),
        row["output_age_s"],
        stack,
    )


# of calls that another rank answers with the other half
_POINT_TO_POINT = {
    **dict.fromkeys(("recv", "recv_object_list"), "each waits for another to send, and none does"),
    **dict.fromkeys(("send", "send_object_list"), "each waits for another to receive, and none does"),
}


def _verdict(
    ranks: Sequence[RankNow], missing: Sequence[RankNow], behind: Sequence[int]
) -> tuple[str, tuple[int, ...]]:
    waiting = [each for each in ranks if each.waits]
    if not ranks:
        return "no rank was found", ()
    if all(not each.stack and not missing for each in ranks):
        return "what the ranks do is not known: their Python writes no stacks, and there is no py-spy", ()
    if waiting and missing:
        called = ", ".join(sorted({each.call for each in waiting}))
        first = missing[0]
        others = f" (and {counted(len(missing) - 1, 'other rank')})" if len(missing) > 1 else ""
        moves = "; it moved between two looks, so it may come yet" if any(each.moved for each in missing) else ""
        wait = "waits" if len(waiting) == 1 else "wait"
        text = f"{names(waiting)} {wait} in {called} for rank {first.rank}{others}: {first.doing}{moves}"
        return text, tuple(each.rank for each in missing)
    if waiting and behind:
        return f"all ranks are in collectives; by torch's flight recorder rank {_numbers(behind)} is behind", tuple(
            behind
        )
    if waiting:
        calls = Counter(each.call for each in waiting)
        if len(calls) > 1:
            usual = calls.most_common(1)[0][0]
            odd = [each for each in waiting if each.call != usual]
            text = f"{names(odd)} is in {odd[0].call}, the others are in {usual}: they will never meet"
            return text, tuple(each.rank for each in odd)
        if any(each.moved for each in ranks):
            return "all ranks are in collectives, and move", ()
        call = next(iter(calls))
        why = _POINT_TO_POINT.get(call, "the network between them, or a GPU")
        return f"all ranks are in {call} and none moves: {why}", ()
    return "no rank waits in a collective", ()


def names(ranks: Sequence[RankNow]) -> str:
    """`rank 3`, or `rank 0, 1, 2 and 5 more`."""
    return f"rank {_numbers([each.rank for each in ranks])}"


def _numbers(ranks: Sequence[int]) -> str:
    more = len(ranks) - _MOST_NAMED
    return ", ".join(map(str, ranks[:_MOST_NAMED])) + (f" and {more} more" if more > 0 else "")


def _flight(dumps: Mapping[str, Mapping[str, Any]]) -> tuple[list[int], list[str]]:
    """Ranks that are behind the others in the first process group, and a line for each state of it."""
    groups: dict[str, dict[int, tuple[int, str]]] = {}
    lines = []
    for host, by_rank in dumps.items():
        for rank, dump in by_rank.items():
            if "problem" in dump:
                lines.append(f"{host}: flight recorder of rank {rank}: {dump['problem']}")
            for group, last in dump.get("groups", {}).items():
                groups.setdefault(group, {})[int(rank)] = (int(last["number"]), str(last["collective"]))
    behind: list[int] = []
    for group, last_by_rank in sorted(groups.items()):
        for number, name in sorted(set(last_by_rank.values())):
            at = sorted(rank for rank, last in last_by_rank.items() if last == (number, name))
            lines.append(f"flight recorder, group {group}: rank {_numbers(at)} came to {name} number {number}")
        most = max(number for number, _ in last_by_rank.values())
        behind = behind or sorted(rank for rank, (number, _) in last_by_rank.items() if number < most)
    return behind, lines


def _ras(told: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One line for what NCCL's RAS says, of each answer that differs: it knows all hosts, wherever it is asked."""
    lines: dict[str, list[str]] = {}
    for host, said in told.items():
        if said["ras"]:
            lines.setdefault(_ras_words(str(said["ras"])), []).append(host)
    return [f"NCCL RAS on {', '.join(hosts[:_MOST_NAMED])}: {words}" for words, hosts in lines.items()]


def _ras_words(text: str) -> str:
    try:
        ras = parse_ncclras(text)
    except ParseError as error:
        return f"its answer cannot be read: {error.message}"
    worst = sorted({each.status for each in ras.communicators}) or ["no communicators"]
    words = [f"{', '.join(worst)} of {counted(len(ras.communicators), 'communicator')}"]
    if ras.outliers:
        words.append(
            "behind or ahead: " + ", ".join(f"rank {each.rank} ({each.host})" for each in ras.outliers[:_MOST_NAMED])
        )
    if ras.missing_ranks:
        words.append(
            "missing: " + ", ".join(f"rank {each.rank} ({each.host})" for each in ras.missing_ranks[:_MOST_NAMED])
        )
    if ras.dead:
        words.append("dead: " + ", ".join(f"process {each.pid} on {each.host}" for each in ras.dead[:_MOST_NAMED]))
    if worst == ["OK"]:
        words.append("it has been seen to say so of jobs that hung")
    return "; ".join(words)


def _counters(told: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = []
    for host, said in told.items():
        rates = [f"{name} {rate / MIB:.1f} MiB/s" for name, rate in said["network"].items()]
        gpus = [
            f"GPU {_plain(gpu['index'])} {_plain(gpu['use_percent'])} % {_plain(gpu['power_w'])} W"
            for gpu in said["gpus"][:_MOST_NAMED]
        ]
        if rates or gpus:
            lines.append(f"{host}: {', '.join([*rates, *gpus])}")
    return lines


def _plain(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"
