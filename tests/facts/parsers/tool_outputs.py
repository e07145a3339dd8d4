"""Where the tests of parsers find outputs: those of this repository, and real ones where they are at hand."""

from collections.abc import Callable
from pathlib import Path

from nodectl.facts.parsers.catalogue import parser_of, tools
from nodectl.facts.parsers.linux.lldp import parse_lldp

TOOLS = Path(__file__).parents[2] / "fixtures" / "tools"
SAMPLES = Path(__file__).parents[4] / "shared" / "samples"
# the last one is read by its users alone, not by `nodectl parse`
PARSERS: dict[str, Callable[[str], object]] = {
    **{tool: parser_of(tool) for tool in tools()},
    "lldpctl": parse_lldp,
}


def tool_output(tool: str, name: str) -> str:
    """A fixture's text, without ends of lines translated."""
    return (TOOLS / tool / name).read_bytes().decode()


def recorded_text(name: str) -> str:
    """Return an output that several asserts of one test module change, without ends of lines translated."""
    return (TOOLS.parent / "texts" / name).read_bytes().decode()
