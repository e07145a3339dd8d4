"""`nodectl --help` costs next to nothing: what commands need is imported when they run."""

import json
import subprocess
import sys

_HEAVY = (
    *("ansible", "ansible_runner", "torch", "fabric", "paramiko", "rich", "pydantic", "ClusterShell", "jinja2"),
    *("scipy", "numpy"),
)


def imported(*args: str) -> set[str]:
    code = (
        "import sys, json, atexit\n"
        "atexit.register(lambda: sys.stderr.write('\\n' + json.dumps(sorted(sys.modules))))\n"
        f"sys.argv = ['nodectl', *{list(args)!r}]\n"
        "from nodectl.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_help_imports_nothing_heavy() -> None:
    modules = imported("--help")
    assert "click" in modules
    assert not modules & set(_HEAVY)


def test_version_does_not_even_import_click() -> None:
    assert "click" not in imported("--version")
