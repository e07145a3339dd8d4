"""Which option of a training means something with which: one table, by which programs refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# if nobody says otherwise: with these values the options that stand on them do nothing
OFF: Mapping[str, Any] = {
    "compress": "none",
    "workers": 0,
    "tensor": 1,
    "stages": 1,
    "dynamic_batch": False,
    "checkpoint_dir": None,
    "steps": 0,
}
# of `compress`: these leave something out, and may send it later
LOSSY = ("powersgd", "topk", "threshold")

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Rule:
    """`options` (by their destinations) mean something only where `holds` of all values; `needs` says where that is.

    `off` is the value by which such an option asks for nothing.
    """

    options: tuple[str, ...]
    needs: str
    holds: Callable[[Values], bool]
    off: Any = False


_DYNAMIC = ("dynamic_start", "dynamic_min", "dynamic_max", "dynamic_window", "dynamic_lr")
_BUCKETS = ("bucket_mb", "bucket_view", "static_graph")
# `strategy` is what --parallel comes to over the ranks, `on` the device, cpu or cuda; `read` what the data are
RULES = (
    Rule(("momentum",), "--optimizer sgd", lambda at: at["optimizer"] == "sgd"),
    Rule(("prefetch",), "--workers, 1 or more", lambda at: at["workers"] > 0),
    Rule(("pin_memory",), "a GPU", lambda at: at["on"] == "cuda"),
    Rule(("precision",), "a GPU where it is tf32", lambda at: at["precision"] != "tf32" or at["on"] == "cuda"),
    Rule(
        ("parallel",),
        "GPUs where it is dataparallel",
        lambda at: at["parallel"] != "dataparallel" or at["on"] == "cuda",
    ),
    Rule(("compress_ratio",), "--compress topk", lambda at: at["compress"] == "topk"),
    Rule(("compress_threshold",), "--compress threshold", lambda at: at["compress"] == "threshold"),
    Rule(("compress_rank",), "--compress powersgd", lambda at: at["compress"] == "powersgd"),
    Rule(("error_feedback",), f"--compress {', '.join(LOSSY)}", lambda at: at["compress"] in LOSSY, off=True),
    Rule(
        _BUCKETS,
        "--parallel ddp over two ranks or more, without --stages and --tensor",
        lambda at: at["stages"] * at["tensor"] == 1 and at["strategy"] == "ddp",
    ),
    Rule(("pipeline",), "--stages, 2 or more", lambda at: at["stages"] > 1),
    Rule(_DYNAMIC, "--dynamic-batch", lambda at: at["dynamic_batch"]),
    Rule(("batch", "course_batch"), "a batch that stays, without --dynamic-batch", lambda at: not at["dynamic_batch"]),
    Rule(("epochs",), "a length by passes, without --steps", lambda at: at["steps"] == 0),
    Rule(("checkpoint_every", "resume"), "--checkpoint-dir", lambda at: at["checkpoint_dir"] is not None),
)


def without_meaning(given: Values, others: Values, rules: Iterable[Rule] = RULES) -> dict[str, str]:
    """Return those of the options `given` that do nothing beside `others`, and what each would need.

    `others` has the values that decide it; if one is not known there, the option is taken to mean something.
    """
    at = {**others, **given}
    return {
        name: rule.needs
        for rule in rules
        for name in rule.options
        if name in given and given[name] is not None and given[name] != rule.off and not _holds(rule, at)
    }


def _holds(rule: Rule, at: Values) -> bool:
    try:
        return bool(rule.holds(at))
    except KeyError:
        return True


def refusal(given: Values, others: Values, rules: Iterable[Rule] = RULES) -> str:
    """Return the refusal of what does nothing, as one sentence; empty if all means something."""
    idle = without_meaning(given, others, rules)
    if not idle:
        return ""
    them = "; ".join(f"{flag(name, given[name])} does nothing here, it goes with {what}" for name, what in idle.items())
    return f"{them}: leave it out"


def flag(name: str, value: Any) -> str:
    """Return the option as it is typed (`--no-error-feedback` of `error_feedback`, False), without its value."""
    return f"--{'no-' if value is False else ''}{name.replace('_', '-')}"
