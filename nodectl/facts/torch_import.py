"""What PyTorch is when a job imports it: versions and files of the libraries that it really loads."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nodectl.common import bounded_json
from nodectl.common.resources import payload_dir
from nodectl.errors import ParseError
from nodectl.facts.base import Fact, entry
from nodectl.facts.versions import venv_of
from nodectl.model.host import Host
from nodectl.model.recording import Command, Recording

_DEADLINE_S = 180


@dataclass(frozen=True, slots=True)
class Imported:
    """A package as it was imported; `error` is why it could not be, and then there is no version.

    `libraries` are versions by name (cuda, cudnn, nccl), `files` where they were loaded from; `own` are the folders of
    the environment's packages, `shadowing` those of LD_LIBRARY_PATH that hold libraries which torch brings itself;
    `distributions` is all that is installed beside it, {canonical name: version}, `python` the interpreter.
    """

    version: str | None
    error: str
    libraries: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    own: tuple[str, ...] = ()
    shadowing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    distributions: Mapping[str, str] = field(default_factory=dict)
    python: str = ""


def import_command(name: str, host: Host) -> Command:
    """Imports the package in the launcher's environment."""
    text = (payload_dir() / "facts" / "torch_import.py").read_text(encoding="utf-8")
    return Command(f"{name}-import", (f"{venv_of(host)}/bin/python", "-c", text, name), deadline_s=_DEADLINE_S)


def read_import(recording: Recording, name: str) -> Imported:
    """The answer among what the package prints; a process that died tells by its last line."""
    done = entry(recording, f"{name}-import")
    match = re.search(r"^NODECTL (.+)$", done.stdout, re.MULTILINE)
    if match is None:
        lines = done.stderr.strip().splitlines()
        return Imported(None, lines[-1] if lines else f"ended with {done.exit_status}")
    try:
        answer: dict[str, Any] = bounded_json.loads(match[1])
        libraries = {library: str(answer[library]) for library in ("cuda", "cudnn", "nccl") if answer.get(library)}
        files = {name: str(answer[f"{name}_path"]) for name in ("cudnn", "nccl") if answer.get(f"{name}_path")}
        shadowing = {folder: tuple(names) for folder, names in answer["shadowing"].items()}
        own, distributions = tuple(answer["own"]), dict(answer["distributions"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ParseError(f"{name}-import: {match[1][:200]!r}") from error
    reason, python = str(answer.get("error", "")), str(answer.get("python", ""))
    return Imported(answer.get("version"), reason, libraries, files, own, shadowing, distributions, python)


FACT = Fact(
    "torch_import",
    lambda host: (import_command("torch", host),),
    lambda recording: read_import(recording, "torch"),
    lambda value: value.error or f"torch {value.version}",
    row=505,
    occasion="verify",
)
