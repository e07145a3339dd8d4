"""README.md's blocks, as they stand there, on a bare Debian 12 and a bare Debian 13 with pipx."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.booted.bare import ROOT, Bare, bare
from tests.booted.conftest import STATE
from tests.booted.needs import CONTAINER_PROGRAMS, skip_unless_possible
from tests.booted.sources import distribution
from tests.booted.system import Said
from tests.pages.command_lines import calls, refused

pytestmark = [pytest.mark.booted, pytest.mark.slow, pytest.mark.timeout(3000)]

RELEASES = {"bookworm": "12", "trixie": "13"}


@dataclass(frozen=True, slots=True)
class Line:
    """A command of a block, and the one that a comment behind it gives instead."""

    command: str
    instead: str = ""

    @property
    def ways(self) -> tuple[str, ...]:
        """All that a reader may type here."""
        return (self.command, self.instead) if self.instead else (self.command,)


def blocks(text: str) -> dict[str, list[Line]]:
    """Heading → the commands of its block: those behind `$ ` if the block shows output, else every line."""
    found: dict[str, list[Line]] = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        for block in re.findall(r"^```[^\n]*\n(.*?)^```$", section, re.MULTILINE | re.DOTALL):
            lines = block.splitlines()
            typed = [line[2:] for line in lines if line.startswith("$ ")] or lines
            found.setdefault(section.partition("\n")[0], []).extend(map(_line, typed))
    return found


def _line(text: str) -> Line:
    command, _, comment = text.partition(" # ")
    instead = re.match(r"or: ([^;]+)", comment)
    return Line(command.strip(), instead[1].strip() if instead else "")


README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = blocks(README)
THIS_MACHINE = BLOCKS["This machine: one command"]
DEMO = BLOCKS["A fleet on this machine: two commands"]
FLEET = BLOCKS["Your nodes: six commands"]


@pytest.fixture(scope="module", params=RELEASES)
def newcomer(request: pytest.FixtureRequest, booted_cache: None) -> Iterator[Bare]:
    """A container in which uv was installed, too."""
    skip_unless_possible(CONTAINER_PROGRAMS, "bare containers")
    if distribution() != "debian":
        pytest.skip(f"Debian is made from apt sources of Debian, this machine has those of {distribution()}")
    with bare(STATE / "booted", request.param) as container:
        well(container.run(f"grep VERSION_ID={RELEASES[request.param]!r} /etc/os-release".replace("'", ".")))
        for command in ("pipx ensurepath", "pipx install uv"):
            assert f"`{command}`" in README, command
            well(container.run(command))
        yield container


def well(said: Said) -> str:
    """What it printed; it must have ended with 0."""
    assert said.status == 0, f"exit status {said.status}\n{said.out}\n{said.err[-4000:]}"
    return said.out


def test_this_machine_is_looked_at_without_an_installation(newcomer: Bare) -> None:
    ways = [way for line in THIS_MACHINE for way in line.ways]
    assert [way.split()[0] for way in ways] == ["uvx", "pipx"]
    for way in ways:
        said = newcomer.run(way)
        assert said.status in (0, 1, 3), f"{way}: exit status {said.status}\n{said.out}\n{said.err[-4000:]}"
        shown = f"{said.err}\n{said.out}"
        assert re.search(r"^this machine: .*Debian GNU/Linux.*; no inventory given$", shown, re.MULTILINE), shown
        assert re.search(r"\d+ ok\b.* on 1 host$", shown, re.MULTILINE), shown


def test_the_commands_for_a_fleet_are_installed(newcomer: Bare) -> None:
    install, *rest = FLEET
    assert install.ways == ("uv tool install .", "pipx install .")
    named = {call[0] for line in rest for call in calls(line.command)}
    for way, remove in zip(install.ways, ("uv tool uninstall nodectl", "pipx uninstall nodectl"), strict=True):
        well(newcomer.run(way))
        assert well(newcomer.run("nodectl --version")).startswith("nodectl"), way
        assert "Usage: nodectl" in well(newcomer.run("nodectl --help")), way
        for name in sorted(named):
            assert f"Usage: nodectl {name}" in well(newcomer.run(f"nodectl {name} --help")), way
        well(newcomer.run(remove))


def test_what_needs_hosts_is_there_by_name() -> None:
    commands = [line.command for block in BLOCKS.values() for line in block]
    assert [problem for command in commands for problem in refused(command)] == []
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {shlex.split(line.command)[1] for line in DEMO} <= set(targets)
