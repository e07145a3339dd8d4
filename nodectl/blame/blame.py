"""Which host is at fault where pairs lose packets or fail: the one that all these have in common, and no others.

Of slow pairs, see blame_inquiry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status

_NAME = "tcp"
# of segments sent again; a path without loss has some where buffers are short
_LOST_SHARE, _NOTHING_SHARE = 0.01, 0.5
_SEGMENT_BITS = 8 * 1448
_LEAST_OTHERS = 2
_REMEDY = "look at its cable, its switch's port and its interface's errors (`nodectl health` there)"


def blame(found: Sequence[Measurement], failed: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings that name a host: its pairs lose packets or fail, and pairs without it do not."""
    broken = [finding.hosts for finding in failed if finding.kind == "path" and finding.status is Status.FAILED]
    names = sorted({name for each in found for name in each.hosts} | {name for pair in broken for name in pair})
    return (*_losing(found, names), *_cut(found, broken, names))


def _losing(found: Sequence[Measurement], names: Sequence[str]) -> Iterator[Finding]:
    shares = {each.hosts: share for each in found if (share := _lost_share(each)) is not None}
    for name in names:
        own = [share for hosts, share in shares.items() if hosts[1] == name]
        others = [share for hosts, share in shares.items() if name not in hosts]
        if (
            own
            and len(others) >= _LEAST_OTHERS
            and _NOTHING_SHARE > min(own) > _LOST_SHARE
            and median(others) < _LOST_SHARE / 2
        ):
            expected = f"below {100 * _LOST_SHARE:g} % of segments sent again"
            actual = f"{100 * min(own):.2g} % and more of what it is sent is lost"
            yield _finding(name, "loses packets", expected, actual)


def _lost_share(each: Measurement) -> float | None:
    """Segments sent again, of all that must have been sent; None where nobody counted."""
    again, seconds, runs = (each.conditions.get(name) for name in ("retransmits", "duration_s", "repetitions"))
    if not (isinstance(again, int) and isinstance(seconds, int | float) and isinstance(runs, int)):
        return None
    segments = each.value * 1e9 * seconds * runs / _SEGMENT_BITS
    return again / (segments + again) if segments + again else None


def _cut(found: Sequence[Measurement], broken: Sequence[tuple[str, ...]], names: Sequence[str]) -> Iterator[Finding]:
    """The one host that is in every broken pair, where others have pairs that work."""
    common = set(names).intersection(*map(set, broken)) if broken else set()
    for name in sorted(common):
        others = [each for each in found if name not in each.hosts]
        # of two hosts of a single broken pair, the one whose other pairs work is not to blame
        works = [each for each in found if name in each.hosts and each.value > 0]
        if len(others) >= _LEAST_OTHERS and (len(broken) > 1 or not works):
            pairs = "1 pair" if len(broken) == 1 else f"{len(broken)} pairs"
            yield _finding(name, "fails", "every pair is measured", f"is in all that failed: {pairs}")


def _finding(name: str, subject: str, expected: str, actual: str) -> Finding:
    return Finding(
        name,
        _NAME,
        Status.FAILED,
        subject,
        expected=expected,
        actual=actual,
        remedy=_REMEDY,
        kind="host",
        hosts=(name,),
    )
