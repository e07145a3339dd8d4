"""What the next boot sets of the kernel: sysctl's files in the order in which they are read, and tuned's."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nodectl.common.counting import counted
from nodectl.facts.base import UnknownError, script, text_fact
from nodectl.facts.sysctl import proc_path

# of files with one name the first folder's counts; all of them are then read in the order of their names (sysctl.d(5))
_FOLDERS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d")
# `sysctl --system` reads it last; systemd by a link below /etc/sysctl.d
_LAST = "/etc/sysctl.conf"
# tuned applies sysctl's files again after its own, unless it is told not to
_SHOW = f"""\
for file in {" ".join(f"{folder}/*.conf" for folder in _FOLDERS)} {_LAST}; do
  [ -e "$file" ] && set -- "$@" "$file"
done
awk 'BEGIN {{
  for (at = 1; at < ARGC; at++) {{
    print "file " ARGV[at]
    while ((getline row < ARGV[at]) > 0) {{
      sub(/^[ \\t\\r\\v\\f]+/, "", row)
      if (row ~ /^[^#;]/) print "line " row
    }}
    close(ARGV[at])
  }}
}}' "$@"
read -r profiles </etc/tuned/active_profile && ! grep -q '^[[:space:]]*reapply_sysctl *= *\\(1\\|[Tt]rue\\)' \\
  /etc/tuned/tuned-main.conf && grep -q '^[[:space:]]*reapply_sysctl' /etc/tuned/tuned-main.conf || exit 0
seen=
tuned() {{
  case " $seen " in *" $1 "*) return ;; esac
  seen="$seen $1"
  for at in "/etc/tuned/profiles/$1" "/etc/tuned/$1" "/usr/lib/tuned/profiles/$1" "/usr/lib/tuned/$1"; do
    [ -e "$at/tuned.conf" ] || continue
    for base in $(sed -n 's/^include *= *//p' "$at/tuned.conf" | tr ',' ' '); do tuned "$base"; done
    for at in "/etc/tuned/profiles/$1" "/etc/tuned/$1" "/usr/lib/tuned/profiles/$1" "/usr/lib/tuned/$1"; do
      [ -e "$at/tuned.conf" ] && break
    done
    printf 'file %s\\n' "$at/tuned.conf"
    sed -n '/^\\[sysctl\\]/,/^\\[/s/^[[:space:]]*\\([^#;[[:space:]].*\\)/line \\1/p' "$at/tuned.conf"
    return
  done
}}
for profile in $profiles; do tuned "$profile"; done
"""
_LINE = re.compile(r"-?\s*([^=\s]+)\s*=\s*(.*)")


@dataclass(frozen=True, slots=True)
class BootValue:
    """Hold what a boot sets a kernel setting to, and the file that has the last word."""

    value: str
    file: str


@dataclass(frozen=True, slots=True)
class SysctlFiles:
    """The last word on each kernel setting that a file names in full, by its path below /proc/sys."""

    values: Mapping[str, BootValue]

    def of(self, key: str) -> BootValue | None:
        """Of a setting by any of its spellings; None where no file names it."""
        return self.values.get(proc_path(key))


def _parse(text: str) -> SysctlFiles:
    lines: dict[str, list[str]] = {}
    file = ""
    for row in text.splitlines():
        kind, _, rest = row.partition(" ")
        if kind == "file":
            file = rest
            lines[file] = []
        elif kind == "line" and file:
            lines[file].append(rest)
    values: dict[str, BootValue] = {}
    for file in _in_order(lines):
        for line in lines[file]:
            # a pattern (`net.*`) never goes over a setting that another line names in full
            if (setting := _LINE.fullmatch(line.strip())) and not set("*?[") & set(setting[1]):
                values[proc_path(setting[1])] = BootValue(" ".join(setting[2].split()), file)
    if not lines and text.strip():
        raise UnknownError(f"sysctl-files: {text[:100]!r}")
    return SysctlFiles(values)


def _in_order(files: Mapping[str, object]) -> Iterator[str]:
    """The files that count, the one with the last word last; `files` have the folders in their order."""
    named: dict[str, str] = {}
    for file in files:
        if posixpath.dirname(file) in _FOLDERS:
            named.setdefault(posixpath.basename(file), file)
    yield from (named[name] for name in sorted(named))
    yield from (file for file in files if posixpath.dirname(file) not in _FOLDERS)


def _words(files: SysctlFiles) -> str:
    return f"{counted(len(files.values), 'setting')} in files"


FACT = text_fact("sysctl_files", script("sysctl-files", _SHOW), _parse, _words, row=402, occasion="live")
