"""Tables of workload runs: 1 to many devices at an equal batch a device, and modes, beside the articles' own rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from statistics import median
from textwrap import wrap
from typing import Any

from nodectl.articles.claims import Figure, all_figures, article
from nodectl.articles.comparing import Compared, Judge, Ratio, elsewhere, nearest, ratios, told_median
from nodectl.articles.programs import NAME, Outcome, Plan, Runs, Setting, ranks_of, rate_of, usual_arguments
from nodectl.articles.runs import of_summary
from nodectl.common.counting import counted
from nodectl.common.units import digits
from nodectl.probes.base import spread
from nodectl.probes.endpoints import Endpoint
from nodectl.report.table import aligned, fitted

SCALING, MODES = "bench scaling", "bench modes"
# above this the baseline was no baseline
_MOST_EFFICIENCY = 1.05
_FEW_HOSTS = 8
# steps between two lines, which nobody reads
_NEVER = 10**6
_SAME_PROGRAM = (
    "the same program as single on this device: nn.DataParallel shares a batch among GPUs, and calls the model"
)
# strategies that one model of all devices is cut by: the program's option with their number
_CUTS = {"tensor": "tensor", "pipeline": "stages"}


@dataclass(frozen=True, slots=True)
class Wish:
    """Hold what is to be run; None and nothing if the program's usual counts. A run ends by `steps` or `seconds`."""

    program: str
    parallel: tuple[str, ...] = ("ddp",)
    devices: tuple[int, ...] = ()
    batch: int | None = None
    accumulation: int | None = None
    steps: int | None = None
    seconds: float | None = None
    arguments: tuple[str, ...] = ()


def plan_for(command: str, wish: Wish) -> Plan:
    """Return the plan of `bench scaling` or `bench modes`: it makes the settings once the hosts are known."""
    return partial(_modes if command == MODES else _scaling, wish)


def _scaling(wish: Wish, ready: Sequence[Endpoint], device: str) -> list[Setting]:
    most = _devices(ready, device)
    equal = {"batch": wish.batch, "accumulation": wish.accumulation}
    settings = []
    for count in wish.devices or _counts(ready, device):
        for parallel in wish.parallel if count > 1 else ("single",):
            if parallel == "dataparallel" and device == "cpu":
                settings.append(
                    Setting(f"{counted(count, 'device')}, {parallel}", (), (), count, refused=_SAME_PROGRAM)
                )
                continue
            arguments = _arguments(wish, device, parallel, count, **equal)
            settings.append(_setting(f"{counted(count, 'device')}, {parallel}", count, arguments, ready, device))
    return settings if max(wish.devices, default=0) > most else [*settings, *_article_rows(wish, ready, device)]


def _article_rows(wish: Wish, ready: Sequence[Endpoint], device: str) -> list[Setting]:
    rows = {figure.row: figure for figure in _claimed(SCALING, wish.program) if "batch" in figure.conditions}
    settings = []
    for name, figure in rows.items():
        count, batch, accumulation = (int(figure.conditions[key]) for key in ("devices", "batch", "accumulation"))
        label, parallel = f"article {figure.article}: {name}", wish.parallel[0] if count > 1 else "single"
        # a model that is cut over all devices has one batch, not one on each
        copies = 1 if parallel in _CUTS else count
        if batch % copies:
            why = f"a batch of {batch} is no multiple of {count} devices"
            settings.append(Setting(label, (), (), count, refused=why))
            continue
        arguments = _arguments(wish, device, parallel, count, batch=batch // copies, accumulation=accumulation)
        settings.append(_setting(label, count, arguments, ready, device))
    return settings


def _modes(wish: Wish, ready: Sequence[Endpoint], device: str) -> list[Setting]:
    host_devices, most = _devices(ready[:1], device), _devices(ready, device)
    # the article's fp16 needs a GPU; a processor computes bf16
    mixed, plain = ("fp16" if device == "cuda" else "bf16"), "fp32"
    wanted = (
        ("single", 1, "single", plain),
        ("dataparallel", host_devices, "dataparallel", plain),
        ("ddp", most, "ddp", plain),
        ("amp", most, "ddp" if most > 1 else "single", mixed),
    )
    settings = []
    for label, count, parallel, precision in wanted:
        if parallel == "dataparallel" and (device == "cpu" or count == 1):
            # it only calls the model if there are not two GPUs to share a batch among
            settings.append(Setting(label, (), (), count, refused=_SAME_PROGRAM))
            continue
        if parallel == "ddp" and count == 1:
            settings.append(Setting(label, (), (), 1, refused="there is one device: nothing to share among ranks"))
            continue
        arguments = _arguments(wish, device, parallel, count, batch=wish.batch, accumulation=wish.accumulation)
        setting = _setting(label, count, (*arguments, f"--precision={precision}"), ready, device)
        if parallel == "dataparallel":
            setting = Setting(label, (1,), setting.arguments, count)
        settings.append(setting)
    return settings


def _setting(label: str, count: int, arguments: tuple[str, ...], ready: Sequence[Endpoint], device: str) -> Setting:
    """So many devices of the first hosts, each of which gives all of its own if it is not the only one."""
    left, ranks = count, []
    for endpoint in ready:
        if left <= 0:
            break
        ranks.append(min(left, _devices([endpoint], device)))
        left -= ranks[-1]
    if left:
        return Setting(label, (), arguments, count, f"there are {counted(_devices(ready, device), 'device')}")
    if len(set(ranks)) > 1:
        uneven = " and ".join(map(str, dict.fromkeys(ranks)))
        return Setting(label, (), arguments, count, f"{uneven} ranks a host: all hosts take part with equally many")
    return Setting(label, tuple(ranks), arguments, count)


def _arguments(
    wish: Wish, device: str, parallel: str, count: int, *, batch: int | None, accumulation: int | None
) -> tuple[str, ...]:
    """Later ones count: the program's usual here, what the row says, what the operator gives it."""
    usual = usual_arguments(wish.program, device)
    given = {
        "batch": batch,
        "accumulation": accumulation,
        "steps": wish.steps,
        "seconds": wish.seconds,
        "log-every": _NEVER,
        "parallel": "auto" if parallel in _CUTS else parallel,
    }
    row = [f"--{name}={value}" for name, value in given.items() if value is not None]
    # what cuts one model into so many parts
    cut = [f"--{_CUTS[parallel]}={count}"] if parallel in _CUTS else []
    return (*usual, *row, "--no-resume", *wish.arguments, *cut)


def _devices(ready: Sequence[Endpoint], device: str) -> int:
    return sum(ranks_of(ready, device))


def _counts(ready: Sequence[Endpoint], device: str) -> list[int]:
    """1 and on: powers of two and all on the first host, then whole hosts; each number where they are few."""
    host_devices, hosts = _devices(ready[:1], device), len(ready)
    inside = {1, host_devices, *(1 << power for power in range(host_devices.bit_length()))}
    across = range(1, hosts + 1) if hosts <= _FEW_HOSTS else [1 << power for power in range(hosts.bit_length())]
    return sorted({*inside, *(host_devices * number for number in {*across, hosts} if number <= hosts)})


def _claimed(command: str, program: str) -> list[Figure]:
    return [
        figure
        for figure in all_figures()
        if article(figure.article).claims[figure.claim].measured_by == command
        and figure.conditions.get("workload") == program
    ]


# of a row, by the names that its document has: what a summary tells, and the factor from its unit
_FIGURES = {
    "step_ms": ("median_step_ms", 1.0),
    "memory_gb": ("peak_memory_bytes", 1e-9),
    "gpu_use_percent": ("gpu_utilisation", 100.0),
    "mfu_percent": ("mfu", 100.0),
    "data_wait_percent": ("data_wait_share", 100.0),
    "sent_mb_per_step": ("net_bytes_per_step", 1e-6),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One setting: medians over its repetitions; `why` is what stands in the place of figures or of the efficiency.

    `figures` are those of `_FIGURES`. `speed_up` and `efficiency` are against `baseline`, the fewest devices at the
    same batch a device and accumulation; `ratio` is the speed-up as the runs in turn tell it, and None of the baseline
    itself.
    """

    setting: Setting
    why: str = ""
    unit: str = ""
    rates: tuple[float, ...] = ()
    figures: Mapping[str, float | None] = field(default_factory=dict)
    batch: float | None = None
    accumulation: int | None = None
    parallel: str = ""
    precision: str = ""
    conditions: dict[str, object] = field(default_factory=dict)
    speed_up: float | None = None
    efficiency: float | None = None
    ratio: Ratio | None = None
    baseline: int | None = None
    is_baseline: bool = False
    beside: dict[str, Figure] = field(default_factory=dict)
    summaries: tuple[Any, ...] = ()

    @property
    def rate(self) -> float | None:
        """Return what all ranks did in a second; None of a setting that was not run to its end."""
        return median(self.rates) if self.rates else None

    @property
    def off(self) -> float | None:
        """Return the spread of the rates."""
        return spread(self.rates, median(self.rates)) if self.rates else None

    @property
    def nodes(self) -> int | None:
        """Return how many hosts took part."""
        return len(self.setting.ranks) if self.summaries else None

    @property
    def a_device(self) -> tuple[float, int] | None:
        """Batch a device and accumulation: equal where two rows can be held against each other."""
        if self.batch is None or self.accumulation is None:
            return None
        return self.batch / self.setting.devices, self.accumulation


def rows_of(runs: Runs, command: str, program: str, judge: Judge) -> list[Row]:
    """Return a row for each setting, with speed-up, efficiency and the article's figures beside it."""
    if not runs.outcomes:
        return []
    rows = [_row(outcomes) for outcomes in runs.outcomes]
    fewest = min((row for row in rows if row.rate), key=lambda row: row.setting.devices, default=None)
    bases = [fewest if command == MODES else _baseline(row, rows) for row in rows]
    against = {
        row.setting.label: Compared(row.setting.label, base.setting.label, NAME, row.unit, row.rates, base.rates)
        for row, base in zip(rows, bases, strict=True)
        if base is not None and row is not base and row.rate is not None
    }
    ratios_by_label = ratios(against, judge)
    scaled = [_against(row, base, fewest, ratios_by_label) for row, base in zip(rows, bases, strict=True)]
    return [_with_article(row, command, program) for row in scaled]


def _row(outcomes: Sequence[Outcome]) -> Row:
    summaries = [outcome.summary for outcome in outcomes if outcome.summary is not None]
    setting = outcomes[0].setting
    if not summaries:
        return Row(setting, why=outcomes[-1].why)
    first, accumulation = of_summary(summaries[0]).conditions, summaries[0].get("accumulation")
    batch = first.get("batch")
    cuts = [
        name for name, option in _CUTS.items() if any(text.startswith(f"--{option}=") for text in setting.arguments)
    ]
    parallel = "+".join(cuts) or str(first.get("parallel", ""))
    return Row(
        setting,
        unit=rate_of(summaries[0])[1],
        rates=tuple(rate_of(summary)[0] for summary in summaries),
        figures={
            name: told_median([factor * told for each in summaries if (told := each.get(key)) is not None])
            for name, (key, factor) in _FIGURES.items()
        },
        batch=batch if isinstance(batch, int | float) else None,
        accumulation=accumulation if isinstance(accumulation, int) else None,
        parallel=parallel,
        precision=str(first.get("precision", "")),
        conditions={**first, "devices": setting.devices, "mode": setting.label, "parallel": parallel},
        summaries=tuple(summaries),
    )


def _baseline(row: Row, rows: Sequence[Row]) -> Row | None:
    same = [other for other in rows if other.rate and row.a_device and other.a_device == row.a_device]
    return min(same, key=lambda other: other.setting.devices, default=None)


def _against(row: Row, base: Row | None, fewest: Row | None, ratios_by_label: Mapping[str, Ratio]) -> Row:
    """Speed-up over the baseline; efficiency only where batch a device, accumulation and precision are its."""
    if row.rate is None or base is None or base.rate is None or fewest is None:
        return row
    if row is base and row.setting.devices > fewest.setting.devices:
        return replace(row, why=f"no efficiency: {_per_device(row)}, fewer devices had {_per_device(fewest)}")
    ratio = None if row is base else ratios_by_label[row.setting.label]
    speed_up = 1.0 if ratio is None else ratio.value or row.rate / base.rate
    changed = replace(row, speed_up=speed_up, baseline=base.setting.devices, is_baseline=row is base, ratio=ratio)
    if row.precision != base.precision:
        return replace(changed, why=f"no efficiency: {row.precision}, and the baseline is {base.precision}")
    if row.a_device != base.a_device:
        return replace(changed, why=f"no efficiency: {_per_device(row)}, the baseline had {_per_device(base)}")
    efficiency = speed_up * base.setting.devices / row.setting.devices
    why = "baseline not comparable: more than devices can give" if efficiency > _MOST_EFFICIENCY else ""
    return replace(changed, efficiency=efficiency, why=why)


def _per_device(row: Row) -> str:
    batch, accumulation = row.a_device or (0.0, 0)
    return f"batch {batch:g} a device with accumulation {accumulation}"


def _with_article(row: Row, command: str, program: str) -> Row:
    claimed = _claimed(command, program)
    measured = {
        "tokens_s": row.rate if row.unit == "tokens/s" else None,
        "memory": row.figures.get("memory_gb"),
        # a baseline is once as fast as itself, which nobody has measured
        "speed_up": None if row.is_baseline else row.speed_up,
        "gpu_use": row.figures.get("gpu_use_percent"),
    }
    device = row.conditions.get("device")
    ours = {**row.conditions, "baseline_devices": row.baseline, "baseline_device": device}
    beside = {
        column: nearest([figure for figure in claimed if figure.column == column], ours)
        for column in dict.fromkeys(figure.column for figure in claimed)
        if measured[column] is not None
    }
    return replace(row, beside=beside)


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
        "nodes": row.nodes,
        "parallel": row.parallel or None,
        "precision": row.precision or None,
        "batch": row.batch,
        "accumulation": row.accumulation,
        "value": row.rate,
        "unit": row.unit or None,
        "spread": row.off,
        **{name: row.figures.get(name) for name in _FIGURES},
        "speed_up": row.speed_up,
        "efficiency": row.efficiency,
        "speed_up_verdict": row.ratio and row.ratio.document,
        "why": row.why or None,
        "article": {column: beside.document for column, beside in row.beside.items()},
        "arguments": list(row.setting.arguments),
        "summaries": list(row.summaries),
    }


_NAMES = ("", "DEVICES", "NODES", "PARALLEL", "BATCH", "ACC.", "RATE", "STEP ms", "SPEED-UP", "EFFICIENCY", "ARTICLE")
_RATE = _NAMES.index("RATE")
# what a step is spent on, and what it needs
_NEEDS = {
    "WAIT FOR DATA": ("data_wait_percent", " %"),
    "SENT BY ALL HOSTS": ("sent_mb_per_step", " MB a step"),
    "GB A CARD": ("memory_gb", ""),
    "GPU USE": ("gpu_use_percent", " %"),
    "MFU": ("mfu_percent", " %"),
}


def scaling_table(runs: Runs, rows: Sequence[Row], width: int) -> str:
    """Return a line for each setting, and what stands against its efficiency and against comparing it."""
    shown = [_cells(row) for row in rows]
    unit = next((row.unit for row in rows if row.unit), "")
    units = ("", "", "", "", "of all", "", unit, *[""] * (len(_NAMES) - _RATE - 1))
    has_value = [any(row[place] not in ("", "-") for row in shown) for place in range(len(_NAMES))]
    kept = [place for place in range(len(_NAMES)) if place <= _RATE or has_value[place]]
    cells_shown = [[line[place] for place in kept] for line in (_NAMES, units, *shown)]
    # the article's words may stand below their line
    parts = [fitted(cells_shown, width, label="article: ") if kept[-1] == len(_NAMES) - 1 else aligned(cells_shown), ""]
    measured = [row for row in rows if row.rate is not None]
    needs = {title: [_number(row.figures[name], unit) for row in measured] for title, (name, unit) in _NEEDS.items()}
    spent = {title: cells for title, cells in needs.items() if set(cells) - {"-"}}
    if spent:
        labels = [row.setting.label for row in measured]
        parts += [aligned([("", *spent), *zip(labels, *spent.values(), strict=True)]), ""]
    lines = [f"{row.setting.label}: {row.why}" for row in rows if row.why]
    untold = dict.fromkeys(row.ratio.verdict.reason for row in rows if row.ratio and row.ratio.value is None)
    lines += [f"speed-up unknown: {reason} (--repetitions)" for reason in untold]
    absent = [title for title in needs if measured and title not in spent]
    if absent:
        lines.append(f"not told here: {', '.join(absent)}{': the device is cpu' if runs.device == 'cpu' else ''}")
    if any(len(row.setting.ranks) > 1 for row in rows):
        lines.append("what of a step is communication: nodectl launch --trace torch workload:NAME")
    if runs.on_one_machine:
        lines.append("scaled: hosts share this machine's processors, so that efficiency says nothing of a network")
    data = {str(summary.get("data")) for row in rows for summary in row.summaries}
    lines += [f"trained on {' and '.join(sorted(data))}"] if data else []
    lines += [elsewhere(number) for number in {figure.article for row in rows for figure in row.beside.values()}]
    return "\n".join([*parts, *(piece for line in lines for piece in wrap(line, width, subsequent_indent="    "))])


def _cells(row: Row) -> tuple[str, ...]:
    off = "" if row.off is None else f" ±{50 * row.off:.1f} %"
    theirs = [f"{figure.row} {figure.value:g} {figure.unit}" for figure in row.beside.values()]
    return (
        row.setting.label,
        str(row.setting.devices),
        str(row.nodes or "-"),
        f"{row.parallel} {row.precision}".strip() or "-",
        f"{row.batch:g}" if row.batch is not None else "-",
        str(row.accumulation or "-"),
        "-" if row.rate is None else f"{digits(row.rate)}{off}",
        _number(row.figures.get("step_ms")),
        "baseline" if row.is_baseline else "-" if row.ratio is None else row.ratio.text,
        _efficiency(row),
        ", ".join(theirs),
    )


def _efficiency(row: Row) -> str:
    interval = row.ratio and row.ratio.interval
    if row.efficiency is None or not interval or not row.speed_up:
        return "-"
    low, high = (100 * row.efficiency * end / row.speed_up for end in interval)
    return f"{100 * row.efficiency:.0f} % ({low:.0f} to {high:.0f})"


def _number(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{digits(value)}{unit}"
