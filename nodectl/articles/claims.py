"""What the articles claim: figures with their conditions, what is wrong in them; as JSON, as lines and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from textwrap import wrap

from pydantic import Field

from nodectl.common.resources import data_dir
from nodectl.errors import UsageError
from nodectl.profiles.load import check_document, read_document
from nodectl.profiles.schema import Strict
from nodectl.report.table import aligned, broken, fitted

# the conditions that a figure may name, in words; a measurement that has one names it the same
CONDITIONS = {
    "device": "device",
    "devices": "number of devices",
    "nodes": "number of nodes",
    "cpu": "processor",
    "link_gbit": "rate of the network in Gbit/s",
    "workload": "workload",
    "preset": "preset",
    "parallel": "kind of parallel training",
    "mode": "mode",
    "precision": "precision",
    "batch": "batch of all devices",
    "batch_per_rank": "batch of a rank",
    "accumulation": "accumulation",
    "files": "number of files",
    "workers": "number of workers",
    "baseline_device": "device of the baseline",
    "baseline_devices": "number of devices of the baseline",
    "baseline_workers": "number of workers of the baseline",
}
Condition = str | int | float
Conditions = Mapping[str, Condition]


Known = dict[str, Condition]


class Row(Strict):
    """Figures that share a line of a table; one for each column that the line has."""

    name: str
    conditions: Known = Field(default_factory=dict)
    values: dict[str, float] = Field(min_length=1)


class Column(Strict):
    """Conditions that the figures of one column have beside those of their row."""

    conditions: Known = Field(default_factory=dict)
    not_told: tuple[str, ...] = ()


class Claim(Strict):
    """A table, or figures of the text; `measured_by` is the command that prints them for other machines."""

    what: str
    measured_by: str
    units: dict[str, str] = Field(min_length=1)
    columns: dict[str, Column] = Field(default_factory=dict)
    conditions: Known = Field(default_factory=dict)
    not_told: tuple[str, ...] = ()
    truth: str
    rows: tuple[Row, ...] = Field(min_length=1)


class Setting(Strict):
    """A number that is no figure but a choice; `at` are the places that hold it here."""

    what: str
    value: Condition | tuple[Condition, ...]
    at: tuple[str, ...] = Field(min_length=1)


class Refused(Strict):
    """A number that nothing here holds, and why not."""

    what: str
    value: Condition | tuple[Condition, ...]
    why: str


class Article(Strict):
    """One article: its title, what it says, what is wrong in that, and all its numbers."""

    title: str
    says: str
    wrong: tuple[str, ...]
    conditions: Known = Field(default_factory=dict)
    not_told: tuple[str, ...] = ()
    claims: dict[str, Claim]
    settings: tuple[Setting, ...]
    refused: tuple[Refused, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """One published number; `not_told` are conditions of which it depends and that the article does not give."""

    article: int
    claim: str
    row: str
    column: str
    value: float
    unit: str
    conditions: Conditions
    not_told: tuple[str, ...]

    @property
    def document(self) -> dict[str, object]:
        """Return it as plain data for JSON."""
        names = ("article", "claim", "row", "column", "value", "unit", "conditions")
        return {name: getattr(self, name) for name in names}


@cache
def articles() -> Mapping[int, Article]:
    """All articles by their number; ProfileError names the file and the field of one that cannot be read."""
    files = sorted((data_dir() / "articles").glob("article-*.yml"))
    return {
        int(file.stem.rpartition("-")[2]): check_document(Article, read_document(file), str(file)) for file in files
    }


def article(number: int) -> Article:
    """Return the article of that number; UsageError if there is none."""
    if number not in articles():
        raise UsageError(f"there is no article {number}", f"one of: {', '.join(map(str, articles()))}")
    return articles()[number]


def figures(number: int, name: str, column: str = "") -> tuple[Figure, ...]:
    """Return the figures of a claim, those of one column where one is named, in the article's order."""
    whole = article(number)
    return tuple(
        figure for figure in _figures(number, whole, name, whole.claims[name]) if column in ("", figure.column)
    )


def all_figures() -> tuple[Figure, ...]:
    """Return the figures of all articles."""
    return tuple(
        figure
        for number, whole in articles().items()
        for name, claim in whole.claims.items()
        for figure in _figures(number, whole, name, claim)
    )


def _figures(number: int, whole: Article, name: str, claim: Claim) -> Iterator[Figure]:
    for row in claim.rows:
        for column, value in row.values.items():
            column_entry = claim.columns.get(column, Column())
            conditions = {**whole.conditions, **claim.conditions, **column_entry.conditions, **row.conditions}
            not_told = (*whole.not_told, *claim.not_told, *column_entry.not_told)
            yield Figure(number, name, row.name, column, value, claim.units[column], conditions, not_told)


def claims_document(chosen: Mapping[int, Article]) -> dict[str, object]:
    """Return it as the files have them, each with its number."""
    return {"articles": [{"number": number, **whole.model_dump(mode="json")} for number, whole in chosen.items()]}


def claims_text(chosen: Mapping[int, Article], width: int) -> str:
    """Return what each article says, and its figures with the command that measures them."""
    parts = []
    for number, whole in chosen.items():
        head = [f"article {number}: {whole.title}", *wrap(f"says: {whole.says}", width, subsequent_indent="  ")]
        rows = [("FIGURE", "", "VALUE", "MEASURED BY")]
        rows += [
            (figure.claim, f"{figure.row}, {figure.column}", _value(figure), command(whole, figure))
            for name in whole.claims
            for figure in figures(number, name)
        ]
        parts.append("\n".join([*head, "", aligned(rows)]))
    more = "nodectl bench claims ARTICLE tells the conditions, what is true, and where its other numbers are"
    return "\n\n".join([*parts, more])


def article_text(number: int, whole: Article, width: int) -> str:
    """Everything that is known of one article."""
    lines = [f"article {number}: {whole.title}", *wrap(f"says: {whole.says}", width, subsequent_indent="  ")]
    lines += ["", "what is wrong in it:"]
    lines += [line for text in whole.wrong for line in wrap(f"- {text}", width, subsequent_indent="  ")]
    for name, claim in whole.claims.items():
        lines += ["", f"{name}: {claim.what}; measured by `nodectl {claim.measured_by}`"]
        lines += wrap(f"true: {claim.truth}", width, initial_indent="  ", subsequent_indent="  ")
        shown = figures(number, name)
        first, *others = (figure.conditions for figure in shown)
        common = {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}
        if common:
            lines += broken(f"  all: {_pairs(common)}", width)
        rows = [(figure.row, figure.column, _value(figure), _beside(figure, common)) for figure in shown]
        lines += [
            f"  {line}" for line in fitted([("ROW", "FIGURE", "VALUE", "CONDITIONS"), *rows], width - 2).splitlines()
        ]
    lines += ["", "its other numbers here:"]
    settings = [(setting.what, _shown(setting.value), ", ".join(setting.at)) for setting in whole.settings]
    lines += fitted([("NUMBER", "VALUE", "WHERE"), *settings], width).splitlines()
    lines += ["", "numbers that nothing here holds:"]
    refused = [(omitted.what, _shown(omitted.value), omitted.why) for omitted in whole.refused]
    lines += fitted([("NUMBER", "VALUE", "WHY NOT"), *refused], width).splitlines()
    return "\n".join(lines)


def command(whole: Article, figure: Figure) -> str:
    """Return what prints this figure of other machines."""
    return f"nodectl {whole.claims[figure.claim].measured_by}"


def _beside(figure: Figure, common: Mapping[str, object]) -> str:
    beyond = {name: value for name, value in figure.conditions.items() if name not in common}
    untold = f"not told: {', '.join(figure.not_told)}" if figure.not_told else ""
    return "; ".join(filter(None, [_pairs(beyond), untold]))


def _pairs(conditions: Mapping[str, object]) -> str:
    return ", ".join(f"{CONDITIONS[name]} {value}" for name, value in conditions.items())


def _value(figure: Figure) -> str:
    return f"{figure.value:,g} {figure.unit}"


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
