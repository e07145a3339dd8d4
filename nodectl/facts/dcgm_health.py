"""What DCGM's own watches say (`dcgmi health --check`): the whole, and each complaint."""

import re
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import AbsentError, Fact, entry, output
from nodectl.model.recording import Command, Recording

_COMMAND = Command("dcgm-health", ("dcgmi", "health", "--check"), deadline_s=15, hardware=True)
# `| Overall Health | Healthy |`, and of older releases `| Group 1 | Overall Health: Healthy |`
_OVERALL = re.compile(r"\|[ \t]*Overall Health(?::|[ \t]*\|)[ \t]*(\w+)", re.IGNORECASE)
_ROW = re.compile(r"\|[ \t]*(?P<left>[^|\n]*?)[ \t]*\|[ \t]*(?P<right>[^|\n]*?)[ \t]*\|")
_WORD = ("Warning", "Failure", "Fail", "Healthy", "Pass")
_NOT_WATCHED = ("health watches not enabled", "no health watches", "not currently watched")
NO_ENGINE = ("unable to establish a connection", "host engine is not running", "connection to the host engine")


@dataclass(frozen=True, slots=True)
class DcgmHealth:
    """`overall` is DCGM's word; `complaints` are the lines below it that are no heading."""

    overall: str
    complaints: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        """DCGM has nothing to complain of."""
        return self.overall.lower() in ("healthy", "pass")

    @property
    def failed(self) -> bool:
        """DCGM calls it a failure, not a warning."""
        return self.overall.lower().startswith("fail")


def _read(recording: Recording) -> DcgmHealth:
    done = entry(recording, _COMMAND.key)
    said = f"{done.stdout}{done.stderr}".lower()
    # of some releases with exit status 0
    if any(words in said for words in (*_NOT_WATCHED, *NO_ENGINE)):
        raise AbsentError("DCGM's host engine does not run, or watches nothing")
    return _parse(output(recording, _COMMAND.key))


def _parse(text: str) -> DcgmHealth:
    overall = _OVERALL.search(text)
    if overall is None:
        raise ParseError(f"dcgm-health: no overall health in {text[:120]!r}")
    return DcgmHealth(overall[1], tuple(_complaints(text[overall.end() :])))


def _complaints(text: str) -> list[str]:
    """A long message is wrapped: rows whose left cell is empty go on with the one before."""
    found: list[str] = []
    for row in _ROW.finditer(text):
        left, right = row["left"].lstrip("-> "), row["right"]
        if not right:
            continue
        if left or not found:
            found.append(f"{left}: {right}".removeprefix(": "))
        else:
            found[-1] += f" {right}"
    return [line for line in found if not line.endswith(tuple(f": {word}" for word in _WORD))]


def _words(health: DcgmHealth) -> str:
    return "; ".join([health.overall, *health.complaints])


FACT = Fact("dcgm_health", (_COMMAND,), _read, _words, row=165, quiet=True)
