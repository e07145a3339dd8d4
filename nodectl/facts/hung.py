"""The tools that did not end in time or printed without end, and the commands that were not run for it."""

from __future__ import annotations

from dataclasses import dataclass

from nodectl.facts.base import DEADLINE, NO_TIME, AbsentError, Fact, UnknownError, is_flood, tool
from nodectl.model.recording import SITE, Entry, Recording

_NOT_ASKED = "not asked: "


@dataclass(frozen=True, slots=True)
class Hung:
    """`tools`: each with how long it was waited for and the keys of its commands; `no_time`: keys for want of time.

    `floods`: the names among them that printed without end.
    """

    tools: tuple[tuple[str, float, tuple[str, ...]], ...] = ()
    no_time: tuple[str, ...] = ()
    floods: frozenset[str] = frozenset()


def _read(recording: Recording) -> Hung:
    if not recording.entries:
        raise UnknownError("no command is in the recording")
    # a site's own checks say so under their own ids
    ours = [done for done in recording.entries.values() if not done.key.startswith(SITE)]
    late = [done for done in ours if done.exit_status == DEADLINE or is_flood(done)]
    if not late:
        raise AbsentError("all ended in time")
    no_time = tuple(done.key for done in late if NO_TIME in done.stderr)
    by_tool: dict[str, list[Entry]] = {}
    for done in late:
        if done.key not in no_time:
            by_tool.setdefault(tool(done), []).append(done)
    floods = frozenset(name for name, entries in by_tool.items() if all(is_flood(done) for done in entries))
    return Hung(tuple(_hung(name, entries) for name, entries in by_tool.items()), no_time, floods)


def _hung(name: str, entries: list[Entry]) -> tuple[str, float, tuple[str, ...]]:
    waited = [done.duration_s for done in entries if _NOT_ASKED not in done.stderr]
    return name, max(waited, default=0.0), tuple(done.key for done in entries)


def _words(hung: Hung) -> str:
    left = [f"{NO_TIME} for {len(hung.no_time)} commands"] if hung.no_time else []
    return "; ".join([*(name for name, *_ in hung.tools), *left])


# no command of its own: it is read from those of all others
FACT = Fact("hung", (), _read, _words, row=990, quiet=True)
