"""Results of trainings as users have them: summary lines in logs, and JSON documents of `nodectl bench`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodectl.common import bounded_json
from nodectl.errors import UsageError

_MOST_BYTES = 64 << 20
_FORMS = "a log with the JSON line that ends a workload's output, or a JSON document of `nodectl bench`"
# every document says its schema; the number changes with what its fields mean
_OURS, _READ = "nodectl.", re.compile(r"nodectl\.[a-z0-9-]+/1")
# beyond these no machine's figure lies, whatever its unit: a log that says so is broken
_LEAST, _MOST = 1e-12, 1e24
_LONGEST = 60
# a summary has all of these
_SUMMARY = frozenset({"workload", "median_step_ms", "world_size", "global_batch"})
# of a summary, what makes it another training where it differs
_COURSE = ("data", "params", "parallel", "precision", "batch_per_rank", "accumulation", "global_batch", "world_size",
           "device_name", "steps")  # fmt: skip
# of a summary's options, those that it tells by other names
_TOLD = frozenset({"batch", "accumulation", "precision", "ranks", "data", "course_batch"})


@dataclass(frozen=True, slots=True)
class Run:
    """One run; None for what it does not tell, with the reason in `missing`.

    `conditions` have the names of claims, `course` what must be equal for two runs to be the same training.
    `network_gbit_s` is what one host sent.
    """

    what: str
    step_s: float | None
    samples: float | None = None
    total_s: float | None = None
    gpu_use_percent: float | None = None
    network_gbit_s: float | None = None
    conditions: Mapping[str, object] = field(default_factory=dict)
    course: Mapping[str, object] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)


def read_paths(paths: list[Path]) -> list[Run]:
    """Return the runs of all files, and of all files in folders, in their order; UsageError if there are none."""
    files = [file for path in paths for file in (sorted(path.iterdir()) if path.is_dir() else [path]) if file.is_file()]
    runs = [run for file in files for run in read_text(_text(file), str(file))]
    if not runs:
        named = ", ".join(map(str, paths))
        raise UsageError(f"{named}: no result of a training in it", f"give {_FORMS}")
    return runs


def _text(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}", f"give {_FORMS}") from error
    if len(content) > _MOST_BYTES:
        raise UsageError(f"{file}: larger than {_MOST_BYTES >> 20} MiB", "give the lines with the summary alone")
    return content.decode(errors="replace")


def read_text(text: str, where: str = "output") -> list[Run]:
    """Return the runs of a document, or of a log's lines, whatever stands before the JSON in them.

    UsageError, with `where`, for a document whose schema is not known.
    """
    whole = _parsed(text)
    documents = [whole] if whole is not None else [_parsed(line[line.find("{") :]) for line in text.splitlines()]
    for document in documents:
        schema = document.get("schema") if isinstance(document, dict) else None
        if isinstance(schema, str) and schema.startswith(_OURS) and not _READ.fullmatch(schema):
            remedy = "read it with the nodectl that wrote it, or measure again"
            raise UsageError(f"{where}: {_word(schema)} is a form that this nodectl does not read", remedy)
    return [run for document in documents for run in _runs(document)]


def _parsed(text: str) -> Any:
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return bounded_json.loads(text)
    except ValueError:
        return None


def _runs(document: Any) -> Iterator[Run]:
    if isinstance(document, list):
        for part in document:
            yield from _runs(part)
    elif isinstance(document, dict):
        if document.keys() >= _SUMMARY:
            yield of_summary(document)
        else:
            for part in document.values():
                yield from _runs(part)


def of_summary(given: Mapping[str, Any]) -> Run:
    """Return the run that the last line of a workload's program tells."""
    step_ms, timed_s = _figure(given.get("median_step_ms")), _figure(given.get("timed_s"))
    hosts = len(given["hosts"]) if isinstance(given.get("hosts"), list) else 0
    steps, use, sent = (_figure(given.get(name)) for name in ("timed_steps", "gpu_utilisation", "net_bytes_per_step"))
    device = given.get("device_name") or given.get("device")
    sent_s = steps * sent / timed_s if steps and timed_s and sent is not None else None
    on_cpu = given.get("device") == "cpu"
    missing = {
        "gpu_use_percent": "no GPU: the device is cpu" if on_cpu else "nvidia-smi did not tell it",
        "network_gbit_s": "one host: nothing crosses the network" if hosts < 2 else "the run did not count it",
        "total_s": "the run does not tell it",
        "step_s": "no step after the warm-up",
    }
    batch, accumulation, whole = (
        _figure(given.get(name)) for name in ("batch_per_rank", "accumulation", "global_batch")
    )
    conditions = {
        **{name: given.get(name) for name in ("workload", "preset", "parallel", "precision")},
        "device": device,
        "devices": _figure(given.get("world_size")),
        "nodes": hosts or None,
        "batch_per_rank": batch,
        "accumulation": accumulation,
        "batch": whole / accumulation if whole and accumulation else None,
    }
    return Run(
        what=" ".join(_word(given[name]) for name in ("workload", "preset") if given.get(name)),
        step_s=step_ms / 1e3 if step_ms else None,
        samples=steps * whole if steps and whole else None,
        total_s=timed_s or None,
        gpu_use_percent=None if use is None else 100 * use,
        network_gbit_s=None if sent_s is None or hosts < 2 else 8 * sent_s / hosts / 1e9,
        conditions={name: _plain(value) for name, value in conditions.items() if value is not None},
        course=_course(given),
        missing=missing,
    )


def _course(given: Mapping[str, Any]) -> dict[str, object]:
    """All options that change what is computed; of a summary without them what it tells of its compression."""
    options, compression = given.get("options"), given.get("compression")
    course = {name: given[name] for name in _COURSE if given.get(name) is not None}
    if isinstance(options, dict):
        course |= {name: value for name, value in options.items() if name not in _TOLD and value is not None}
    elif isinstance(compression, dict) and compression.get("kind"):
        course |= {"compress": compression["kind"], "error_feedback": compression.get("error_feedback", False)}
    return {_word(name): _plain(value) for name, value in course.items()}


def _figure(value: object) -> float | None:
    """Return a number that a machine may have come to; None for no number, one below 0, or infinite."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if value == 0 or _LEAST <= value <= _MOST else None


def _plain(value: object) -> object:
    return value if isinstance(value, int | float) else _word(value)


def _word(value: object) -> str:
    text = " ".join("".join(char if char.isprintable() else " " for char in str(value)).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
