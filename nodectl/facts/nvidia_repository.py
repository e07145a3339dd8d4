"""NVIDIA's repository as apt has it (sources, lists, candidates, what upgrades leave alone, trusted keys), or dnf.

Of dnf only the sources are told: versions are kept by versionlock, and a driver's branch by its module stream.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from nodectl.common.counting import counted
from nodectl.facts.base import script, text_fact

# one repository a line: its file and its address, of enabled entries in either of apt's two forms
_ONE_LINE = '$1 == "deb" { for (i = 2; i <= NF; i++) if ($i ~ "^[a-z+]+:/") { print "source\\t" file "\\t" $i; next } }'
_DEB822 = """\
tolower($0) !~ /(^|\\n)enabled: *(no|false|0) *(\\n|$)/ && tolower($0) ~ /(^|\\n)types:[^\\n]*deb( |\\n|$)/ {
  for (i = 1; i <= split($0, lines, "\\n"); i++)
    if (tolower(lines[i]) ~ /^uris:/)
      for (j = split(lines[i], words, " "); j > 1; j--) print "source\\t" file "\\t" words[j]
}"""
_POLICY = """\
/^[^ ]/ { name = substr($1, 1, length($1) - 1) }
/^  Candidate:/ { print "candidate\\t" name "\\t" $2 }
/^( \\*\\*\\*|    ) [^ ]/ { print "offered\\t" name "\\t" ($1 == "***" ? $2 : $1) }"""
_SOURCES = f"""\
for file in sources.list sources.list.d/*.list; do
  [ ! -e "$file" ] || awk -v file="/etc/apt/$file" '{_ONE_LINE}' "$file"
done
for file in sources.list.d/*.sources; do
  [ ! -e "$file" ] || awk -v RS= -v file="/etc/apt/$file" '{_DEB822}' "$file"
done
"""
# one repository a line, of enabled sections; of those without a check of signatures another line
_REPO_FILES = """\
function tell() {
  gsub(/\\$basearch/, arch, url); gsub(/\\$releasever/, release, url)
  if (on && url != "") { print "source\\t" file "\\t" url; if (!checked) print "unchecked\\t" file "\\t" url }
}
/^\\[/ { tell(); url = ""; on = 1; checked = 1 }
/^[a-z_]+ *=/ { name = $0; sub(/ *=.*/, "", name); value = $0; sub(/^[^=]*= */, "", value); sub(/ +$/, "", value) }
/^baseurl *=/ { url = value }
/^enabled *=/ { on = (tolower(value) !~ /^(0|no|false)$/) }
/^gpgcheck *=/ { checked = (tolower(value) !~ /^(0|no|false)$/) }
END { tell() }"""
_DNF = f"""\
command -v dnf >/dev/null && cd /etc/yum.repos.d || exit 3
echo dnf
release=$(. /etc/os-release; echo "${{VERSION_ID%%.*}}") arch=$(uname -m)
for file in *.repo; do
  [ ! -e "$file" ] || awk -v file="/etc/yum.repos.d/$file" -v arch="$arch" -v release="$release" '{_REPO_FILES}' "$file"
done
exit 0
"""
# without such a source there is nothing more to tell, and a second of apt's time is saved
_SHOW = f"""\
if [ ! -e /var/lib/dpkg/status ] || ! command -v apt-cache >/dev/null; then
{_DNF}
fi
cd /etc/apt || exit 3
sources=$({_SOURCES})
[ -z "$sources" ] || printf '%s\\n' "$sources"
case $sources in *nvidia* | *cuda*) ;; *) exit 0 ;; esac
ls /var/lib/apt/lists | sed -n 's/.*Release$/list\\t&/p'
for prefix in cuda-toolkit- libcudnn libnccl; do apt-cache pkgnames "$prefix"; done |
  LC_ALL=C xargs -r apt-cache policy | awk '{_POLICY}'
apt-config dump Unattended-Upgrade::Package-Blacklist | sed -n 's/^[^"]*"\\(..*\\)";$/frozen\\t\\1/p'
command -v gpg >/dev/null || printf 'blind\\tgpg is not installed\\n'
# gpg makes files in its home, wherever that is
home=$(mktemp -d) && trap 'rm -rf "$home"' EXIT
for file in trusted.gpg trusted.gpg.d/*; do
  [ ! -e "$file" ] || gpg --homedir "$home" --no-options --no-keyring --show-keys --with-colons "$file" 2>/dev/null |
    awk -F: -v file="/etc/apt/$file" '$1 == "fpr" {{ print "key\\t" file "\\t" $10 }}'
done
exit 0
"""


@dataclass(frozen=True, slots=True)
class NvidiaRepository:
    """`sources` are pairs of a file and an address, `keys` of a keyring that is trusted for all and a fingerprint.

    `unchecked` are sources of dnf whose packages it takes without a signature.
    `lists` are the Release files that apt has read; `blind` is why the keyrings could not be read, else empty.
    """

    sources: tuple[tuple[str, str], ...]
    lists: tuple[str, ...]
    candidates: Mapping[str, str]
    offered: Mapping[str, tuple[str, ...]]
    frozen: frozenset[str]
    keys: tuple[tuple[str, str], ...]
    blind: str = ""
    manager: Literal["apt", "dnf"] = "apt"
    unchecked: tuple[tuple[str, str], ...] = ()


def _parse(text: str) -> NvidiaRepository:
    rows: dict[str, list[list[str]]] = {}
    for line in text.splitlines():
        kind, *cells = line.split("\t")
        rows.setdefault(kind, []).append(cells)
    offered: dict[str, tuple[str, ...]] = {}
    for name, version in rows.get("offered", ()):
        offered[name] = (*offered.get(name, ()), version)
    return NvidiaRepository(
        sources=tuple((file, address) for file, address in rows.get("source", ())),
        lists=tuple(name for (name,) in rows.get("list", ())),
        candidates=dict(rows.get("candidate", ())),
        offered=offered,
        frozen=frozenset(name for (name,) in rows.get("frozen", ())),
        keys=tuple((file, fingerprint) for file, fingerprint in rows.get("key", ())),
        manager="dnf" if "dnf" in rows else "apt",
        unchecked=tuple((file, address) for file, address in rows.get("unchecked", ())),
        blind="".join(reason for (reason,) in rows.get("blind", ())),
    )


def _words(repository: NvidiaRepository) -> str:
    return f"{counted(len(repository.sources), 'source')}, {counted(len(repository.candidates), 'candidate')}"


FACT = text_fact(
    "nvidia_repository",
    script("nvidia-repository", _SHOW),
    _parse,
    _words,
    absent="neither apt nor dnf there",
    row=509,
    occasion="verify",
)
