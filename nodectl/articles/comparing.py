"""Whether a measurement can be held against a published figure: by the conditions of both, and by nothing else."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodectl.articles.claims import CONDITIONS, Condition, Figure
from nodectl.report.table import broken

_SAME = 1e-3
# columns of a table for other programs, as `cells` fills them
HEADER = ("article", "article_value", "article_unit", "comparable", "because")


@dataclass(frozen=True, slots=True)
class Comparable:
    """`because` are the conditions that differ, are not known here, or are not told there; none where it is."""

    figure: Figure
    because: tuple[str, ...]

    @property
    def comparable(self) -> bool:
        """Return whether nothing stands against it."""
        return not self.because

    @property
    def text(self) -> str:
        """`yes`, or `no, because …`."""
        return "yes" if self.comparable else f"no, because {'; '.join(self.because)}"

    @property
    def cells(self) -> tuple[object, ...]:
        """Return it as the columns of `HEADER`."""
        figure = self.figure
        comparable = "yes" if self.comparable else "no"
        return (figure.article, figure.value, figure.unit, comparable, "; ".join(self.because))

    @property
    def document(self) -> dict[str, object]:
        """Return it as plain data for JSON, with the claim that it is of."""
        figure = self.figure
        return {
            "article": figure.article,
            "claim": figure.claim,
            "row": figure.row,
            "column": figure.column,
            "value": figure.value,
            "unit": figure.unit,
            "comparable": self.comparable,
            "because": list(self.because),
        }


def compared(figure: Figure, measured: Mapping[str, object]) -> Comparable:
    """Return the figure against what was measured under these conditions, which have the names of `CONDITIONS`."""
    reasons = [_reason(name, theirs, measured.get(name)) for name, theirs in figure.conditions.items()]
    untold = [f"the article does not tell: {', '.join(figure.not_told)}"] if figure.not_told else []
    return Comparable(figure, (*(reason for reason in reasons if reason), *untold))


def nearest(figures: Sequence[Figure], measured: Mapping[str, object]) -> Comparable:
    """Return the figure with the fewest conditions against it; the first of several."""
    return min((compared(figure, measured) for figure in figures), key=lambda each: len(each.because))


def _reason(name: str, theirs: Condition, ours: object) -> str:
    if ours is None:
        return f"{CONDITIONS[name]}: not known here, {_text(theirs)} there"
    return "" if _is_same(theirs, ours) else f"{CONDITIONS[name]}: {_text(ours)} here, {_text(theirs)} there"


def _is_same(theirs: Condition, ours: object) -> bool:
    if isinstance(theirs, int | float) and isinstance(ours, int | float):
        return math.isclose(theirs, ours, rel_tol=_SAME)
    # NVIDIA A100-SXM4-80GB is an A100 80GB
    return _words(theirs) <= _words(ours)


def _words(value: object) -> set[str]:
    return set(re.findall(r"[a-z0-9+]+", str(value).lower()))


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def comparable_lines(cells: Mapping[str, Comparable], width: int) -> list[str]:
    """Return the lines `comparable: …` of a table with these cells; each reason once, with its cells."""
    fit = [name for name, cell in cells.items() if cell.comparable]
    lines = [f"comparable: yes, {', '.join(fit)}"] if fit else []
    reasons: dict[str, list[str]] = {}
    for name, cell in cells.items():
        for reason in cell.because:
            reasons.setdefault(reason, []).append(name)
    if reasons:
        lines.append("comparable: no, because" if not fit else "the others: no, because")
    left = [name for name in cells if name not in fit]
    for reason, names in reasons.items():
        lines.append(f"  {reason}" + ("" if names == left else f" ({', '.join(names)})"))
    return [piece for line in lines for piece in broken(line, width)]
