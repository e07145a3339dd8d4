"""The candidate that won, as an inventory with the evidence beside it; nothing is proposed that has not won."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from nodectl import __version__
from nodectl.common.files import replace_file
from nodectl.common.spelling import meant
from nodectl.errors import NodectlError, UsageError
from nodectl.model.trial import OWN, Series, Trial
from nodectl.model.verdict import Outcome, Verdict
from nodectl.profiles.overrides import OVERRIDES
from nodectl.trials.felt import Setting, as_overrides, named, tried, unfelt
from nodectl.trials.sides import TUNING, merged_overrides
from nodectl.trials.verdict import SPEED, summarise

MARK = "# Proposed by `nodectl tune propose`"
SCHEMA = "nodectl.evidence/1"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A profile that was tried; `hosts` maps each host to the overrides it has.

    `overrides` is the part of it that was measured, over the baseline, if a probe of the trial can feel only a part;
    `unmeasured` is the rest.
    """

    profile: str
    baseline: str
    hosts: Mapping[str, Mapping[str, Any]]
    verdicts: tuple[Verdict, ...]
    series: tuple[Series, ...] = ()
    overrides: Mapping[str, Any] | None = None
    unmeasured: tuple[Setting, ...] = ()
    judge_by: str = SPEED


def propose(proposal: Proposal, path: Path, *, regressions_allowed: bool = False) -> Path:
    """Write the inventory to `path` and the evidence beside it, whose path is returned.

    NodectlError if the tuning has not won. Each file is put in place in one step, the evidence first, so that no
    proposal is without.
    """
    refuse_unproven(proposal, regressions_allowed=regressions_allowed)
    if path.suffix not in (".yml", ".yaml"):
        raise UsageError(f"{path}: an inventory in YAML ends in .yml", "name the file NAME.yml")
    _refuse_foreign(path)
    beside = evidence_path(path)
    text = inventory_yaml(proposal, beside.name)
    write_proposal(beside, json.dumps(evidence(proposal, allowed=regressions_allowed), indent=2) + "\n")
    write_proposal(path, text)
    return beside


def refuse_unproven(proposal: Proposal, *, regressions_allowed: bool = False) -> None:
    """Raise NodectlError unless something is better, all was measured, and nothing is worse (or that is allowed)."""
    summary = summarise(proposal.profile, proposal.verdicts, proposal.judge_by)
    if summary.undecided or not proposal.verdicts:
        reason = summary.undecided[0].reason if summary.undecided else "nothing was measured"
        raise NodectlError(f"{proposal.profile} has no verdict: {reason}", "try it again, over more pairs")
    if not summary.wins:
        raise NodectlError(f"{proposal.profile} is not better than {proposal.baseline}", "there is nothing to propose")
    if summary.regressions and not regressions_allowed:
        worse = "; ".join(map(_where, summary.regressions))
        raise NodectlError(
            f"{proposal.profile} is better somewhere, and worse than {proposal.baseline} at {worse}",
            "use another candidate, or give --allow-regressions if your jobs do not use what became worse",
        )


def evidence_path(path: Path) -> Path:
    """Return where the evidence of a proposal lies: `proposal.yml` → `proposal.evidence.json`."""
    return path.with_suffix(".evidence.json")


def evidence(proposal: Proposal, *, allowed: bool = False) -> dict[str, object]:
    """Return what the proposal stands on, as plain data: verdicts, and the series that they were read from."""
    summary = summarise(proposal.profile, proposal.verdicts, proposal.judge_by)
    return {
        "schema": SCHEMA,
        "nodectl": __version__,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "profile": proposal.profile,
        "baseline": proposal.baseline,
        "overrides": proposal.overrides,
        "unmeasured": as_overrides(dict.fromkeys(proposal.unmeasured)),
        "hosts": list(proposal.hosts),
        "judge_by": proposal.judge_by,
        "verdict": summary.verdict,
        "regressions_allowed": allowed and bool(summary.regressions),
        "trials": [asdict(verdict) for verdict in proposal.verdicts],
        "series": [asdict(series) for series in proposal.series],
    }


def inventory_yaml(proposal: Proposal, beside: str) -> str:
    """Return an inventory with nothing but the proposal, host by host."""
    if not proposal.hosts:
        raise UsageError("a proposal needs hosts, but the trial names none", "name the hosts that were measured")
    hosts: dict[str, dict[str, Any]] = {}
    for host, present in proposal.hosts.items():
        if proposal.overrides is None:
            hosts[host] = {TUNING: proposal.profile}
        else:
            over = {} if proposal.baseline == OWN else {TUNING: proposal.baseline}
            hosts[host] = {**over, OVERRIDES: merged_overrides(present, proposal.overrides)}
    inventory = {"all": {"hosts": hosts}}
    body = yaml.dump(inventory, Dumper=_NoAliases, sort_keys=False, allow_unicode=True, width=120)
    return f"{_head(proposal, beside)}\n{body}"


class _NoAliases(yaml.SafeDumper):
    """A dumper that writes each host's values in full: what is to be reviewed has no references."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _head(proposal: Proposal, beside: str) -> str:
    lines = [f"{MARK}: {proposal.profile} against {proposal.baseline}. Review it, then use it as", "# one more -i."]
    lines += [f"# better: {_where(verdict)}" for verdict in proposal.verdicts if verdict.verdict is Outcome.BETTER]
    if proposal.unmeasured:
        lines.append(f"# not in here, for nothing in the trial can feel it: {named(proposal.unmeasured)}")
    lines += [f"# WORSE: {_where(verdict)}" for verdict in proposal.verdicts if verdict.is_regression]
    return "\n".join([*lines, f"# evidence: {beside}"])


def _where(verdict: Verdict) -> str:
    size = "" if verdict.size_bytes is None else f" {verdict.size_bytes} B"
    what = f"{verdict.probe} {verdict.subject}{size}"
    if verdict.gain_percent is None or verdict.interval_percent is None or not verdict.verdict:
        return _one_line(f"{what} (failed)")
    low, high = verdict.interval_percent
    failed = f", {verdict.failed_candidate} failed" if verdict.failed_candidate else ""
    return _one_line(f"{what} {verdict.gain_percent:+.1f} % ({low:+.1f} to {high:+.1f}){failed}")


def _one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _refuse_foreign(path: Path) -> None:
    try:
        there = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", "name a file that you may write") from error
    if not there.startswith(MARK):
        raise UsageError(f"{path} was not written by nodectl", "move it away, or name another file")


def write_proposal(path: Path, text: str) -> None:
    """Write a proposed profile for everybody to read, also safe against a power failure; UsageError if it cannot."""
    try:
        replace_file(path, text, mode=0o644, sync=True)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", "name a file in a folder that you may write") from error


def proposal_of(trial: Trial, profile: str | None, folders: Sequence[Path] = ()) -> Proposal:
    """Return the proposal of the named candidate, or of the only one that is better; NodectlError if none is.

    Of its settings those that something in the trial could feel: a profile with others is proposed as overrides.
    """
    candidate = profile or _winner(trial)
    if candidate not in trial.candidates:
        raise UsageError(
            f"the trial {trial.id} had no candidate {profile!r}",
            f"{meant(candidate, trial.candidates)}one of: {', '.join(trial.candidates)}",
        )
    if not trial.complete:
        raise NodectlError(f"the trial {trial.id} ended early: {trial.reason}", "try it again")
    settings = tried(trial.baseline, candidate, folders)
    given = [row.get("conditions") for row in trial.conditions]
    backends = {conditions.get("backend") for conditions in given if isinstance(conditions, Mapping)}
    unmeasured = unfelt(settings, trial.probes, backends)
    if settings and len(unmeasured) == len(settings):
        what = f"{named(unmeasured)}: nothing in the trial can feel it"
        raise NodectlError(f"nothing of {candidate} was measured: {what}", "try it with probes that do: --probes nccl")
    measured = {setting: value for setting, value in settings.items() if setting not in unmeasured}
    return Proposal(
        profile=candidate,
        baseline=trial.baseline,
        hosts=trial.hosts,
        verdicts=tuple(verdict for verdict in trial.verdicts if verdict.profile == candidate),
        series=tuple(series for series in trial.series if series.profile == candidate),
        overrides=as_overrides(measured) if unmeasured else None,
        unmeasured=tuple(unmeasured),
        judge_by=trial.judge_by,
    )


def _winner(trial: Trial) -> str:
    wins = [summary.profile for summary in trial.summaries if summary.verdict is Outcome.BETTER]
    if len(wins) > 1:
        raise UsageError(f"several are better than {trial.baseline}: {', '.join(wins)}", "choose with --profile")
    if wins:
        return wins[0]
    judged = [summary.profile for summary in trial.summaries]
    if len(judged) == 1:  # why it is not proposed is said by what looks at its verdicts
        return judged[0]
    raise NodectlError(f"nothing is better than {trial.baseline}", "there is nothing to propose")
