"""A trial as tables: what won, what lost at which size, and what was seen on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nodectl.common.nodeset import fold
from nodectl.common.units import format_size, format_size_rounded
from nodectl.model.trial import Ranked, Side, Trial
from nodectl.model.verdict import Crossover, Outcome, Summary, Verdict
from nodectl.report.table import aligned

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


_SHOWN = 10
# what an operator must not overlook
_MARK = "  <--"


def trial_text(trial: Trial) -> str:
    """All of it, the outcome last, where a terminal shows it."""
    names = Names.of(trial.verdicts)
    state = "complete" if trial.complete else f"ended early: {trial.reason}"
    no_winner = trial.search and trial.complete and not trial.verdicts
    parts = [
        f"trial {trial.id}: {fold(sorted(trial.hosts))}, {trial.pairs} pairs, {state}",
        *([search_table(trial.search)] if trial.search else []),
        *([verdicts_table(trial.verdicts)] if trial.verdicts else []),
        "\n".join(crossover_line(crossover, names) for crossover in trial.crossovers),
        f"no candidate that was tried is better than {trial.baseline.label}" if no_winner else "",
        "\n".join(line for summary in trial.summaries for line in summary_lines(summary, trial.baseline, names)),
    ]
    return "\n\n".join(part for part in parts if part)


def verdicts_table(verdicts: Sequence[Verdict]) -> str:
    """A line for each thing measured; paths that say the same as their mean are left to the JSON."""
    names = Names.of(verdicts)
    header = ("PROFILE", "PROBE", "WHAT", "SIZE", "VERDICT", "GAIN", "95 % INTERVAL", "NOISE", "PAIRS")
    rows, hidden = [], 0
    for verdict, inside in _inside(verdicts):
        if inside is not None and verdict.verdict in (inside.verdict, Outcome.NOISE) and not verdict.is_regression:
            hidden += 1
        else:
            rows.append(_row(verdict, names))
    table = aligned([header, *rows])
    return table + (
        f"\n({hidden} single paths or hosts say nothing else than their mean: --output json)" if hidden else ""
    )


def _inside(verdicts: Sequence[Verdict]) -> Iterator[tuple[Verdict, Verdict | None]]:
    """Each with the mean that it is part of, which stands before it."""
    mean: Verdict | None = None
    for verdict in verdicts:
        yield verdict, mean if mean is not None and not verdict.is_mean and mean.kind == verdict.kind else None
        mean = verdict if verdict.is_mean else mean


def _row(verdict: Verdict, names: Names) -> tuple[str, ...]:
    known = None not in (verdict.gain_percent, verdict.interval_percent, verdict.noise_percent)
    low, high = verdict.interval_percent or (0.0, 0.0)
    failed = f", {verdict.failed_candidate} failed" if verdict.failed_candidate else ""
    return (
        verdict.profile,
        verdict.probe,
        names.short(verdict.probe, verdict.subject),
        "-" if verdict.size_bytes is None else format_size(verdict.size_bytes),
        f"{verdict.verdict}{_MARK if verdict.is_regression else ''}",
        f"{verdict.gain_percent:+.1f} %" if known else "-",
        f"{low:+.1f} to {high:+.1f} %" if known else "-",
        f"{verdict.noise_percent:.1f} %" if known else "-",
        f"{verdict.pairs}{failed}",
    )


def crossover_line(crossover: Crossover, names: Names) -> str:
    """`nccl all_reduce: tree below 256 KiB, ring from there on (128 KiB to 512 KiB)`."""
    low, high = map(format_size_rounded, crossover.interval_bytes)
    where = f"{crossover.probe} {names.short(crossover.probe, crossover.subject)}".strip()
    size = format_size_rounded(crossover.size_bytes)
    return f"{where}: {crossover.below} below {size}, {crossover.above} above ({low} to {high})"


def summary_lines(summary: Summary, baseline: Side, names: Names) -> list[str]:
    """What became of one profile, with every regression."""
    words = {
        Outcome.BETTER: "is better, and nowhere worse",
        Outcome.NOISE: "makes no difference that can be told from noise",
        Outcome.WORSE: "is WORSE somewhere",
        Outcome.UNKNOWN: "is undecided",
    }[summary.verdict]
    lines = [f"{summary.profile} against {baseline.label}: {summary.verdict}: {words}"]
    lines += [f"  worse: {_told(verdict, names)}" for verdict in summary.regressions]
    if summary.regressions:
        lines += [f"  better: {_told(verdict, names)}" for verdict in summary.wins]
    lines += [
        f"  undecided: {_told(verdict, names)}" for verdict in summary.undecided if verdict not in summary.regressions
    ]
    return lines


def _told(verdict: Verdict, names: Names) -> str:
    subject = names.short(verdict.probe, verdict.subject)
    where = " ".join(
        filter(None, [verdict.probe, subject, format_size(verdict.size_bytes) if verdict.size_bytes else ""])
    )
    if verdict.gain_percent is None:
        return f"{where}: {verdict.reason}"
    failed = f", failed {verdict.failed_candidate} times" if verdict.failed_candidate else ""
    return f"{where} {verdict.gain_percent:+.1f} %{failed}"


def search_table(ranking: Sequence[Ranked]) -> str:
    """The best candidates of a search, by what was seen of them on the way."""
    rows = [
        (str(place), candidate.label, _seen(candidate), str(candidate.pairs))
        for place, candidate in enumerate(ranking[:_SHOWN], start=1)
    ]
    more = f"\n(and {len(ranking) - _SHOWN} more)" if len(ranking) > _SHOWN else ""
    return aligned([("", "CANDIDATE", "SEEN", "PAIRS"), *rows]) + more


def _seen(candidate: Ranked) -> str:
    if candidate.failed:
        return "failed"
    return "-" if candidate.gain_percent is None else f"{candidate.gain_percent:+.1f} %"


def trials_table(trials: Sequence[Trial]) -> str:
    """A line for each trial: hosts, probes, state, and the verdict on each profile."""
    rows = [
        (
            trial.id,
            trial.started.replace("T", " ")[:19],
            fold(sorted(trial.hosts)),
            ",".join(trial.probes),
            "complete" if trial.complete else "ended early",
            "; ".join(f"{summary.profile} {summary.verdict}" for summary in trial.summaries) or "-",
        )
        for trial in trials
    ]
    return aligned([("ID", "STARTED (UTC)", "HOSTS", "PROBES", "STATE", "VERDICTS"), *rows])
