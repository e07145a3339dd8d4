"""The claims of the articles as JSON, as lines and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import wrap

from nodectl.articles.claims import CONDITIONS, Article, Figure, figures
from nodectl.report.table import aligned, broken, fitted


def claims_document(chosen: Mapping[int, Article]) -> dict[str, object]:
    """Return it as the files have them, each with its number."""
    return {"articles": [{"number": number, **whole.model_dump(mode="json")} for number, whole in chosen.items()]}


def claims_lines(chosen: Mapping[int, Article]) -> list[list[object]]:
    """Return a line for each figure, below the headings."""
    header = ["article", "claim", "row", "column", "value", "unit", "conditions", "not_told", "measured_by"]
    lines: list[list[object]] = [list(header)]
    for number, whole in chosen.items():
        for figure in _figures(number, whole):
            cells = [
                figure.article,
                figure.claim,
                figure.row,
                figure.column,
                figure.value,
                figure.unit,
                conditions_text(figure),
            ]
            lines.append([*cells, ", ".join(figure.not_told), command(whole, figure)])
    return lines


def claims_text(chosen: Mapping[int, Article], width: int) -> str:
    """Return what each article says, and its figures with the command that measures them."""
    parts = []
    for number, whole in chosen.items():
        head = [f"article {number}: {whole.title}", *wrap(f"says: {whole.says}", width, subsequent_indent="  ")]
        rows = [("FIGURE", "", "VALUE", "MEASURED BY")]
        rows += [
            (figure.claim, f"{figure.row}, {figure.column}", _value(figure), command(whole, figure))
            for figure in _figures(number, whole)
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
        common = _common(shown)
        if common:
            lines += broken(f"  all: {_pairs(common)}", width)
        figure_rows = [(figure.row, figure.column, _value(figure), _pairs(_beyond(figure, common))) for figure in shown]
        noted_rows = [
            (*row, f"not told: {', '.join(figure.not_told)}" if figure.not_told else "")
            for row, figure in zip(figure_rows, shown, strict=True)
        ]
        rows = [(*row[:3], "; ".join(part for part in row[3:] if part)) for row in noted_rows]
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


def conditions_text(figure: Figure) -> str:
    """`devices 3, batch 12`."""
    return _pairs(figure.conditions)


def _figures(number: int, whole: Article) -> Iterator[Figure]:
    for name in whole.claims:
        yield from figures(number, name)


def _common(shown: tuple[Figure, ...]) -> dict[str, object]:
    first, *others = (figure.conditions for figure in shown)
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}


def _beyond(figure: Figure, common: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in figure.conditions.items() if name not in common}


def _pairs(conditions: Mapping[str, object]) -> str:
    return ", ".join(f"{CONDITIONS[name]} {value}" for name, value in conditions.items())


def _value(figure: Figure) -> str:
    return f"{figure.value:,g} {figure.unit}"


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
