"""Lines of NCCL's files that NCCL reads otherwise than whoever wrote them: it trims nothing and knows no quotes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from nodectl.checks.check import Check, Subject, judges_fact
from nodectl.facts.host_files import NcclFiles
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.profiles.nccl_variables import why_no_name, why_no_value

ORDER = 12

NCCL_LINES = Check(
    "nccl_lines",
    looks_at="the lines of `/etc/nccl.conf`, and of `~/.nccl.conf` or the file that NCCL_CONF_FILE names",
    fires="warning: blanks or quotes that NCCL takes literally, a name or a value that NCCL does not know, no `=`",
    expected="NAME=value: NCCL trims nothing and knows no quotes",
    remedy="correct the line; `nodectl provision --tags nccl_env` writes /etc/nccl.conf anew",
    roles=("nccl_env",),
)


@judges_fact(NcclFiles, NCCL_LINES, reads=("nccl_files",), unread="NCCL's files", or_absent=True)
def nccl_lines(host: Subject, files: NcclFiles) -> Iterator[Finding]:
    """Each line means to NCCL what it looks like."""
    misread = chain(*(_wrong(host, path, text) for path, text in sorted(files.texts.items())))
    yield from host.all_of(NCCL_LINES, misread, actual="NCCL reads every line as it is written")


def _wrong(host: Subject, path: str, text: str) -> Iterator[Finding]:
    for number, line in enumerate(text.split("\n"), 1):
        if reason := why_misread(line):
            yield host.finding(NCCL_LINES, Status.WARNING, f"{path} line {number}", actual=f"{line[:200]!r}: {reason}")


def why_misread(line: str) -> str:
    """What NCCL makes of the line that nobody means by it; empty where there is nothing of that."""
    name, equals, value = line.partition("=")
    if not line.strip() or line.startswith("#"):
        return ""
    if line.lstrip().startswith("#"):
        return "# is a comment in the first column only"
    if not equals:
        return "no `=`: NCCL passes over it"
    if name != name.strip():
        return "a blank is part of the name"
    if not value.strip():
        return "the value is blank"
    if value != value.strip():
        return "a blank is part of the value"
    if set(value[:1] + value[-1:]) & set("\"'"):
        return "the quotes are part of the value"
    if name.startswith("export "):
        return "`export` is part of the name"
    return why_no_name(name) or why_no_value(name, value)
