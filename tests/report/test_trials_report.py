"""A trial as text: regressions that cannot be overlooked, paths that agree left out."""

from __future__ import annotations

from typing import Any

import pytest

from nodectl.model.trial import Trial
from nodectl.report.trials import trial_text, trials_table, verdicts_table
from nodectl.trials.families import judged
from tests.trials.trials import gaining


def trial(**changes: Any) -> Trial:
    series = changes.pop("series", (gaining(30, size_bytes=1 << 20), gaining(-20, size_bytes=1 << 12)))
    verdicts, summaries = judged(series)
    given: dict[str, Any] = {
        "id": "20261121T120000Z-ab12",
        "started": "2026-11-21T12:00:00+00:00",
        "ended": "2026-11-21T12:04:00+00:00",
        "complete": True,
        "reason": "",
        "nodectl": "1",
        "inventory": ("hosts.yml",),
        "limit": None,
        "hosts": {"b": {}, "a": {}},
        "baseline": "stock",
        "candidates": ("candidate",),
        "probes": ("nccl",),
        "pairs": 10,
        "options": {},
        "series": series,
        "verdicts": verdicts,
        "summaries": summaries,
    }
    return Trial(**{**given, **changes})


def test_a_regression_at_one_size_is_marked_and_decides_the_outcome() -> None:
    text = trial_text(trial())
    small = next(line for line in text.splitlines() if "4 KiB" in line)
    assert small.split()[:4] == ["candidate", "nccl", "4", "KiB"]
    assert "worse  <--" in small and "-20.0 %" in small
    large = next(line for line in text.splitlines() if "1 MiB" in line)
    assert "better " in large and "<--" not in large
    assert text.splitlines()[-1] == "candidate against stock: worse: is WORSE somewhere"


@pytest.mark.parametrize(
    ("percent", "told"),
    [(30, "better: is better, and nowhere worse"), (0, "noise: makes no difference that can be told from noise")],
)
def test_the_outcome_stands_last(percent: float, told: str) -> None:
    assert trial_text(trial(series=(gaining(percent),))).splitlines()[-1] == f"candidate against stock: {told}"


def test_what_is_undecided_says_why() -> None:
    lines = trial_text(trial(series=(gaining(30, pairs=3),), complete=False, reason="lost: b")).splitlines()
    assert lines[0] == "trial 20261121T120000Z-ab12: a,b, 10 pairs, ended early: lost: b"
    assert lines[-2:] == [
        "candidate against stock: unknown: is undecided",
        "  nccl: too few pairs: 3 of 3 are complete, and 5 are needed",
    ]
    # nothing is claimed of it
    assert " - " in next(line for line in lines if line.startswith("candidate  nccl"))


def test_paths_that_say_what_their_mean_says_are_left_out() -> None:
    subjects = ["mean of 3 paths, streams 1", "a -> b, streams 1", "b -> c, streams 1", "c -> a, streams 1"]
    gains = [20, 25, -30, 22]
    many = tuple(gaining(percent, subject=subject) for percent, subject in zip(gains, subjects, strict=True))
    table = verdicts_table(judged(many)[0])
    # what all of them share needs no words
    assert "streams" not in table
    assert [each for each in subjects if each.removesuffix(", streams 1") in table] == [subjects[0], subjects[2]]
    assert "(2 single paths or hosts are not shown: --all)" in table
    # without a mean each stands for itself
    assert "a -> b" in verdicts_table(judged(many[1:2])[0])


def test_a_line_for_each_trial() -> None:
    table = trials_table([trial(), trial(series=(), complete=False)], 100).splitlines()
    assert table[1].split("  ")[0] == "20261121T120000Z-ab12"
    assert "2026-11-21 12:00:00" in table[1] and "candidate worse" in table[1]
    assert "ended early" in table[2]
