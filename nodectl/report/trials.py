"""A trial as tables: what won, what lost at which size, and what was seen on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from nodectl.common.units import format_size, format_size_rounded
from nodectl.model.trial import Ranked, Side, Trial
from nodectl.model.verdict import Crossover, Outcome, Summary, Verdict
from nodectl.report.facts import aligned

_SHOWN_HOSTS = 4


@dataclass(frozen=True, slots=True)
class Names:
    """`shared` are, for each probe, the conditions that all its verdicts have."""

    shared: dict[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, verdicts: Iterable[Verdict]) -> Names:
        """From all verdicts of a trial."""
        shared: dict[str, frozenset[str]] = {}
        for verdict in verdicts:
            conditions = frozenset(_parts(verdict.subject)[1:])
            shared[verdict.probe] = shared.get(verdict.probe, conditions) & conditions
        return cls(shared)

    def short(self, probe: str, subject: str) -> str:
        """Where, and of the conditions those that differ; a collective or a kernel, which is a bare word, always."""
        where, *conditions = _parts(subject)
        common = self.shared.get(probe, frozenset())
        kept = [condition for condition in conditions if condition not in common or " " not in condition]
        return ", ".join([_few(where), *kept])


def _parts(subject: str) -> list[str]:
    return subject.split(", ")


def _few(where: str) -> str:
    count = where.count(",") + 1
    return f"{count} hosts" if count > _SHOWN_HOSTS else where


Fold = Callable[[Sequence[str]], str]
_SHOWN = 10
# what an operator must not overlook
_MARK = "  <--"


def trial_text(trial: Trial, fold: Fold) -> str:
    """All of it, the outcome last, where a terminal shows it."""
    names = Names.of(trial.verdicts)
    state = "complete" if trial.complete else f"ended early: {trial.reason}"
    parts = [
        f"trial {trial.id}: {fold(sorted(trial.hosts))}, {trial.pairs} pairs, {state}",
        *([search_table(trial.search)] if trial.search else []),
        *([verdicts_table(trial.verdicts)] if trial.verdicts else []),
        "\n".join(crossover_line(crossover, names) for crossover in trial.crossovers),
        _without_winner(trial),
        "\n".join(line for summary in trial.summaries for line in summary_lines(summary, trial.baseline, names)),
    ]
    return "\n\n".join(part for part in parts if part)


def _without_winner(trial: Trial) -> str:
    if not trial.search or trial.verdicts or not trial.complete:
        return ""
    return f"no candidate that was tried is better than {trial.baseline.label}"


def verdicts_table(verdicts: Sequence[Verdict]) -> str:
    """A line for each thing measured; paths that say the same as their mean are left to the JSON."""
    names = Names.of(verdicts)
    header = ("PROFILE", "PROBE", "WHAT", "SIZE", "VERDICT", "GAIN", "95 % INTERVAL", "NOISE", "PAIRS")
    rows, hidden = [], 0
    for each, inside in _inside(verdicts):
        if inside is not None and inside.verdict is each.verdict and not each.is_regression:
            hidden += 1
        else:
            rows.append(_row(each, names))
    table = aligned([header, *rows])
    return table + (f"\n({hidden} single paths or hosts say the same as their mean: --output json)" if hidden else "")


def _inside(verdicts: Sequence[Verdict]) -> list[tuple[Verdict, Verdict | None]]:
    """Each with the mean that it is part of, which stands before it."""
    found: list[tuple[Verdict, Verdict | None]] = []
    mean: Verdict | None = None
    for verdict in verdicts:
        if verdict.subject.startswith("mean of "):
            mean = verdict
            found.append((verdict, None))
        else:
            same = mean is not None and _kind(mean) == _kind(verdict)
            found.append((verdict, mean if same else None))
    return found


def _kind(each: Verdict) -> tuple[object, ...]:
    return each.profile, each.probe, each.unit, each.size_bytes, each.subject.partition(", ")[2]


def _row(each: Verdict, names: Names) -> tuple[str, ...]:
    known = each.gain_percent is not None and each.interval_percent is not None and each.noise_percent is not None
    low, high = each.interval_percent or (0.0, 0.0)
    failed = f", {each.failed_candidate} failed" if each.failed_candidate else ""
    return (
        each.profile,
        each.probe,
        names.short(each.probe, each.subject),
        "-" if each.size_bytes is None else format_size(each.size_bytes),
        f"{each.verdict}{_MARK if each.is_regression else ''}",
        f"{each.gain_percent:+.1f} %" if known else "-",
        f"{low:+.1f} to {high:+.1f} %" if known else "-",
        f"{each.noise_percent:.1f} %" if known else "-",
        f"{each.pairs}{failed}",
    )


def crossover_line(each: Crossover, names: Names) -> str:
    """`nccl all_reduce: tree below 256 KiB, ring from there on (128 KiB to 512 KiB)`."""
    low, high = map(format_size_rounded, each.interval_bytes)
    where = f"{each.probe} {names.short(each.probe, each.subject)}".strip()
    return f"{where}: {each.below} below {format_size_rounded(each.size_bytes)}, {each.above} above ({low} to {high})"


def summary_lines(each: Summary, baseline: Side, names: Names) -> list[str]:
    """What became of one profile, with every regression."""
    told = {
        Outcome.BETTER: "is better, and nowhere worse",
        Outcome.NOISE: "makes no difference that can be told from noise",
        Outcome.WORSE: "is WORSE somewhere",
        Outcome.UNKNOWN: "is undecided",
    }[each.verdict]
    lines = [f"{each.profile} against {baseline.label}: {each.verdict}: {told}"]
    lines += [f"  worse: {_told(one, names)}" for one in each.regressions]
    if each.regressions:
        lines += [f"  better: {_told(one, names)}" for one in each.wins]
    lines += [f"  undecided: {_told(one, names)}" for one in each.undecided if one not in each.regressions]
    return lines


def _told(each: Verdict, names: Names) -> str:
    what = names.short(each.probe, each.subject)
    where = " ".join(filter(None, [each.probe, what, format_size(each.size_bytes) if each.size_bytes else ""]))
    if each.gain_percent is None:
        return f"{where}: {each.reason}"
    failed = f", failed {each.failed_candidate} times" if each.failed_candidate else ""
    return f"{where} {each.gain_percent:+.1f} %{failed}"


def search_table(found: Sequence[Ranked]) -> str:
    """The best candidates of a search, by what was seen of them on the way."""
    rows = [
        (
            str(place),
            each.label,
            "failed" if each.failed else "-" if each.gain_percent is None else f"{each.gain_percent:+.1f} %",
            str(each.pairs),
        )
        for place, each in enumerate(found[:_SHOWN], start=1)
    ]
    more = f"\n(and {len(found) - _SHOWN} more)" if len(found) > _SHOWN else ""
    return aligned([("", "CANDIDATE", "SEEN", "PAIRS"), *rows]) + more


def trials_table(found: Sequence[Trial], fold: Fold) -> str:
    """A line for each trial."""
    rows = [
        (
            each.id,
            each.started.replace("T", " ")[:19],
            fold(sorted(each.hosts)),
            ",".join(each.probes),
            "complete" if each.complete else "ended early",
            "; ".join(f"{one.profile} {one.verdict}" for one in each.summaries) or "-",
        )
        for each in found
    ]
    return aligned([("ID", "STARTED (UTC)", "HOSTS", "PROBES", "STATE", "VERDICTS"), *rows])
