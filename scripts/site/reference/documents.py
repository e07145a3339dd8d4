"""The JSON documents of `--output json`: all by name, and of those that programs read most a JSON Schema."""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from nodectl.cli.root import commands
from nodectl.common.resources import payload_dir
from nodectl.model.acceptance import HostAcceptance, Seen, Step, Taken
from nodectl.model.finding import Finding
from nodectl.model.job import JobState, RankTrace
from nodectl.model.measurement import Comparison, Measurement
from nodectl.model.result import Outcome
from nodectl.model.status import Status
from nodectl.model.trial import Series
from nodectl.model.verdict import Outcome as Judged
from nodectl.model.verdict import Verdict
from scripts.site.pages import plain, table

_CLI = payload_dir().parent / "cli"
# the functions that print a document by its name
_PRINTERS = {"show", "emit_json", "as_json", "conclude"}

_PAGE = """# JSON documents

`--output json` prints one document, with its name and the number of its form: `"schema": "nodectl.health/1"`. The
number changes when a field goes away, or means something else; new fields may come without it. What could not be told
is null. Messages go to standard error, and the [exit status](exit-statuses.md) is the same as without.

{documents}

`nodectl parse TOOL` prints `nodectl.parse.TOOL/1`, a form for each [tool](tools.md); `nodectl bench scaling` and
`bench modes` have forms of their names ([bench](../bench.md)). A command that refuses before it has done anything
prints `findings` alone.

{shapes}

## Parts

{parts}
"""


class ShortFinding(TypedDict):
    """A finding as `health`, `provision` and `doctor` print it, each value a text."""

    host: str
    check: str
    subject: str
    status: Status
    action: str
    expected: str
    actual: str
    remedy: str
    evidence: str


class Names(TypedDict):
    """The profiles that a host was held against."""

    hardware: str
    stack: str
    tuning: str


class Doctor(TypedDict):
    """Findings of `nodectl doctor`; `host` is `this machine` where a finding is about no host."""

    findings: list[ShortFinding]


class Health(TypedDict):
    """Findings of `nodectl health`: the worst status of each host, and every finding."""

    hosts: dict[str, Status]
    profiles: dict[str, Names]
    findings: list[ShortFinding]
    recorded: str | None


class Probe(TypedDict):
    """Measurements of `nodectl probe`; `comparison` with `--compare` alone."""

    measurements: list[Measurement]
    findings: list[Finding]
    comparison: NotRequired[Comparison]


class Answer(TypedDict):
    """The command's result on one host; `exit_status` is null unless it ran there, `cut`: 16 MiB of output came."""

    host: str
    outcome: Outcome
    exit_status: int | None
    stdout: str
    stderr: str
    duration_s: float
    error: str
    remedy: str
    cut: bool


class Exec(TypedDict):
    """The command of `nodectl exec`, host by host."""

    results: list[Answer]


class JobFailure(TypedDict):
    """One thing that went wrong in a job; `class` is its kind, narrower."""

    host: str
    rank: int | None
    kind: str
    message: str
    exit_status: int | None


class Cause(JobFailure):
    """The failure that ended a job first, with all that is known of it."""

    evidence: list[str]
    remedy: str
    traceback: str


class PastAttempt(TypedDict):
    """A run of the job's ranks that was followed by another."""

    number: int
    hosts: list[str]
    started_at: float
    ended_at: float | None
    cause: JobFailure | None


class Job(TypedDict):
    """One launch, as far as its hosts could be asked; times are seconds since 1970."""

    id: str
    state: JobState
    hosts: list[str]
    exit_status: int | None
    first_failure: Cause | None
    consequences: list[JobFailure]
    script: str
    args: list[str]
    nproc_per_node: int
    started_at: float
    ended_at: float | None
    operator: str
    attempt: int
    nodes: list[str]
    restarts: int
    past_attempts: list[PastAttempt]
    no_restart: str
    stopped_by: str
    skipped: list[str]
    traces: list[RankTrace]
    host_states: dict[str, str]
    outputs: dict[str, list[str]]
    processes: dict[str, int]
    unreachable: dict[str, str]


class Jobs(TypedDict):
    """The jobs that were asked for; a command that does something to them adds fields of its own."""

    jobs: list[Job]


class Tally(TypedDict):
    """A profile of a trial, and how many of its verdicts are which."""

    profile: str
    verdict: Judged
    wins: int
    regressions: int
    undecided: int


class Trial(TypedDict):
    """A trial of tunings as it is kept: `trials` are the verdicts, `series` the pairs that they follow from."""

    id: str
    started: str
    ended: str
    complete: bool
    reason: str
    trials: list[Verdict]
    summaries: list[Tally]
    nodectl: str
    inventory: list[str]
    limit: str | None
    hosts: dict[str, dict[str, Any]]
    baseline: str
    candidates: list[str]
    probes: list[str]
    pairs: int
    options: dict[str, Any]
    series: list[Series]
    findings: list[Finding]
    conditions: list[dict[str, Any]]


class Accept(TypedDict):
    """An acceptance as it is kept: a verdict for each host, the steps that led to it, what they saw and took."""

    folder: NotRequired[str]
    id: str
    level: str
    fleet: str
    began: float
    ended: float | None
    nature: str
    nodectl: str
    steps: list[Step]
    hosts: list[HostAcceptance]
    seen: list[Seen]
    taken: list[Taken]


# JSON's own word for what Python cannot have as a name
_RENAMED = {"JobFailure": {"class": {"type": "string"}}, "Cause": {"class": {"type": "string"}}}
SHAPES: Mapping[str, Any] = {
    "accept": Accept,
    "doctor": Doctor,
    "exec": Exec,
    "health": Health,
    "jobs": Jobs,
    "probe": Probe,
    "tune-trial": Trial,
}
# of two enumerations with one name the one that has another here
_PARTS = {"tune-trial": {"Outcome": "TrialOutcome"}}


def pages() -> dict[str, str]:
    """`json.md`, and `schemas/NAME.json`."""
    schemas = {name: schema(name) for name in SHAPES}
    rows = [
        [
            f"`nodectl.{name}/1`",
            ", ".join(f"[`nodectl {command}`](cli/{command}.md)" for command in sorted(printers)),
            f"[fields](#nodectl{name}1), [JSON Schema](schemas/{name}.json)" if name in schemas else "",
        ]
        for name, printers in sorted(printed().items())
    ]
    parts = {part: value for found in schemas.values() for part, value in found["$defs"].items()}
    page = _PAGE.format(
        documents=table(["document", "printed by", "form"], rows),
        shapes="\n\n".join(_section(f"## `nodectl.{name}/1`", found) for name, found in schemas.items()),
        parts="\n\n".join(_section(f"### {part}", value) for part, value in sorted(parts.items())),
    )
    return {"json.md": page} | {
        f"schemas/{name}.json": json.dumps(found, indent=2) + "\n" for name, found in schemas.items()
    }


def printed() -> dict[str, set[str]]:
    """Document → the commands whose modules print it, as their calls name it."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in _CLI.rglob("*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for function in (one for one in body if isinstance(one, ast.FunctionDef)):
            for name in _names(function):
                found[name] |= _commands_of(path, function.name)
    return found


def _names(function: ast.FunctionDef) -> Iterator[str]:
    for call in (one for one in ast.walk(function) if isinstance(one, ast.Call)):
        called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if called in _PRINTERS:
            words = (one.value for one in call.args[:2] if isinstance(one, ast.Constant))
            yield from (word for word in words if isinstance(word, str) and word)


def _commands_of(path: Path, function: str) -> set[str]:
    """Return the command of that module or folder, else those of modules that import the function from it."""
    place = path.relative_to(_CLI).with_suffix("").parts
    if place[0] in commands():
        return {place[0]}
    imports = rf"from nodectl\.cli\.{'.'.join(place)} import .*" + ("" if function[0] == "_" else rf"\b{function}\b")
    users = (user for user in _CLI.rglob("*.py") if re.search(imports, user.read_text(encoding="utf-8")))
    return {user.relative_to(_CLI).with_suffix("").parts[0] for user in users} & set(commands())


def schema(name: str, *, closed: bool = False) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the document of that name; `closed`: without room for other fields."""
    text = json.dumps(TypeAdapter(SHAPES[name]).json_schema())
    for part, alias in _PARTS.get(name, {}).items():
        text = text.replace(f'"{part}": {{', f'"{alias}": {{').replace(f'$defs/{part}"', f'$defs/{alias}"')
    found: dict[str, Any] = json.loads(text)
    for part, value in found["$defs"].items():
        value.get("properties", {}).update(_RENAMED.get(part, {}))
        _fill(value, closed=closed)
    required = found["required"]
    _fill(found, closed=closed)
    found["required"] = ["schema", *required]
    found["properties"] = {"schema": {"const": f"nodectl.{name}/1"}, **found["properties"]}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {**head, **found, "title": f"nodectl.{name}/1"}


def _fill(value: dict[str, Any], *, closed: bool) -> None:
    """Every field is there, also what has a default in Python."""
    if "properties" not in value:
        return
    value["required"] = list(value["properties"])
    if closed:
        value["additionalProperties"] = False
    for field in value["properties"].values():
        field.pop("default", None)
        field.pop("title", None)


def _section(heading: str, value: Mapping[str, Any]) -> str:
    """Return a form under its heading: what it is, its fields with their types."""
    about = [plain(text) for text in value.get("description", "").split("\n\n")]
    rows = [[f"`{name}`", _type(field)] for name, field in value.get("properties", {}).items()]
    words = ", ".join(f"`{word}`" for word in value.get("enum", ()))
    return "\n\n".join(
        filter(None, [heading, *about, f"One of {words}." if words else "", table(["field", "type"], rows)])
    )


def _type(field: Mapping[str, Any]) -> str:
    """Return the type in words, a part as a link."""
    if "$ref" in field:
        part = field["$ref"].rpartition("/")[2]
        return f"[{part}](#{part.lower()})"
    if "const" in field:
        return f"`{field['const']}`"
    if "anyOf" in field:
        return " or ".join(map(_type, field["anyOf"]))
    if field.get("type") == "array":
        inner = " and ".join(_inner(field))
        return f"list of {inner}" if inner else "list"
    if isinstance(inner_type := field.get("additionalProperties"), dict) and inner_type:
        return f"object of {_type(inner_type)}"
    return str(field.get("type", "anything"))


def _inner(field: Mapping[str, Any]) -> Iterator[str]:
    if "prefixItems" in field:
        yield from map(_type, field["prefixItems"])
    elif field.get("items"):
        yield _type(field["items"])
