"""A page followed from top to bottom, in a home of its own, and its labs taken down whatever comes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from nodectl.lab.down import down
from nodectl.lab.state import LabFolder
from tests.pages.page import ROOT, STATUS, Command, Page, PageError, Step
from tests.pages.session import Session, SessionError
from tests.pages.shown import first_missing

_SHORT_S, _LONG_S = 240.0, 2400.0
# what stands in a page for the reader's home
_HOME = "/home/you"
_STATE = ".local/state"


def environment(home: Path, given: Mapping[str, str]) -> dict[str, str]:
    """A reader's: a home of his own, this checkout's nodectl, and the cache that all share."""
    env = {name: value for name, value in given.items() if not name.startswith(("NODECTL_", "ANSIBLE_", "SSH_"))}
    return env | {
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / _STATE),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_CACHE_HOME": given.get("XDG_CACHE_HOME", str(ROOT / ".cache")),
        "ANSIBLE_HOME": str(home / ".ansible"),
        "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}:{given['PATH']}",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
    }


def follow(
    page: Page,
    folder: Path,
    *,
    given: Mapping[str, str] = os.environ,
    done: Callable[[Command, str], None] = lambda *_: None,
) -> None:
    """Do what the page says in the empty folder; PageError at the first step that is not as it is shown."""
    home = folder / "home"
    work = home / "work"
    work.mkdir(parents=True)
    deadline = time.monotonic() + (_LONG_S if page.long else _SHORT_S)
    with _no_lab_left(page, home), Session(work, environment(home, given), folder / "output") as session:
        for place, step in enumerate(page.steps):
            if isinstance(step, Command):
                done(step, _run(page, step, page.steps[place + 1 :], session, deadline, home))
            else:
                path = work / step.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(step.text, encoding="utf-8")


@contextmanager
def _no_lab_left(page: Page, home: Path) -> Iterator[None]:
    finished = False
    try:
        yield
        finished = True
    finally:
        left = sorted(home.joinpath(_STATE, "nodectl/lab").glob("*"))
        for path in left:
            down(LabFolder(path.resolve()))
    if finished and left:
        raise PageError(f"{page.name}: the lab '{left[0].name}' is still up at the end of the page")


def _run(page: Page, command: Command, after: Sequence[Step], session: Session, deadline: float, home: Path) -> str:
    """What it printed; PageError if that is not what the page shows."""
    try:
        ended = session.run(command.text, max(0.0, deadline - time.monotonic()))
    except SessionError as error:
        raise PageError(_report(page, command, str(error), error.output)) from error
    output = ended.output.replace(str(home), _HOME)
    status_follows = bool(after) and isinstance(after[0], Command) and after[0].text == STATUS
    if ended.status != 0 and not status_follows:
        raise PageError(_report(page, command, f"ended with {ended.status}, and no `{STATUS}` follows", output))
    shown = [line.text for line in command.shown]
    if command.text == STATUS:
        missing = None if shown[0].strip() == output.strip() else 0
    else:
        missing = first_missing(shown, output.splitlines())
    if missing is not None:
        line = command.shown[missing]
        raise PageError(
            _report(page, command, f"line {line.number} does not come, or not in this order: {line.text}", output)
        )
    return output


def _report(page: Page, command: Command, what: str, output: str) -> str:
    lines = [f"{page.name}:{command.line}: `{command.text}` {what}", "  shown:"]
    lines += [f"    {line.text}" for line in command.shown] or ["    (nothing)"]
    lines += ["  real:", *(f"    {line}" for line in output.splitlines())]
    return "\n".join(lines)
