"""The README's picture: what a terminal shows of two commands on a lab's hosts, run for it, as SVG: `make picture`."""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from io import StringIO
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "terminal.svg"
COLUMNS = 104
TITLE = "4 lab hosts, dressed as a DGX A100, two of them broken on purpose"
COMMANDS = ("nodectl health", "nodectl probe tcp")
_LAB = ("lab", "up", "-n", "4", "--as", "dgx-a100", "--rate", "1gbit", "--name", "picture")
_FAULTS = (("ecc-uncorrectable", "node02"), ("slow-link", "node04"))
# rich's own names a font of another host; each text's width is given, so any font of one width serves
_FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>TITLE</title>
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px;
  line-height: {line_height}px;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: Helvetica, Arial, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
# anything but colours
_MOVES = re.compile(r"\r|\x08|\x1b(?!\[[\d;]*m)")


class PictureError(Exception):
    """A command that did not end as it should, or whose output is none to be shown."""


def main() -> None:
    """Take it anew."""
    parser = argparse.ArgumentParser(prog="python -m scripts.terminal_picture", description=__doc__)
    parser.add_argument("--output", type=Path, default=PICTURE, help="default: %(default)s")
    path = parser.parse_args().output
    try:
        with _lab() as env:
            shown = [(command, output(shlex.split(command), env)) for command in COMMANDS]
        refuse_private("".join(text for _, text in shown))
    except PictureError as error:
        sys.exit(f"terminal_picture: {error}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(picture(shown, TITLE), encoding="utf-8")


@contextmanager
def _lab() -> Iterator[dict[str, str]]:
    """Yield the environment of commands on a lab with the faults, with its own state: no history is compared."""
    with tempfile.TemporaryDirectory(prefix="picture-") as folder:
        env = {**os.environ, "XDG_STATE_HOME": folder, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        try:
            env["ANSIBLE_INVENTORY"] = _asked(_LAB, env).strip()
            for kind, host in _FAULTS:
                _asked(("lab", "fault", kind, host, "--name", "picture"), env)
            yield env
        finally:
            _asked(("lab", "down", "--name", "picture"), env)


def _asked(command: Sequence[str], env: Mapping[str, str]) -> str:
    done = subprocess.run(["nodectl", *command], env=dict(env), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PictureError(f"nodectl {shlex.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def output(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """Return what the command writes to a terminal of that width; it names a fault, so it ends with 1."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    own = {**env, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    running = subprocess.Popen(argv, env=own, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    text = b""
    while True:
        try:
            more = os.read(ours, 1 << 16)
        except OSError:  # nobody has the other end any more
            break
        if not more:
            break
        text += more
    os.close(ours)
    if running.wait() != 1:
        raise PictureError(f"{shlex.join(argv)} ended with {running.returncode}, where it is to find a fault")
    return text.decode().replace("\r\n", "\n")


def refuse_private(text: str) -> None:
    """PictureError where the text names this machine, or moves a cursor, which a picture cannot."""
    for word in (str(Path.home()), str(ROOT), os.uname().nodename):
        if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text):
            raise PictureError(f"the output names {word}, which belongs to this machine")
    if _MOVES.search(text):
        raise PictureError("the output moves the cursor")


def picture(shown: Sequence[tuple[str, str]], title: str) -> str:
    """Return an SVG of the commands and their outputs, lines broken where a terminal breaks them."""
    lines: list[Text] = []
    for command, text in shown:
        if lines:
            lines.append(Text())
        lines.append(Text.assemble(("$ ", "bold green"), (command, "bold")))
        lines += [part for line in text.rstrip("\n").split("\n") for part in broken(Text.from_ansi(line))]
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    for each in lines:
        console.print(each, no_wrap=True, overflow="ignore", crop=False, highlight=False)
    named = _FORMAT.replace("TITLE", escape(title).replace("{", "{{").replace("}", "}}"))
    return console.export_svg(title=title, code_format=named, unique_id="nodectl")


def broken(line: Text) -> list[Text]:
    """Return the line in parts of the terminal's width."""
    if cell_len(line.plain) <= COLUMNS:
        return [line]
    return list(line.divide(range(COLUMNS, len(line.plain), COLUMNS)))


if __name__ == "__main__":
    main()
