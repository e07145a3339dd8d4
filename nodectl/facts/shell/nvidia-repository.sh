# shellcheck shell=sh
# apt: one repository a line, its file and its address, of enabled entries in either of its two forms; without one of
# NVIDIA's there is nothing more to tell, and a second of apt's time is saved.
# dnf: one repository a line, of enabled sections; of those without a check of signatures another line. Versions are
# kept by versionlock, and a driver's branch by its module stream.

if [ ! -e /var/lib/dpkg/status ] || ! command -v apt-cache >/dev/null; then
  command -v dnf >/dev/null && cd /etc/yum.repos.d || exit 3
  echo dnf
  release=$(. /etc/os-release; echo "${VERSION_ID%%.*}") arch=$(uname -m)
  for file in *.repo; do
    [ ! -e "$file" ] || awk -v file="/etc/yum.repos.d/$file" -v arch="$arch" -v release="$release" 'function tell() {
    gsub(/\$basearch/, arch, url); gsub(/\$releasever/, release, url)
    if (on && url != "") { print "source\t" file "\t" url; if (!checked) print "unchecked\t" file "\t" url }
  }
  /^\[/ { tell(); url = ""; on = 1; checked = 1 }
  /^[a-z_]+ *=/ { name = $0; sub(/ *=.*/, "", name); value = $0; sub(/^[^=]*= */, "", value); sub(/ +$/, "", value) }
  /^baseurl *=/ { url = value }
  /^enabled *=/ { on = (tolower(value) !~ /^(0|no|false)$/) }
  /^gpgcheck *=/ { checked = (tolower(value) !~ /^(0|no|false)$/) }
  END { tell() }' "$file"
  done
  exit 0
fi
cd /etc/apt || exit 3
sources=$(for file in sources.list sources.list.d/*.list; do
  [ ! -e "$file" ] || awk -v file="/etc/apt/$file" '$1 == "deb" { for (i = 2; i <= NF; i++) if ($i ~ "^[a-z+]+:/") { print "source\t" file "\t" $i; next } }' "$file"
done
for file in sources.list.d/*.sources; do
  [ ! -e "$file" ] || awk -v RS= -v file="/etc/apt/$file" 'tolower($0) !~ /(^|\n)enabled: *(no|false|0) *(\n|$)/ && tolower($0) ~ /(^|\n)types:[^\n]*deb( |\n|$)/ {
  for (i = 1; i <= split($0, lines, "\n"); i++)
    if (tolower(lines[i]) ~ /^uris:/)
      for (j = split(lines[i], words, " "); j > 1; j--) print "source\t" file "\t" words[j]
}' "$file"
done
)
[ -z "$sources" ] || printf '%s\n' "$sources"
case $sources in *nvidia* | *cuda*) ;; *) exit 0 ;; esac
ls /var/lib/apt/lists | sed -n 's/.*Release$/list\t&/p'
for prefix in cuda-toolkit- libcudnn libnccl; do apt-cache pkgnames "$prefix"; done |
  LC_ALL=C xargs -r apt-cache policy | awk '/^[^ ]/ { name = substr($1, 1, length($1) - 1) }
/^  Candidate:/ { print "candidate\t" name "\t" $2 }
/^( \*\*\*|    ) [^ ]/ { print "offered\t" name "\t" ($1 == "***" ? $2 : $1) }'
apt-config dump Unattended-Upgrade::Package-Blacklist | sed -n 's/^[^"]*"\(..*\)";$/frozen\t\1/p'
exit 0
