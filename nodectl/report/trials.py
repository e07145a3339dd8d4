"""A trial as tables: what won, what lost at which size, and what was seen on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.common.units import format_size
from nodectl.model.trial import Trial
from nodectl.model.verdict import Outcome, Summary, Verdict
from nodectl.report.table import fitted

_SHOWN_HOSTS = 4
# if nobody says how wide the terminal is
_COLUMNS = 80
# single paths or hosts that are shown where they are many
_MOST_SINGLE = 10


@dataclass(frozen=True, slots=True)
class Names:
    """`shared` are, for each probe, the conditions that all its verdicts have."""

    shared: dict[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, verdicts: Iterable[Verdict]) -> Names:
        """Collect the names from all verdicts of a trial."""
        shared: dict[str, frozenset[str]] = {}
        for verdict in verdicts:
            conditions = frozenset(_parts(verdict.subject)[1:])
            shared[verdict.probe] = shared.get(verdict.probe, conditions) & conditions
        return cls(shared)

    def short(self, probe: str, subject: str) -> str:
        """Return the place and the conditions that differ; a collective or a kernel, which is a bare word, always."""
        where, *conditions = _parts(subject)
        common = self.shared.get(probe, frozenset())
        kept = [condition for condition in conditions if condition not in common or " " not in condition]
        count = where.count(",") + 1
        return ", ".join([counted(count, "host") if count > _SHOWN_HOSTS else where, *kept])


def _parts(subject: str) -> list[str]:
    return subject.split(", ")


# what an operator must not overlook
_MARK = "  <--"


def trial_text(trial: Trial, width: int = _COLUMNS, *, everything: bool = False) -> str:
    """Return a trial's text, its outcome last; with `everything` each path and host, not only the worst."""
    state = "complete" if trial.complete else f"ended early: {trial.reason}"
    judged_by = "" if trial.judge_by == "speed" else f", judged by {trial.judge_by}"
    parts = [
        f"trial {trial.id}: {fold(sorted(trial.hosts))}, {counted(trial.pairs, 'pair')}{judged_by}, {state}",
        *([verdicts_table(trial.verdicts, width, everything=everything)] if trial.verdicts else []),
        "\n".join(line for summary in trial.summaries for line in summary_lines(summary, trial.baseline)),
    ]
    return "\n\n".join(part for part in parts if part)


def verdicts_table(verdicts: Sequence[Verdict], width: int = _COLUMNS, *, everything: bool = False) -> str:
    """Return a line for each thing measured; without `everything` only the worst of what is part of a mean."""
    names = Names.of(verdicts)
    header = ("PROFILE", "PROBE", "WHAT", "SIZE", "VERDICT", "GAIN", "95 % INTERVAL", "NOISE", "PAIRS")
    singles = [verdict for verdict, mean in _with_mean(verdicts) if mean is not None]
    worst = _largest_losses_first(verdict for verdict in singles if verdict.is_regression)[:_MOST_SINGLE]
    left = set() if everything else set(map(id, singles)) - set(map(id, worst))
    rows = [_row(verdict, names) for verdict in verdicts if id(verdict) not in left]
    table = fitted([header, *rows], width, header.index("WHAT"))
    return f"{table}\n({len(left)} single paths or hosts are not shown: --all)" if left else table


def _largest_losses_first(verdicts: Iterable[Verdict]) -> list[Verdict]:
    return sorted(
        verdicts,
        key=lambda verdict: (
            not verdict.is_regression,
            verdict.gain_percent is not None,
            verdict.gain_percent or 0.0,
        ),
    )


def _with_mean(verdicts: Sequence[Verdict]) -> Iterator[tuple[Verdict, Verdict | None]]:
    mean: Verdict | None = None
    for verdict in verdicts:
        yield verdict, mean if mean is not None and not verdict.is_mean and mean.kind == verdict.kind else None
        mean = verdict if verdict.is_mean else mean


def _row(verdict: Verdict, names: Names) -> tuple[str, ...]:
    is_told = None not in (verdict.gain_percent, verdict.interval_percent, verdict.noise_percent)
    low, high = verdict.interval_percent or (0.0, 0.0)
    failed = f", {verdict.failed_candidate} failed" if verdict.failed_candidate else ""
    # the same thing has a speed in another row
    energy = verdict.unit if verdict.unit.startswith("J/") else ""
    return (
        verdict.profile,
        verdict.probe,
        ", ".join(filter(None, [names.short(verdict.probe, verdict.subject), energy])),
        "-" if verdict.size_bytes is None else format_size(verdict.size_bytes),
        f"{verdict.verdict}{_MARK if verdict.is_regression else ''}",
        f"{verdict.gain_percent:+.1f} %" if is_told else "-",
        f"{low:+.1f} to {high:+.1f} %" if is_told else "-",
        f"{verdict.noise_percent:.1f} %" if is_told else "-",
        f"{verdict.pairs}{failed}",
    )


def summary_lines(summary: Summary, baseline: str) -> list[str]:
    """Return what became of one profile, and why some things have no figure; the table has the others."""
    meaning = {
        Outcome.BETTER: "is better, and nowhere worse",
        Outcome.NOISE: "makes no difference that can be told from noise",
        Outcome.WORSE: "is WORSE somewhere",
        Outcome.UNKNOWN: "is undecided",
    }[summary.verdict]
    without = dict.fromkeys((*summary.regressions, *summary.undecided))
    reasons = Counter(f"{verdict.probe}: {verdict.reason}" for verdict in without if verdict.gain_percent is None)
    return [
        f"{summary.profile} against {baseline}: {summary.verdict}: {meaning}",
        *(f"  {reason}" + (f" ({number} times)" if number > 1 else "") for reason, number in reasons.items()),
    ]


def trials_table(trials: Sequence[Trial], width: int = _COLUMNS) -> str:
    """Return a line for each trial: hosts, probes, state, and the verdict on each profile."""
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
    return fitted([("ID", "STARTED (UTC)", "HOSTS", "PROBES", "STATE", "VERDICTS"), *rows], width)
