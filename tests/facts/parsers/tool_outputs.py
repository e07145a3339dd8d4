"""Where the tests of parsers find outputs: those of this repository, and real ones where they are at hand."""

from pathlib import Path

TOOLS = Path(__file__).parents[2] / "fixtures" / "tools"
SAMPLES = Path(__file__).parents[4] / "shared" / "samples"


def tool_output(tool: str, name: str) -> str:
    """A fixture's text."""
    return (TOOLS / tool / name).read_text()
