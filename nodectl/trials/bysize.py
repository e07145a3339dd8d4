"""NCCL's algorithm, protocol and channels by collective and size: what is tried, what won, and how NCCL is told.

The rows are those of NCCL's example tuner plug-in (NCCL 2.30.7, plugins/tuner/example).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from nodectl.errors import NodectlError, UsageError
from nodectl.model.host import Host
from nodectl.model.trial import Side, Trial
from nodectl.model.verdict import Outcome, Verdict
from nodectl.profiles.nccl import version_key
from nodectl.profiles.overrides import NCCL_ENV
from nodectl.trials.propose import Proposal
from nodectl.trials.sides import resolved_as

# by NCCL's names
FUNCTIONS = {name: name.replace("_", "") for name in ("all_reduce", "all_gather", "reduce_scatter", "broadcast")}
SIZES = tuple(4**power for power in range(6, 15))
TUNER_FILE = "/etc/nccl_tuner_nodectl.conf"
_PROTOCOLS = ("ll", "ll128", "simple")
# which collectives an algorithm is made for, and with which protocols (NCCL 2.30.7, src/graph/tuning.cc)
_ALGORITHMS = {
    "ring": (tuple(FUNCTIONS), _PROTOCOLS),
    "tree": (("all_reduce",), _PROTOCOLS),
    "nvls": (("all_reduce", "all_gather", "reduce_scatter"), ("simple",)),
    "pat": (("all_gather", "reduce_scatter"), ("simple",)),
}
_CHANNELS = (4, 8, 16, 32)
_OWN_CHANNELS = -1
_LOWEST, _HIGHEST = "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"
_SET_HERE = ("NCCL_ALGO", "NCCL_PROTO", _LOWEST, _HIGHEST, "NCCL_TUNER_PLUGIN", "NCCL_TUNER_CONFIG_FILE")
# the first NCCL that takes a list by collective
_SINCE = "2.24"
_DEBUG = {"allow_debug_variables": True}


def sides_by_size(collectives: Sequence[str], against: Side) -> tuple[Side, ...]:
    """Return the candidates: each algorithm with each protocol for the collectives that it carries, then channels."""
    tried = {
        "/".join(names): _forced({FUNCTIONS[name]: names for name in collectives if name in carried})
        for algorithm, (carried, protocols) in _ALGORITHMS.items()
        for names in product([algorithm], protocols)
        if {*carried} & {*collectives}
    }
    tried |= {f"channels {count}": {_LOWEST: str(count), _HIGHEST: str(count)} for count in _CHANNELS}
    return tuple(Side(label, against.profile, {"nccl": env, **_DEBUG}) for label, env in tried.items())


def _forced(choices: dict[str, tuple[str, str]]) -> dict[str, str]:
    """Return the variables by which NCCL takes an algorithm and a protocol for functions, whatever the size."""
    return {
        "NCCL_ALGO": ";".join(f"{name}:{algorithm.replace('_', '')}" for name, (algorithm, _) in choices.items()),
        "NCCL_PROTO": ";".join(f"{name}:{protocol}" for name, (_, protocol) in choices.items()),
    }


def refuse_conflict(against: Side, hosts: Sequence[Host], folders: Sequence[Path]) -> None:
    """Raise UsageError where a host's settings choose for NCCL already, or its NCCL reads no list by collective."""
    for host in hosts:
        resolved = resolved_as(against, host, folders, host.variables.get(NCCL_ENV))
        if set_here := [name for name in _SET_HERE if name in resolved.nccl_env]:
            what = f"{', '.join(set_here)} is set there already, by {against.label} or {NCCL_ENV}"
            raise UsageError(f"{host.name}: {what}", "take it out, or try against another profile: --baseline stock")
        nccl = resolved.stack.nccl
        if nccl and version_key(nccl) < version_key(_SINCE):
            what = f"{host.name}: NCCL {nccl} takes no algorithm by collective, {_SINCE} is the first that does"
            raise UsageError(what, "try it with a newer stack")


class Choice(NamedTuple):
    """One choice of NCCL's, by its log, in the order of the plug-in's lines; -1 channels: as NCCL has it."""

    algorithm: str
    protocol: str
    channels: int
    nodes: int
    ranks: int


@dataclass(frozen=True, slots=True)
class Win:
    """A candidate that is better at a size of a collective."""

    verdict: Verdict
    collective: str
    size_bytes: int
    choice: Choice


def better(trial: Trial) -> list[Win]:
    """Return all that is better; what NCCL's log does not name, or names as the baseline's choice too, is not."""
    channels = {side.label: (side.overrides or {}).get("nccl", {}).get(_HIGHEST) for side in trial.candidates}
    told: dict[tuple[str, str, int], Choice] = {}
    for row in trial.conditions:
        given: Any = row["conditions"]
        label, names = str(row["profile"]), (str(given.get("algorithm")).lower(), str(given.get("protocol")).lower())
        nodes, ranks, size_bytes = given.get("nodes") or 1, given.get("ranks"), given.get("size_bytes")
        is_whole = all(isinstance(number, int) for number in (nodes, ranks, size_bytes))
        # what NCCL's log does not name is None; a name that is none would be ring, or simple, to the plug-in
        if is_whole and all(map(str.isidentifier, names)) and "none" not in names:
            choice = Choice(*names, int(channels.get(label) or _OWN_CHANNELS), nodes, ranks)
            told[label, given.get("collective"), size_bytes] = choice
    wins = []
    for verdict in trial.verdicts:
        place = _collective(verdict.subject), verdict.size_bytes or 0
        taken, stock = told.get((verdict.profile, *place)), told.get((trial.baseline.label, *place))
        if taken and taken != stock and verdict.verdict is Outcome.BETTER and not verdict.fails_more:
            wins.append(Win(verdict, *place, taken))
    return wins


def _collective(subject: str) -> str:
    return next((part for part in subject.split(", ") if part in FUNCTIONS), "")


def best(wins: Sequence[Win]) -> list[Win]:
    """Return of each collective and size the win whose interval ends highest below; ascending."""
    by_place: dict[tuple[str, int], Win] = {}
    for win in sorted(wins, key=lambda win: win.verdict.interval_percent or (0.0, 0.0)):
        by_place[win.collective, win.size_bytes] = win
    return [by_place[place] for place in sorted(by_place)]


def rows(trial: Trial, wins: Sequence[Win]) -> list[str]:
    """Return the plug-in's lines, a size each, for communicators as large as the one that was measured.

    A size reaches half way to the next one measured, by ratio; of what is beyond the outermost nothing is said.
    """
    lines = []
    for win in best(wins):
        measured = {row.size_bytes or 0 for row in trial.series if _collective(row.subject) == win.collective}
        below = max((size for size in measured if size < win.size_bytes), default=None)
        above = min((size for size in measured if size > win.size_bytes), default=win.size_bytes)
        low = win.size_bytes if below is None else math.isqrt(below * win.size_bytes) + 1
        row = (FUNCTIONS[win.collective], low, math.isqrt(win.size_bytes * above), *win.choice)
        lines.append(",".join(map(str, (*row, -1, -1))))
    return lines


def environment(trial: Trial, wins: Sequence[Win]) -> tuple[dict[str, str], list[Win]]:
    """Return variables, which know no size, and what they win: of candidates that lose nowhere where they count."""
    losing = {
        (verdict.profile, collective)
        for verdict in trial.verdicts
        if verdict.is_regression or verdict.verdict is Outcome.UNKNOWN
        for collective in ("", _collective(verdict.subject))
    }
    by_channels = _most([win for win in wins if win.choice.channels > 0 and (win.verdict.profile, "") not in losing])
    safe = [win for win in wins if win.choice.channels < 0 and (win.verdict.profile, win.collective) not in losing]
    kept = [win for name in FUNCTIONS for win in _most([win for win in safe if win.collective == name])]
    if len(by_channels) > len(kept):
        return dict.fromkeys((_LOWEST, _HIGHEST), str(by_channels[0].choice.channels)), by_channels
    return _forced({FUNCTIONS[win.collective]: win.choice[:2] for win in kept}) if kept else {}, kept


def _most(wins: Sequence[Win]) -> list[Win]:
    """Return the wins of the candidate that has most of them, of equals those that gain most."""
    of: dict[str, list[Win]] = defaultdict(list)
    for win in wins:
        of[win.verdict.profile].append(win)
    return max(of.values(), key=lambda own: (len(own), sum(win.verdict.gain_percent or 0.0 for win in own)), default=[])


def proposal_by_size(trial: Trial, group: str, plugin: str | None) -> Proposal:
    """Return what won by size as the plug-in's file, or as variables without one; NodectlError where nothing has."""
    if not trial.complete:
        raise NodectlError(f"the trial {trial.id} ended early: {trial.reason}", "try it again")
    wins = better(trial)
    if plugin:
        # of those that NCCL makes by itself a plug-in takes some, and adds none
        stock: list[Any] = [row["conditions"] for row in trial.conditions if row["profile"] == trial.baseline.label]
        own = min((row["channels"] for row in stock if isinstance(row.get("channels"), int)), default=0)
        wins = [win for win in wins if win.choice.channels <= own]
    if not wins:
        what = f"no size is better than {trial.baseline.label} by another choice of NCCL's: nothing is written"
        raise NodectlError(what, "more --pairs see smaller gains; gloo feels none of this")
    env, kept = environment(trial, wins)
    if plugin:
        env, kept = {"NCCL_TUNER_PLUGIN": plugin, "NCCL_TUNER_CONFIG_FILE": TUNER_FILE}, best(wins)
    if not env:
        what = "what wins at a size loses at another, and a variable knows no size: nothing is written"
        raise NodectlError(what, "name a tuner plug-in: --plugin")
    places = {(win.verdict.profile, win.verdict.subject, win.size_bytes) for win in kept}
    return Proposal(
        profile="by size",
        baseline=trial.baseline.label,
        hosts=trial.hosts,
        verdicts=tuple(win.verdict for win in kept),
        series=tuple(row for row in trial.series if (row.profile, row.subject, row.size_bytes) in places),
        overrides={"nccl": env, **({} if plugin else _DEBUG)},
        group=group,
        over=trial.baseline.profile,
        tuner=tuple(rows(trial, wins)) if plugin else (),
    )
