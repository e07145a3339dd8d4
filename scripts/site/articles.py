"""The parts of an article's page that nodectl/data/articles has: claims, what is true, where the numbers are."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodectl.articles.claims import CONDITIONS, Article, Claim, articles, figures
from scripts.site.pages import plain, table

# <!-- article 3: claims -->
_PART = re.compile(r"^<!-- article (\d+): (\w+) -->$", re.MULTILINE)


def filled(markdown: str) -> str:
    """Return the page with its parts; KeyError for an article or a part that is not there."""
    parts = {"title": _title, "claims": _claims, "wrong": _wrong, "numbers": _numbers}
    return _PART.sub(lambda found: "\n\n".join(parts[found[2]](int(found[1]), articles()[int(found[1])])), markdown)


def _title(_number: int, whole: Article) -> Iterator[str]:
    yield f"*{plain(whole.title)}*{{lang=zh}}"
    yield f"It says: {plain(whole.says)}."


def _claims(number: int, whole: Article) -> Iterator[str]:
    """Yield a table for each claim, with what is true of it."""
    for name, claim in whole.claims.items():
        yield f"**{plain(claim.what[:1].upper() + claim.what[1:])}**, measured by {_command(claim)}:"
        shown = figures(number, name)
        rows = [
            [plain(figure.row), plain(figure.column.replace("_", " ")), plain(f"{figure.value:,g} {figure.unit}")]
            for figure in shown
        ]
        yield table(["row", "figure", "value"], rows)
        conditions = dict.fromkeys(
            f"{CONDITIONS[key]} {value}" for figure in shown for key, value in figure.conditions.items()
        )
        yield f"Its conditions: {plain(', '.join(conditions))}."
        if missing := dict.fromkeys(name for figure in shown for name in figure.not_told):
            yield f"Not told: {plain(', '.join(missing))}."
        yield f"What is true: {plain(claim.truth)}."


def _command(claim: Claim) -> str:
    """Return the command as a link to its place in the reference."""
    words = claim.measured_by.split(" --")[0].split()
    anchor = f"#nodectl-{'-'.join(words)}" if len(words) > 1 else ""
    return f"[`nodectl {claim.measured_by}`](../reference/cli/{words[0]}.md{anchor})"


def _wrong(_number: int, whole: Article) -> Iterator[str]:
    yield "\n".join(f"- {plain(text)}" for text in whole.wrong)


def _numbers(_number: int, whole: Article) -> Iterator[str]:
    """Yield where the article's other numbers are, and which of them nothing here holds."""
    yield table(
        ["number", "value", "where it is here"],
        [[plain(one.what), _value(one.value), "; ".join(f"`{place}`" for place in one.at)] for one in whole.settings],
    )
    yield "Numbers that nothing here holds:"
    yield table(
        ["number", "value", "why not"],
        [[plain(one.what), _value(one.value), plain(one.why)] for one in whole.refused],
    )


def _value(value: object) -> str:
    return plain(", ".join(map(str, value)) if isinstance(value, tuple) else str(value))
