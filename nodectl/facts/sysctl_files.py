"""What the next boot sets of the kernel: sysctl's files in the order in which they are read, and tuned's."""

from collections.abc import Mapping
from dataclasses import dataclass

from nodectl.common.counting import counted
from nodectl.common.resources import node_module
from nodectl.facts.base import UnknownError, script, text_fact
from nodectl.facts.sysctl import proc_path

_VALUES = node_module("kernel_values")
# tuned applies sysctl's files again after its own, unless it is told not to
_SHOW = f"""\
for file in {" ".join(f"{folder}/*.conf" for folder in _VALUES.FOLDERS)} {_VALUES.LAST}; do
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
    sed -n '/^\\[sysctl\\]/,/^\\[/s/^[[:space:]]*\\([^#;[[:space:]].*\\)/line \\1/p' "$at/tuned.conf" | grep .
    return 0
  done
}}
for profile in $profiles; do tuned "$profile"; done
"""


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
    if not lines and text.strip():
        raise UnknownError(f"sysctl-files: {text[:100]!r}")
    return SysctlFiles({path: BootValue(*said) for path, said in _VALUES.boot_values(lines).items()})


def _words(files: SysctlFiles) -> str:
    return f"{counted(len(files.values), 'setting')} in files"


FACT = text_fact("sysctl_files", script("sysctl-files", _SHOW), _parse, _words, row=402, occasion="live")
