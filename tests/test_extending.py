"""docs/extending.md to the letter: each example is written where it says, tested, linted, and seen by its commands."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import test_imports
from tests.conftest import LabUnderTest

_ROOT = Path(__file__).resolve().parent.parent
_PAGE = _ROOT / "docs" / "extending.md"
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"(?:#|--|//|\{#) ((?:nodectl|roles|playbooks|plugins|tests|docs|scripts)/[\w./-]+)")
_COPIED = (
    "LICENSES",
    "ansible_collections",
    "meta",
    "nodectl",
    "roles",
    "playbooks",
    "plugins",
    "tests",
    "scripts",
    "docs",
    "inventory",
)
_FILES = (
    "pyproject.toml",
    "ansible.cfg",
    "galaxy.yml",
    "README.md",
    "Makefile",
    "LICENSE",
    "CHANGELOG.md",
    ".yamllint",
)
# all examples' tests in one process, on a busy machine
WITHIN_S = 500
# bytecode goes along, or each program would compile everything anew; a name with a number behind it is half-written
_PASSED_OVER = shutil.ignore_patterns("*.pyc.*", ".state", ".cache", ".venv")


@dataclass(frozen=True, slots=True)
class Section:
    """One `## Add …` of the page: its new files by path, and its commands with the lines of their output."""

    title: str
    files: dict[str, str] = field(default_factory=dict)
    commands: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def tests(self) -> list[str]:
        """The test files among its files."""
        return [path for path in self.files if path.startswith("tests/") and Path(path).match("test_*.py")]


def sections(page: str) -> list[Section]:
    """The page's sections that hold examples."""
    parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)[1:]
    return [section for pair in zip(parts[::2], parts[1::2], strict=True) if (section := section_of(*pair)).files]


def section_of(title: str, text: str) -> Section:
    """The files and commands in the fenced blocks of one section."""
    files: dict[str, str] = {}
    commands: list[tuple[str, tuple[str, ...]]] = []
    for language, body in _FENCE.findall(text):
        first = body.partition("\n")[0]
        named = _PATH.match(first)
        if language == "console":
            commands += console(body)
        elif named:
            files[named[1]] = body
    return Section(title, files, tuple(commands))


def console(body: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each `$ command` with the lines below it; `…` stands for lines that do not matter."""
    for shown in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, *lines = shown.rstrip("\n").split("\n")
        yield command, tuple(line for line in lines if line.strip() not in ("", "…"))


SECTIONS = sections(_PAGE.read_text()) if _PAGE.exists() else []


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout with the examples of all sections in it."""
    root = tmp_path_factory.mktemp("extending") / "nodectl"
    for name in _COPIED:
        if (_ROOT / name).exists():
            shutil.copytree(_ROOT / name, root / name, ignore=_PASSED_OVER, symlinks=True)
    for name in _FILES:
        if (_ROOT / name).exists():
            shutil.copy(_ROOT / name, root / name)
    (root / ".cache").symlink_to(_ROOT / ".cache")
    for section in SECTIONS:
        for path, text in section.files.items():
            assert not (root / path).exists(), f"{section.title}: {path} is there already"
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
    return root


def run(checkout: Path, *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A program of this environment, in the copy, with the copy's nodectl."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("NODECTL_", "PYTEST_"))}
    env |= {"PYTHONPATH": str(checkout), "XDG_STATE_HOME": str(checkout / ".state"), "COLUMNS": "160"} | more
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    process = subprocess.Popen(
        argv, cwd=checkout, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=WITHIN_S)
    except BaseException:
        # as by Ctrl-C: tests that are cut short take their lab down
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        raise
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def test_the_page_has_what_it_promises() -> None:
    titles = {section.title for section in SECTIONS}
    assert titles == {"Add a probe", "Add a check", "Add a fact"}


@pytest.fixture(scope="module")
def tried(checkout: Path) -> str:
    """Run the tests of all examples and return the output of pytest."""
    paths = [path for section in SECTIONS for path in section.tests]
    return examined(checkout, "-rfEp", *paths).stdout


def examined(checkout: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """pytest in the copy, whose temporary files lie in it, too: what others left in /tmp would be cleared up by it."""
    own = ("-p", "no:cacheprovider", f"--basetemp={checkout / '.state' / 'tmp'}")
    return run(checkout, sys.executable, "-m", "pytest", "-q", *own, *argv)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.title)
def test_an_example_works_as_it_stands(checkout: Path, tried: str, section: Section) -> None:
    assert section.tests, "each example has its test"
    assert_passed(tried, section.tests)
    assert_shown(checkout, [each for each in section.commands if " -l " not in each[0]])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_examples_run_on_hosts(checkout: Path, lab4: LabUnderTest) -> None:
    for section in SECTIONS:
        commands = [each for each in section.commands if " -l " in each[0]]
        assert_shown(checkout, commands, NODECTL_INVENTORY=lab4.inventory)


def assert_shown(checkout: Path, commands: Sequence[tuple[str, tuple[str, ...]]], **env: str) -> None:
    for command, lines in commands:
        done = run(checkout, "bash", "-c", command.replace("nodectl ", f"{sys.executable} -m nodectl "), **env)
        shown = done.stdout + done.stderr
        missing = [line for line in lines if squeezed(line) not in squeezed(shown)]
        assert not missing, f"{command}: {missing}\n{shown}"


def assert_passed(said: str, paths: Sequence[str]) -> None:
    told = "\n".join(line for line in said.splitlines() if not line.startswith("PASSED "))
    for path in paths:
        assert f"PASSED {path}::" in said, told
        assert f"FAILED {path}" not in said and f"ERROR {path}" not in said, told


def test_the_examples_pass_the_linters(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [path for section in SECTIONS for path in section.files if path.endswith(".py")]
    for tool in (("check",), ("format", "--check", "--diff")):
        done = run(checkout, "ruff", *tool, *files)
        assert done.returncode == 0, done.stdout + done.stderr
    done = run(checkout, "mypy", "--cache-dir", str(_ROOT / ".mypy_cache"), *files)
    assert done.returncode == 0, done.stdout + done.stderr
    monkeypatch.setattr(test_imports, "PACKAGE", checkout / "nodectl")
    for path in [checkout / name for name in files if name.startswith("nodectl/")]:
        assert not test_imports.unlisted(path) and not test_imports.libraries_away(path), path


def squeezed(text: str) -> str:
    """Runs of blanks as one, since tables are as wide as their longest row; measured rates as N."""
    return re.sub(r"\d+(\.\d+)? (starts/s|%)", r"N \2", re.sub(r"[ \t]+", " ", text))
