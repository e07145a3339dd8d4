"""Tables of workload runs as JSON, as lines and as text, the article's figures beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from textwrap import wrap

from nodectl.articles.claims import Figure
from nodectl.articles.comparing import HEADER, RATIO_HEADER, cells_of, comparable_lines
from nodectl.articles.programs import Runs
from nodectl.articles.scaling import Row
from nodectl.common.units import digits
from nodectl.report.table import aligned, fitted


def scaling_document(runs: Runs, rows: Sequence[Row]) -> dict[str, object]:
    """Return it as plain data for JSON; `summaries` are the programs' own last lines, which `bench compare` reads."""
    return {
        "device": runs.device,
        "scaled": runs.on_one_machine,
        "rows": [_row_document(row) for row in rows],
        "measurements": [asdict(measurement) for measurement in runs.result.measurements],
        "findings": [asdict(finding) for finding in runs.result.findings],
    }


def _row_document(row: Row) -> dict[str, object]:
    return {
        "name": row.setting.label,
        "devices": row.setting.devices,
        "nodes": row.nodes or None,
        "parallel": row.parallel or None,
        "precision": row.precision or None,
        "batch": row.batch,
        "accumulation": row.accumulation,
        "value": row.rate,
        "unit": row.unit or None,
        "spread": row.off,
        "step_ms": row.step_ms,
        "memory_gb": row.memory_gb,
        "gpu_use_percent": row.gpu_use_percent,
        "mfu_percent": row.mfu_percent,
        "data_wait_percent": row.wait_percent,
        "sent_mb_per_step": row.sent_mb,
        "speed_up": row.speed_up,
        "efficiency": row.efficiency,
        "speed_up_verdict": row.ratio and row.ratio.document,
        "why": row.why or None,
        "article": {column: beside.document for column, beside in row.beside.items()},
        "arguments": list(row.setting.arguments),
        "summaries": list(row.summaries),
    }


_LINE = ("name", "devices", "nodes", "parallel", "precision", "batch", "accumulation", "step_ms", "speed_up",
         "efficiency", "why")  # fmt: skip


def scaling_lines(rows: Sequence[Row]) -> list[list[object]]:
    """Return a line for each figure of each row; one for a row that has none."""
    lines: list[list[object]] = [[*_LINE, *RATIO_HEADER, "column", "value", "unit", *HEADER]]
    for row in rows:
        document = _row_document(row)
        row_cells = [*(document[name] for name in _LINE), *cells_of(row.ratio)]
        figures = {
            "rate": (row.rate, row.unit),
            "memory": (row.memory_gb, "GB"),
            "gpu_use": (row.gpu_use_percent, "%"),
            "mfu": (row.mfu_percent, "%"),
            "data_wait": (row.wait_percent, "%"),
            "sent": (row.sent_mb, "MB/step"),
        }
        beside = dict(row.beside)
        if "tokens_s" in beside:
            beside["rate"] = beside.pop("tokens_s")
        if "speed_up" in beside:
            figures["speed_up"] = (row.speed_up, "x")
        for column, (value, unit) in figures.items():
            if column == "rate" or value is not None:
                cells = beside[column].cells if column in beside else [None] * len(HEADER)
                lines.append([*row_cells, column, value, unit or None, *cells])
    return lines


_NAMES = ("", "DEVICES", "NODES", "PARALLEL", "BATCH", "ACC.", "RATE", "STEP ms", "SPEED-UP", "EFFICIENCY", "ARTICLE")
_RATE = _NAMES.index("RATE")
# what a step is spent on, and what it needs
_NEEDS = ("", "WAIT FOR DATA", "SENT BY ALL HOSTS", "GB A CARD", "GPU USE", "MFU")


def scaling_table(runs: Runs, rows: Sequence[Row], width: int, silent: Mapping[str, Sequence[Figure]]) -> str:
    """Return a line for each setting, and what stands against its efficiency and against comparing it with the article.

    `silent` are the article's figures of columns that have none here.
    """
    shown = [_cells(row) for row in rows]
    unit = next((row.unit for row in rows if row.unit), "")
    units = ("", "", "", "", "of all", "", unit, *[""] * (len(_NAMES) - _RATE - 1))
    has_value = [any(row[place] not in ("", "-") for row in shown) for place in range(len(_NAMES))]
    kept = [place for place in range(len(_NAMES)) if place <= _RATE or has_value[place]]
    cells_shown = [[line[place] for place in kept] for line in (_NAMES, units, *shown)]
    # the article's words may stand below their line
    parts = [fitted(cells_shown, width, label="article: ") if kept[-1] == len(_NAMES) - 1 else aligned(cells_shown), ""]
    needs = [_needs(row) for row in rows if row.rate is not None]
    spent = [place for place in range(len(_NEEDS)) if any(row[place] != "-" for row in needs)]
    if len(spent) > 1:
        parts += [aligned([[line[place] for place in spent] for line in (_NEEDS, *needs)]), ""]
    lines = [f"{row.setting.label}: {row.why}" for row in rows if row.why]
    untold = dict.fromkeys(row.ratio.verdict.reason for row in rows if row.ratio and row.ratio.value is None)
    lines += [f"speed-up unknown: {reason} (--repetitions)" for reason in untold]
    absent = [name for place, name in enumerate(_NEEDS) if needs and place not in spent]
    if absent:
        lines.append(f"not told here: {', '.join(absent)}{': the device is cpu' if runs.device == 'cpu' else ''}")
    for column, figures in silent.items():
        theirs = "; ".join(f"{figure.row} {figure.value:g} {figure.unit}" for figure in figures)
        lines.append(f"the article's {_COLUMNS[column]}, with nothing here beside: {theirs}")
    if any(len(row.setting.ranks) > 1 for row in rows):
        lines.append("what of a step is communication: nodectl launch --trace torch workload:NAME")
    if runs.on_one_machine:
        lines.append("scaled: hosts share this machine's processors, so that efficiency says nothing of a network")
    data = {str(summary.get("data")) for row in rows for summary in row.summaries}
    lines += [f"trained on {' and '.join(sorted(data))}"] if data else []
    cells = {
        f"{row.setting.label}, {_COLUMNS[column]}": beside for row in rows for column, beside in row.beside.items()
    }
    remarks = [piece for line in lines for piece in wrap(line, width, subsequent_indent="    ")]
    return "\n".join([*parts, *remarks, *comparable_lines(cells, width)])


_COLUMNS = {"tokens_s": "tokens/s", "memory": "GB a card", "speed_up": "speed-up", "gpu_use": "GPU use"}


def _cells(row: Row) -> tuple[str, ...]:
    off = "" if row.off is None else f" ±{50 * row.off:.1f} %"
    figures = [beside.figure for beside in row.beside.values()]
    theirs = [f"{figure.row} {figure.value:g} {figure.unit}" for figure in figures]
    return (
        row.setting.label,
        str(row.setting.devices),
        str(row.nodes or "-"),
        f"{row.parallel} {row.precision}".strip() or "-",
        f"{row.batch:g}" if row.batch is not None else "-",
        str(row.accumulation or "-"),
        "-" if row.rate is None else f"{digits(row.rate)}{off}",
        _number(row.step_ms),
        "baseline" if row.is_baseline else "-" if row.ratio is None else row.ratio.text,
        _efficiency(row),
        ", ".join(theirs),
    )


def _efficiency(row: Row) -> str:
    """Return it with the interval of its speed-up; nothing of a baseline, or where that cannot be told."""
    interval = row.ratio and row.ratio.interval
    if row.efficiency is None or not interval or not row.speed_up:
        return "-"
    low, high = (100 * row.efficiency * end / row.speed_up for end in interval)
    return f"{100 * row.efficiency:.0f} % ({low:.0f} to {high:.0f})"


def _needs(row: Row) -> tuple[str, ...]:
    return (
        row.setting.label,
        _number(row.wait_percent, " %"),
        _number(row.sent_mb, " MB a step"),
        _number(row.memory_gb),
        _number(row.gpu_use_percent, " %"),
        _number(row.mfu_percent, " %"),
    )


def _number(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{digits(value)}{unit}"
