"""A TAB in a real shell: commands, options, and names that no host is asked for; what is broken offers nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

_HOSTS = "all:\n  children:\n    racks:\n      hosts:\n        node01: {ansible_host: 192.0.2.1}\n        node02: {}\n"
# each line of the input is words between tabs, of which the last is completed; a line of answers for each
_ASK = """
source /dev/stdin <<< "$(nodectl completion bash)"
while IFS= read -r line; do
    IFS=$'\\t' read -r -a COMP_WORDS <<< "$line"
    [[ $line == *$'\\t' ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
    _nodectl_completion nodectl
    echo "${COMPREPLY[*]}"
done < "$1"
"""


@pytest.fixture
def env(cli_env: Mapping[str, str], tmp_path: Path) -> dict[str, str]:
    """The shell's, with nodectl on PATH and an inventory."""
    (tmp_path / "hosts.yml").write_text(_HOSTS)
    own = Path(sys.executable).parent
    return {
        **cli_env,
        "PATH": f"{own}:{cli_env['PATH']}",
        "ANSIBLE_INVENTORY": str(tmp_path / "hosts.yml"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }


def test_in_bash(env: Mapping[str, str], tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash on this machine")
    (tmp_path / "ask.sh").write_text(_ASK)
    (tmp_path / "broken.yml").write_text("all: [\n")
    asked = {
        ("doc",): {"doctor"},
        ("facts", "--lim"): {"--limit"},
        ("facts", "--limit", ""): {"node01", "node02", "racks", "all", "ungrouped"},
        ("-l", "racks,!node0"): {"racks,!node01", "racks,!node02"},
        ("-i", str(tmp_path / "broken.yml"), "facts", "-l", ""): set(),
        ("health", "--stack", "cp"): {"cpu"},
        ("jobs", "why", "la"): {"last"},
        ("tune", "trial", "--probes", "tcp,lat"): {"tcp,latency"},
        ("lab", "fault", "slow-l"): {"slow-link"},
    }
    (tmp_path / "words").write_text("".join("\t".join(["nodectl", *words]) + "\n" for words in asked))
    argv = [bash, "--norc", "--noprofile", str(tmp_path / "ask.sh"), str(tmp_path / "words")]
    done = subprocess.run(argv, env={**env, "COLUMNS": "80"}, capture_output=True, text=True, timeout=120, check=True)
    assert done.stderr == ""
    answers = [set(line.split()) for line in done.stdout.splitlines()]
    assert dict(zip(asked, answers, strict=True)) == asked


def test_names_that_are_kept_need_no_ansible(env: Mapping[str, str]) -> None:
    words = {**env, "_NODECTL_COMPLETE": "bash_complete", "COMP_WORDS": "nodectl facts -l node", "COMP_CWORD": "3"}
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('ansible' in sys.modules))\n"
        "from nodectl.__main__ import main\n"
        "main()\n"
    )
    argv = [sys.executable, "-c", code]
    runs = [subprocess.run(argv, env=words, capture_output=True, text=True, check=False).stdout for _ in range(2)]
    assert [text.split() for text in runs] == [["plain,node01", "plain,node02", word] for word in ("True", "False")]
