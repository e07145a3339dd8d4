"""Torch's flight recorder: the dumps that it writes at a time-out, read without running what is in them."""

from __future__ import annotations

import glob
import io
import os
import time
from typing import Any, Dict, List, NoReturn

from ..common.patterns import lazily

_MOST_BYTES = 64 << 20
_MOST_GROUPS, _MOST_WHOLE = 64, 8
_MOST_MEMBERS = 64
_MOST_RECENT = 4
_COMPARED = ("collective", "number", "sizes", "types")
_CLOCK_S = 1.0  # a file's time may be a little older than the moment
_NUMBER = lazily(r"\d+")
_RANK = lazily(r"_rank_?(\d+)$")


class DumpError(ValueError):
    """Raised for a file that is no flight recorder's dump, or holds more than plain data."""


def _plain_data(data: bytes) -> Any:
    import pickle  # few jobs have a dump

    class PlainData(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> NoReturn:
            raise DumpError(f"it names {module}.{name}, which is no plain data")

        def persistent_load(self, pid: Any) -> NoReturn:
            raise DumpError("it refers to something outside")

    return PlainData(io.BytesIO(data)).load()


def load(data: bytes) -> Dict[str, Any]:
    """Return the recorder's document; raise DumpError if it is none, or a dangerous one."""
    try:
        document = _plain_data(data)
    except DumpError:
        raise
    except Exception as error:  # a damaged pickle may raise anything
        raise DumpError(f"it cannot be read: {type(error).__name__}: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("entries"), list):
        raise DumpError("it holds no entries of a flight recorder")
    return document


def summary(document: Any) -> Dict[str, Any]:
    """Return, by process group, the last collective that was begun: its name, number, sizes, types, state and place.

    `members` are the group's ranks if the dump names them, `recent` its last calls; one group has `pending`, the call
    in which the rank is waiting.
    """
    entries = document.get("entries") if isinstance(document, dict) else None
    groups: Dict[str, Any] = {}
    recent: Dict[str, List[Dict[str, Any]]] = {}
    pending: Dict[str, Any] = {}
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("collective_seq_id"), int) and not entry.get("is_p2p"):
            group = entry.get("process_group")
            name = str(group[0] if isinstance(group, (list, tuple)) and group else "?")[:40]
            groups[name] = _call(entry)
            recent[name] = [*recent.get(name, ())[-_MOST_RECENT:], {key: groups[name][key] for key in _COMPARED}]
            # the dump says which of NCCL's calls have ended; gloo runs calls one by one, and the last may still run
            if not pending or pending["state"] == "completed" or pending["collective"].startswith("gloo"):
                pending = {**groups[name], "group": name}
    members, kept = _members(document), {}
    for place, name in enumerate(sorted(groups)[:_MOST_GROUPS]):
        last = groups[name] if place < _MOST_WHOLE else {key: groups[name][key] for key in ("collective", "number")}
        kept[name] = {**last, "members": members.get(name, [])}
        if place < _MOST_WHOLE:
            kept[name]["recent"] = recent[name][:-1]
    if pending and pending["state"] != "completed" and pending["group"] in kept:
        kept[pending["group"]]["pending"] = {key: pending[key] for key in _COMPARED}
    return kept


def _call(entry: Dict[str, Any]) -> Dict[str, Any]:
    types = entry.get("input_dtypes")  # missing in older versions of torch
    return {
        "collective": str(entry.get("profiling_name", "?"))[:60],
        "number": entry["collective_seq_id"],
        "sizes": str(entry.get("input_sizes", ""))[:80],
        "types": ", ".join(dict.fromkeys(map(str, types)))[:40] if isinstance(types, (list, tuple)) else "",
        "state": str(entry.get("state", ""))[:20],
        "called_at": _called_at(entry.get("frames")),
    }


def _members(document: Any) -> Dict[str, List[int]]:
    config = document.get("pg_config") if isinstance(document, dict) else None
    groups = [group for group in (config.values() if isinstance(config, dict) else ()) if isinstance(group, dict)]
    rank_texts = {str(group["name"]): str(group.get("ranks", "")) for group in groups if group.get("name")}
    members = {name: [int(word) for word in _NUMBER.findall(ranks)] for name, ranks in rank_texts.items()}
    return {name: ranks for name, ranks in members.items() if len(ranks) <= _MOST_MEMBERS}


def _called_at(frames: Any) -> str:
    for frame in frames if isinstance(frames, list) else []:
        if isinstance(frame, dict) and "site-packages" not in str(frame.get("filename", "")):
            return f"{frame.get('filename')}:{frame.get('line')} {frame.get('name')}"[:200]
    return ""


def _written_at(path: str) -> float:
    try:
        return os.path.getmtime(path)
    except OSError:
        return 0.0


def read_dumps(job: str, since_s: float = 0.0) -> Dict[str, Any]:
    """Return, by rank (as text), `groups` or the `problem` of each dump that was written since a monotonic moment."""
    dumps: Dict[str, Any] = {}
    since = time.time() - (time.monotonic() - since_s) - _CLOCK_S
    newest: Dict[int, str] = {}  # the launch script has torch write them there
    paths = glob.glob(os.path.join(glob.escape(job), "ranks", "**", "*_rank_*"), recursive=True)
    for path in sorted(paths, key=_written_at):
        match = _RANK.search(path)
        if match and os.path.isfile(path):
            newest[int(match.group(1))] = path
    for rank, path in sorted(newest.items()):
        if _written_at(path) < since:
            continue  # of an earlier attempt
        try:
            if os.path.getsize(path) > _MOST_BYTES:
                raise DumpError(f"it has more than {_MOST_BYTES >> 20} MiB")
            with open(path, "rb") as file:
                dumps[str(rank)] = {"groups": summary(load(file.read(_MOST_BYTES)))}
        except (OSError, DumpError) as error:
            dumps[str(rank)] = {"problem": f"{path}: {error}"}
    return dumps
