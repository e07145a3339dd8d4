"""From a trial to what it proposes: the candidate that won, as it was tried."""

from __future__ import annotations

from nodectl.errors import NodectlError, UsageError
from nodectl.model.trial import Side, Trial
from nodectl.model.verdict import Outcome
from nodectl.trials.propose import Proposal


def proposal_of(trial: Trial, profile: str | None, group: str = "") -> Proposal:
    """The proposal of the named candidate, or of the only one that is better; NodectlError where none is."""
    side = _named(trial, profile) if profile else _winner(trial)
    if not trial.complete:
        raise NodectlError(f"the trial {trial.id} ended early: {trial.reason}", "try it again")
    if side.run_with and not side.overrides:
        told = ", ".join(f"{key} {value}" for key, value in side.run_with.items())
        raise NodectlError(f"nothing of it is set on a host: {told}", "run jobs so; see `nodectl launch --help`")
    by_profile = side.overrides is None
    return Proposal(
        profile=side.profile or side.label if by_profile else side.label,
        baseline=trial.baseline.label,
        hosts=trial.hosts,
        verdicts=tuple(each for each in trial.verdicts if each.profile == side.label),
        series=tuple(each for each in trial.series if each.profile == side.label),
        overrides=side.overrides,
        group=group,
        over=None if by_profile else side.profile,
        run_with=side.run_with,
    )


def _named(trial: Trial, profile: str) -> Side:
    for each in trial.candidates:
        if each.label == profile:
            return each
    known = ", ".join(each.label for each in trial.candidates)
    raise UsageError(f"the trial {trial.id} had no candidate {profile!r}", f"one of: {known}")


def _winner(trial: Trial) -> Side:
    wins = [each.profile for each in trial.summaries if each.verdict is Outcome.BETTER]
    if len(wins) > 1:
        raise UsageError(f"several are better than {trial.baseline.label}: {', '.join(wins)}", "choose with --profile")
    if wins:
        return _named(trial, wins[0])
    judged = [each.profile for each in trial.summaries]
    if len(judged) == 1:  # why it is not proposed is said by what looks at its verdicts
        return _named(trial, judged[0])
    raise NodectlError(f"nothing is better than {trial.baseline.label}", "there is nothing to propose")
