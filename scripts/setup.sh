#!/usr/bin/env bash
# Make this checkout ready to run: the distribution's packages that a lab needs, and .venv with nodectl in it.
# usage: scripts/setup.sh [--yes] [--booted]     idempotent; prints what it installs; asks first where someone can
# --booted: also what boots containers and emulated machines for tests
set -euo pipefail
cd "$(dirname "$0")/.."

yes=${CI:+1}
booted=
for option in "$@"; do
  case $option in
    --yes) yes=1 ;;
    --booted) booted=1 ;;
    *) printf 'setup: no such option: %s (there are --yes and --booted)\n' "$option" >&2; exit 2 ;;
  esac
done

say() { printf 'setup: %s\n' "$*" >&2; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# the first Python of 3.11 or later that can make environments
find_python() {
  local candidate
  for candidate in python3.14 python3.13 python3.12 python3.11 python3; do
    "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    printf '%s\n' "$candidate"
    return
  done
}

# command → Debian and Ubuntu package
missing=()
need() { PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
need sshd openssh-server
need ssh openssh-client
need ip iproute2
need tc iproute2
need iperf3 iperf3
need sudo sudo
need make make
need mkfs.ext4 e2fsprogs
need ps procps
# the tests build and solve repositories of RHEL's kind
need dnf dnf
need rpmbuild rpm
need createrepo_c createrepo-c
[ -e /etc/dnf/plugins/versionlock.conf ] || missing+=(dnf-plugins-core)
if [ -n "$booted" ]; then
  need mmdebstrap mmdebstrap
  need systemd-nspawn systemd-container
  need qemu-system-x86_64 qemu-system-x86
  need qemu-img qemu-utils
fi
[ -x /usr/bin/python3 ] || missing+=(python3) # the lab's hosts run it
[ -n "$(find_python)" ] || missing+=(python3-venv)

ask() {
  [ -n "$yes" ] && return 0
  [ -t 0 ] || return 0 # nobody can answer: what is installed was announced above
  read -r -p "setup: $1 [y/N] " answer
  [ "$answer" = y ] || [ "$answer" = Y ]
}

# A package that starts a service is installed without starting it: the lab runs its own sshd, the machine needs none.
install_packages() {
  local as_root=() policy=/usr/sbin/policy-rc.d had_ssh=1
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  [ -e /lib/systemd/system/ssh.service ] || had_ssh=
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 0755 "$policy"
    # shellcheck disable=SC2064 # the paths are fixed here, on purpose
    trap "${as_root[*]} rm -f $policy" EXIT
  fi
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
  if [ -z "$had_ssh" ] && [ -d /run/systemd/system ]; then
    "${as_root[@]}" systemctl disable --now ssh.service ssh.socket 2>/dev/null || true
  fi
}

if [ ${#missing[@]} -gt 0 ]; then
  mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
  say "this machine lacks: ${missing[*]} (packages of the distribution; they stay installed)"
  command -v apt-get >/dev/null || die "no apt-get here: install the like of ${missing[*]} by hand, then run this again"
  ask "install them with apt-get?" || die "nothing was installed; without them there is no lab"
  install_packages "${missing[@]}"
fi

python=$(find_python)
[ -n "$python" ] || die "nodectl's controller needs Python 3.11 or later with venv: install it, then run this again"

. scripts/pip_settings.sh

# uv needs 4 s of a CPU for what takes pip 40 s; pip brings it, and does it where uv fails, so that one of them says why
install_nodectl() {
  local extras=$1 pip=(.venv/bin/python -m pip install --quiet --disable-pip-version-check)
  "${pip[@]}" uv
  (pip_settings .venv/bin/python && .venv/bin/uv pip install --quiet --python .venv/bin/python -e ".[$extras]" 2>/dev/null) ||
    "${pip[@]}" -e ".[$extras]"
}

stamp=.venv/.nodectl-setup
if [ ! -e "$stamp" ] || [ pyproject.toml -nt "$stamp" ] || ! .venv/bin/nodectl --version >/dev/null 2>&1; then
  say "making .venv with $("$python" --version) and nodectl's packages (about 300 MB in .venv)"
  "$python" -m venv .venv
  install_nodectl dev,docs
  touch "$stamp"
fi
# as an installation has it: where Python may write no bytecode, each start would compile nodectl anew
.venv/bin/python -m compileall -q nodectl
