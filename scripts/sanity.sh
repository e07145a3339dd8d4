#!/usr/bin/env bash
# ansible-test sanity on the collection as it is built and installed, with the ansible-core of .venv; some minutes.
# usage: scripts/sanity.sh [ansible-test's own options, such as --test pylint]
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/.venv/bin work=$PWD/.state/sanity
export PATH="$bin:$PATH" HOME="$work/home" ANSIBLE_HOME="$work/home/.ansible" ANSIBLE_COLLECTIONS_PATH="$work"
collection=$work/ansible_collections/nodectl/fleet
version=$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])')

# a git repository of its own: ansible-test takes the names of the files from it
rm -rf "$work/ansible_collections" "$work/built"
python -m scripts.dist --out "$work/built" collection >/dev/null
(cd "$work" && ansible-galaxy collection install --force -p "$work" "$work"/built/*.tar.gz >/dev/null)
git init -q "$collection"

# ansible-test fetches pip for its environments from a server of Ansible's; Python brings its own
cache=$HOME/.ansible/test/cache
mkdir -p "$cache"
python - "$cache" <<'PYTHON'
import re, sys
from pathlib import Path
import ansible_test._internal.python_requirements as requirements

for pip in re.findall(r"pip='([\d.]+)'", Path(requirements.__file__).read_text()):
    Path(sys.argv[1], f"get_pip_{pip.replace('.', '_')}.py").write_text("import ensurepip\nensurepip.bootstrap()\n")
PYTHON

# the programs that its tests run are pinned by ansible-core and come from where pip's settings point
if ! python -m pip download --quiet --no-deps --dest "$work/probe" voluptuous >/dev/null 2>&1; then
  echo "sanity: skipped: no package index answers, and ansible-test installs pylint, voluptuous and others from one" >&2
  exit 0
fi
cd "$collection"
exec ansible-test sanity --local --requirements --python "$version" "$@"
