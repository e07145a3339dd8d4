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


_TAB = """
import atexit, sys
atexit.register(lambda: print("ansible" in sys.modules))
from nodectl.__main__ import main
main()
"""


def tab(env: Mapping[str, str], folder: Path, words: str) -> list[str]:
    """Return what a TAB behind the words offers in the folder, and whether Ansible was imported."""
    given = {
        **env,
        "_NODECTL_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    argv = [sys.executable, "-c", _TAB]
    done = subprocess.run(argv, env=given, cwd=folder, capture_output=True, text=True, check=False)
    return [word.removeprefix("plain,") for word in done.stdout.split()]


_RUN = "#!/bin/sh\ntouch {ran}\necho '{{}}'\n"
_PLUGIN = (
    "open('{ran}', 'w')\nfrom ansible.plugins.vars import BaseVarsPlugin\nclass VarsModule(BaseVarsPlugin): pass\n"
)


_STATIC = "all:\n  hosts:\n    node07: {{v: !vault x, t: \"{{{{ lookup('pipe', 'touch {ran}') }}}}\"}}\n"
_SETTINGS = """[defaults]
inventory = inventory
vault_password_file = vault.sh
vault_identity_list = a@vault.sh
vars_plugins = plugins:vars_plugins
inventory_plugins = plugins
vars_enabled = mine,host_group_vars
"""


def test_a_tab_in_a_hostile_folder_runs_nothing(cli_env: Mapping[str, str], tmp_path: Path) -> None:
    ran, folder = tmp_path / "ran", tmp_path / "cloned"
    for place, text, mode in (
        ("inventory/hosts", _RUN, 0o755),
        ("inventory/plug.yml", "plugin: mine\nhosts: {{node09: }}\n", 0o644),
        ("inventory/some.yml", _STATIC, 0o644),
        ("inventory/racks.ini", "node08 a=b\n[racks]\nnode[10:12]\n[racks:vars]\nnodex=1\n", 0o644),
        ("vault.sh", _RUN, 0o755),
        ("plugins/mine.py", _PLUGIN, 0o644),
        ("vars_plugins/mine.py", _PLUGIN, 0o644),
        ("ansible.cfg", _SETTINGS, 0o644),
    ):  # fmt: skip
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(ran=ran))
        path.chmod(mode)
    hosts = ["node08", "node10", "node11", "node12", "node07"]
    for words, offered in (("facts -l node", hosts), ("-i inventory facts -l node", hosts), ("health -l ra", ["racks"]),
                           ("-i inventory/hosts facts -l n", []), ("-i vault.sh facts -l n", [])):  # fmt: skip
        assert tab(cli_env, folder, f"nodectl {words}") == [*offered, "False"]
    tab(cli_env, folder, "nodectl provision -l n"), tab(cli_env, folder, "nodectl jobs show l")
    assert not ran.exists()
