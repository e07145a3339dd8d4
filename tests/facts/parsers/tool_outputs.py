"""Where the tests of parsers find outputs: those of this repository, and real ones where they are at hand."""

from pathlib import Path

TOOLS = Path(__file__).parents[2] / "fixtures" / "tools"
SAMPLES = Path(__file__).parents[4] / "shared" / "samples"


def tool_output(tool: str, name: str) -> str:
    """A fixture's text."""
    return (TOOLS / tool / name).read_text()


def recorded_text(name: str) -> str:
    """Return an output that several asserts of one test module change, without ends of lines translated."""
    return (TOOLS.parent / "texts" / name).read_bytes().decode()
