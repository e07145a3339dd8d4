"""What a check is: one declaration beside the function that judges one host by its facts.

    LEAST = Threshold("uptime_h", 1, "what boots again and again is not at rest")
    UPTIME = Check("uptime", fires="warning: booted a short while ago", thresholds=(LEAST,))

    @judges_fact(Boot, UPTIME, reads=("boot",))
    def uptime(host: Subject, boot: Boot) -> Iterator[Finding]: ...

`catalogue` finds both in every module below `nodectl.checks`: there is no list of them anywhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar, get_args

from nodectl.checks.counters import NOTHING_YET, Growth, Previous, growth
from nodectl.facts.base import AS_ROOT, SUDOERS, is_denied
from nodectl.facts.look import Lab
from nodectl.facts.settings import SessionLimits
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.status import Status

if TYPE_CHECKING:
    # pydantic takes longer to import than preflight has
    from nodectl.profiles.resolve import Resolved


NOT_SETTABLE = "not settable on this host"
NO_SYSTEMD = f"{NOT_SETTABLE}: systemd is not process 1"
INSTALL = "install there what is missing, or look why it is not in PATH (`nodectl provision`)"
LOOK_THERE = "look there at what `nodectl facts` reads"
_LET_LOOK = "let the login run by sudo there what `nodectl sudoers` prints"
Action = Literal["none", "restart job", "reset GPU", "reboot", "drain", "replace"]
ACTIONS = get_args(Action)
_NOT_INSTALLED = "is not installed"
_RUN_AS_ROOT = "run as root: "
Fact = TypeVar("Fact")
# a host, or the hosts of a job
Judged = TypeVar("Judged")


@dataclass(frozen=True, slots=True, eq=False)
class Threshold:
    """A number that a check compares with if no profile has one.

    `nodectl_health: {thresholds: {NAME: NUMBER}}` replaces it for a site.
    """

    name: str
    value: float
    why: str


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """One thing that may be found.

    Its id, and when it fires (with status failed, unless another is named).

    `expected`, `remedy` and `action` are the defaults for its findings. `roles` are the Ansible roles whose work the
    check reads back, so that a role's verify judges by it; `roles_of` names other roles for single subjects. `follows`
    are the checks of possible causes: if one of them fires, its remedy comes first.
    """

    id: str
    fires: str
    expected: str = ""
    remedy: str = ""
    action: str = "none"
    thresholds: tuple[Threshold, ...] = ()
    roles: tuple[str, ...] = ()
    roles_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    follows: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Judgement(Generic[Judged]):
    """A function from the facts of one host (or of all hosts of a job) to findings of `checks`.

    `reads` are the facts that it looks at, `variables` the host's variables that it asks for beside its profiles.
    """

    checks: tuple[Check, ...]
    reads: tuple[str, ...]
    function: Callable[[Judged], Iterator[Finding]]
    variables: tuple[str, ...] = ()

    def __call__(self, judged: Judged) -> Iterator[Finding]:
        """Return the findings, one after the other."""
        return self.function(judged)


def judges(
    *checks: Check, reads: Sequence[str], variables: Sequence[str] = ()
) -> Callable[[Callable[[Judged], Iterator[Finding]]], Judgement[Judged]]:
    """Register a function as the judge of `checks`."""

    def register(function: Callable[[Judged], Iterator[Finding]]) -> Judgement[Judged]:
        return Judgement(checks, tuple(reads), function, tuple(variables))

    return register


def judges_fact(
    kind: type[Fact],
    *checks: Check,
    reads: Sequence[str],
    unread: str = "",
    or_absent: bool = False,
    promised: bool = False,
    borrowed: str = "",
    where: Callable[[Subject], bool] | None = None,
    variables: Sequence[str] = (),
) -> Callable[[Callable[[Subject, Fact], Iterator[Finding]]], Judgement[Subject]]:
    """Register a function of a host and of its fact `reads[0]`, of this kind, as the judge of `checks`.

    If the fact could not be read, each check is unknown and expects `unread`. `or_absent`: also if the host has no such
    thing; `promised`: then it fails, as `Subject.unread` says. Hosts for which `where` is False are not judged, nor are
    lab hosts that only show the machine's `borrowed` hardware.
    """
    subjects = tuple(reads)

    def register(function: Callable[[Subject, Fact], Iterator[Finding]]) -> Judgement[Subject]:
        @wraps(function)
        def judge(host: Subject) -> Iterator[Finding]:
            if (borrowed and host.borrows(borrowed)) or (where is not None and not where(host)):
                return
            value = host.facts.get(subjects[0])
            if isinstance(value, kind):
                yield from function(host, value)
            elif isinstance(value, Unread) and (or_absent or promised or value.kind == "unknown"):
                for check in checks:
                    yield from host.unread(check, value, unread, promised=promised)

        facts = dict.fromkeys((*subjects, "lab") if borrowed else subjects)
        return Judgement(checks, tuple(facts), judge, tuple(variables))

    return register


class Told(NamedTuple):
    """The words of a judge of one value: `right` is None if it is not told; empty texts are those of the check."""

    right: bool | None
    actual: str = "not told"
    expected: str = ""
    remedy: str = ""


def judges_value(
    kind: type[Fact], check: Check, *, otherwise: Status = Status.WARNING, **how: Any
) -> Callable[[Callable[[Subject, Fact], Told | None]], Judgement[Subject]]:
    """Register a function of a host and a fact as the judge of one value: one finding, `otherwise` if it is not right.

    The function returns None if there is nothing to judge. The other arguments are those of `judges_fact`.
    """

    def register(function: Callable[[Subject, Fact], Told | None]) -> Judgement[Subject]:
        @judges_fact(kind, check, **how)
        @wraps(function)
        def judge(host: Subject, value: Fact) -> Iterator[Finding]:
            told = function(host, value)
            if told is not None:
                status = Status.UNKNOWN if told.right is None else Status.OK if told.right else otherwise
                yield host.finding(check, status, expected=told.expected, actual=told.actual, remedy=told.remedy)

        return judge

    return register


Who = TypeVar("Who", bound=Hashable)


def odd_ones(values: Mapping[Who, str]) -> tuple[str, frozenset[Who]]:
    """Return the majority's value and the members with another value; without a majority, "" and all members."""
    counts = Counter(values.values()).most_common()
    if len(counts) < 2:
        return (counts[0][0] if counts else ""), frozenset()
    value, count = counts[0]
    if 2 * count <= len(values):
        return "", frozenset(values)
    return value, frozenset(who for who, other in values.items() if other != value)


# (the field's check, the item's name such as a mount or interface, the kind of the compared part such as a GPU model)
Key = tuple[str, str, str]
# a host's values of a field: one text, a text by item, or a text by (item, kind, part)
Values = str | None | Mapping[str, str | None] | Mapping[tuple[str, str, str], str | None]
# marks a value that the host's profiles set: other checks judge it
FIXED = ""


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A value that hosts of one hardware profile, or their parts, should share: one row in the `FIELDS` of a module.

    `values` reads it from the host's fact `reads[0]`: None if the host has none (in a mapping: could not tell), FIXED
    if its profiles set it. `parts` names the parts (GPUs, ports) that are compared with each other over all hosts.
    `absence`: a host without the value is a finding if others have it; `unread`: so is a host whose fact could not be
    read; `majority`: without a majority there is no finding.
    """

    check: Check
    reads: tuple[str, ...]
    values: Callable[[Subject, Any], Values]
    status: Status = Status.WARNING
    parts: str = ""
    absence: bool = True
    unread: bool = False
    majority: bool = False

    def of(self, host: Subject) -> dict[Key, dict[str, str | None]] | None:
        """Return the value of each part by key; {} if the host has none, None if it could not be read."""
        value = host.facts.get(self.reads[0])
        if isinstance(value, Unread):
            if value.kind == "absent":
                return {}
            return {(self.check.id, "", ""): {"": None}} if self.unread and not value.hung else None
        if value is None:
            return None
        texts: dict[Key, dict[str, str | None]] = {}
        values = self.values(host, value)
        by_item = values if isinstance(values, Mapping) else {} if values is None else {"": values}
        for item, text in by_item.items():
            which, kind, part = (item, "", "") if isinstance(item, str) else item
            texts.setdefault((self.check.id, which, kind), {})[part] = text
        return texts


@dataclass(frozen=True, slots=True)
class Subject:
    """One host: its facts by subject, and what it should be; None where its profiles are not known.

    `session` holds the login's rights (root is denied nothing). `previous` are the last reading's counters; counters
    that checks ask for by `growth` are collected in `counters` for the next reading.
    """

    host: str
    facts: Mapping[str, object]
    wanted: Resolved | None
    variables: Mapping[str, Any] = field(default_factory=dict)
    previous: Previous | None = None
    boot_id: str | None = None
    time: float = 0.0
    thresholds: Mapping[str, float] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    session: SessionLimits | None = None

    def fact(self, subject: str, kind: type[Fact]) -> Fact | None:
        """Return the subject's value where it was read."""
        value = self.facts.get(subject)
        return value if isinstance(value, kind) else None

    def threshold(self, threshold: Threshold) -> float:
        """Return the site's number, else the default."""
        return self.thresholds.get(threshold.name, threshold.value)

    def growth(self, key: str, value: int, last: int | None = None) -> Growth:
        """Return how the counter `key` has changed since the last reading; it stops counting at `last`."""
        self.counters[key] = value
        if value == 0 != last and self.previous is None:
            return NOTHING_YET  # as `growth` says, which a host would be asked hundreds of times
        return growth(self.previous, self.boot_id, self.time, key, value, last)

    def grew(
        self,
        check: Check,
        subject: str,
        grown: Growth,
        change: Threshold,
        first: Threshold | None,
        *,
        over: str = "",
        remedy: str = "",
    ) -> Iterator[Finding]:
        """Yield a warning where a counter's change reaches its limit.

        At a first reading where the number reaches `first`.

        None for `first`: what was counted before the first reading says nothing of now. `over` names the time.
        """
        limit = self.limit_reached(grown, change, first)
        if limit is not None:
            expected = f"fewer than {limit:g}{over}"
            yield self.finding(check, Status.WARNING, subject, expected=expected, actual=grown.text, remedy=remedy)

    def limit_reached(self, grown: Growth, change: Threshold, first: Threshold | None) -> float | None:
        """Return the limit that the counter has reached, as in `grew`; None if it is below."""
        threshold, counted = (first, grown.value) if grown.by is None else (change, grown.by)
        if threshold is None:
            return None
        limit = self.thresholds.get(threshold.name, threshold.value)
        return limit if counted >= limit else None

    @property
    def gpus(self) -> int | None:
        """Return the number of GPUs in the hardware profile; None if it is not known."""
        return self.wanted.hardware.gpus if self.wanted else None

    @property
    def has_stack(self) -> bool:
        """Tell whether the host has a stack profile."""
        return self.wanted is not None and "stack" in self.wanted.names

    @property
    def has_torch(self) -> bool:
        """Tell whether the host's stack profile includes torch."""
        return self.has_stack and self.wanted is not None and self.wanted.stack.torch is not None

    def shares(self, resource: str) -> bool:
        """Return whether the host is a lab's, and has this from the machine below it."""
        lab = self.fact("lab", Lab)
        return lab is not None and resource in lab.shared

    def borrows(self, resource: str) -> bool:
        """Return whether a lab host shows the machine's hardware as its own, with no recording in its place."""
        lab = self.fact("lab", Lab)
        return lab is not None and resource in lab.shared and not lab.recorded

    def finding(
        self,
        check: Check,
        status: Status,
        subject: str = "",
        *,
        expected: str = "",
        actual: str = "",
        remedy: str = "",
        action: str = "",
        evidence: str = "",
    ) -> Finding:
        """Return a finding; the check gives the defaults, and a finding that is unknown or OK has no action."""
        if status in (Status.OK, Status.SKIPPED):
            remedy, action = "", "none"
        else:
            # the remedy of the check is for damage that was seen
            remedy = remedy or (LOOK_THERE if status is Status.UNKNOWN else check.remedy)
            action = "none" if status is Status.UNKNOWN else action or check.action
            actual = f"{AS_ROOT}: {actual}" if status is Status.UNKNOWN and self._is_denied_to_root(actual) else actual
        return Finding(
            self.host, check.id, status, subject, action, expected or check.expected, actual, remedy, evidence
        )

    def all_of(self, check: Check, faults: Iterable[Finding], *, expected: str = "", actual: str) -> Iterator[Finding]:
        """Yield the faults; if there are none, one OK finding for everything that was looked at."""
        findings = list(faults)
        yield from findings or [self.finding(check, Status.OK, expected=expected, actual=actual)]

    def unread(
        self, check: Check, value: object, expected: str = "", *, promised: bool = False, remedy: str = LOOK_THERE
    ) -> Iterator[Finding]:
        """Yield the finding for a fact that could not be read; nothing if it was never asked for.

        A fact that is `promised` (by the profile or the site) and cannot be seen fails. It is only unknown if this
        login lacks the right, the answer was not understood, or the check `hung` reports the reason. `remedy` says how
        to look; the check's own remedy is for what was seen.
        """
        if isinstance(value, Unread):
            actual = f"{value.kind}: {value.reason}"
            fails = promised and not self._is_excused(value)
            remedy = _LET_LOOK if SUDOERS in actual else INSTALL if _NOT_INSTALLED in actual else remedy
            status = Status.FAILED if fails else Status.UNKNOWN
            yield self.finding(check, status, expected=expected, actual=actual, remedy=remedy)

    def unknown(self, value: object, expected: str, *checks: Check) -> Iterator[Finding]:
        """Yield `unread` of several checks; a tool or device that the host does not have gives no finding."""
        if isinstance(value, Unread) and value.kind == "unknown":
            for check in checks:
                yield from self.unread(check, value, expected)

    def lacks(
        self, check: Check, value: object, subject: str = "", *, expected: str = "", remedy: str = ""
    ) -> Iterator[Finding]:
        """Yield the finding of a subject that must be there.

        Failed where it is absent or not to be seen, as `unread`.
        """
        if isinstance(value, Unread):
            status = Status.UNKNOWN if value.kind == "unknown" and self._is_excused(value) else Status.FAILED
            yield self.finding(check, status, subject, expected=expected, actual=value.reason, remedy=remedy)

    def _is_excused(self, value: Unread) -> bool:
        return value.hung or value.garbled or (is_denied(value.reason) and not self._is_denied_to_root(value.reason))

    def _is_denied_to_root(self, reason: str) -> bool:
        """Return whether more rights would not help: sudo or root was denied (a lab's root has fewer rights)."""
        session = self.session
        was_root = _RUN_AS_ROOT in reason or (session is not None and session.is_root)
        is_bounded = session is not None and not session.raisable and self.fact("lab", Lab) is not None
        return was_root and not is_bounded and is_denied(reason) and SUDOERS not in reason


def provision(role: str) -> str:
    """Return the remedy of what that role sets."""
    return f"run `nodectl provision --tags {role}`"


def failed_unless(is_so: bool) -> Status:
    """Return OK if it is so, else FAILED."""
    return Status.OK if is_so else Status.FAILED


def warning_unless(is_so: bool) -> Status:
    """Return OK if it is so, else WARNING."""
    return Status.OK if is_so else Status.WARNING
