"""Room for more open files on the whole host."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, Threshold, judges_fact, warning_unless
from nodectl.facts.kernel import OpenFiles
from nodectl.model.finding import Finding

ORDER = 167

OPEN_FILES_LIMIT = Threshold("open_files_percent", 80, "at the whole number every program on the host fails to open")
OPEN_FILES = Check(
    "open_files",
    looks_at="/proc/sys/fs/file-nr",
    fires="warning: more are open than the threshold",
    remedy="find who holds them (`lsof | awk '{print $1}' | sort | uniq -c`), or raise fs.file-max in the tuning",
    thresholds=(OPEN_FILES_LIMIT,),
)


@judges_fact(OpenFiles, OPEN_FILES, reads=("open_files",), unread="the open files", borrowed="kernel")
def open_files(host: Subject, files: OpenFiles) -> Iterator[Finding]:
    """The share of what the kernel allows."""
    limit = host.threshold(OPEN_FILES_LIMIT)
    share = 100 * files.open / files.most if files.most else 0.0
    expected = f"at most {limit:g} % of {files.most}"
    yield host.finding(
        OPEN_FILES, warning_unless(share <= limit), expected=expected, actual=f"{files.open} ({share:.0f} %)"
    )
