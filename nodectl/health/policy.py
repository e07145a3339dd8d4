"""What a site says of its hosts' health in `nodectl_health`: other thresholds, and findings accepted for a time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from nodectl.checks.catalogue import checks, thresholds
from nodectl.checks.check import Action
from nodectl.common.spelling import meant
from nodectl.errors import UsageError
from nodectl.model.finding import Finding
from nodectl.model.recording import SITE
from nodectl.model.status import Status
from nodectl.profiles.load import check_document

VARIABLE = "nodectl_health"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Accepted(_Strict):
    """Findings that somebody answers for until a day: of one check, of all its subjects if none is named."""

    check: str
    subject: str | None = None
    until: date
    why: Annotated[str, Field(min_length=1)]

    @field_validator("check")
    @classmethod
    def _known(cls, check: str) -> str:
        # which of the site's own there are is known where their folder is: see `refuse_unknown`
        return check if check.startswith(SITE) else _one_of(check, checks(), "check", "nodectl health --list")

    def covers(self, finding: Finding) -> bool:
        """Return whether the rule is about that finding."""
        return finding.check == self.check and self.subject in (None, finding.subject)


class SiteXid(_Strict):
    """A site's word on an Xid, over the catalogue."""

    title: str = ""
    status: Literal["ok", "warning", "failed"] = "warning"
    action: Action = "none"
    remedy: str = ""


class Policy(_Strict):
    """One host's `nodectl_health`."""

    thresholds: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(default_factory=dict)
    accept: tuple[Accepted, ...] = ()
    xid: dict[int, SiteXid] = Field(default_factory=dict)
    # file systems that must be mounted
    mounts: tuple[Annotated[str, Field(pattern=r"^/")], ...] = ()

    @field_validator("thresholds")
    @classmethod
    def _known(cls, numbers: dict[str, float]) -> dict[str, float]:
        for name in numbers:
            _one_of(name, thresholds(), "threshold", "docs/health.md")
        return numbers

    def applied(self, finding: Finding, today: date) -> Finding:
        """Skipped where it is accepted today; what has expired counts again and says so."""
        if finding.status in (Status.OK, Status.SKIPPED):
            return finding
        rules = sorted((rule for rule in self.accept if rule.covers(finding)), key=lambda rule: rule.until)
        if not rules:
            return finding
        last = rules[-1]
        if last.until < today:
            text = f"was accepted until {last.until}: {last.why}"
            return replace(finding, evidence="; ".join(filter(None, [finding.evidence, text])))
        text = f"accepted until {last.until}: {last.why} (it is {finding.status}: {finding.actual})"
        return replace(finding, status=Status.SKIPPED, actual=text, remedy="", action="none")


def policy_of(host: str, variables: Mapping[str, object]) -> Policy:
    """Return the host's policy; UsageError naming the host, the path and what is wrong there."""
    if (given := variables.get(VARIABLE)) is None:
        return Policy()
    return check_document(Policy, json.loads(json.dumps(given, default=str)), f"{VARIABLE} of {host}")


def refuse_unknown(host: str, policy: Policy, site: Sequence[str]) -> None:
    """Raise UsageError if the policy accepts findings of a check of the site's own that is none of these."""
    for rule in policy.accept:
        if rule.check.startswith(SITE) and rule.check not in site:
            reason = f"{VARIABLE} of {host}: accept: no check {rule.check!r} beside the inventory"
            raise UsageError(reason, f"{meant(rule.check, site)}correct it there, or put the check into checks.d/")


def _one_of(name: str, choices: Mapping[str, object], what: str, where: str) -> str:
    if name not in choices:
        raise ValueError(f"there is no {what} {name!r}; {meant(name, choices)}see {where}")
    return name
