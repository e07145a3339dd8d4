"""What nodectl adds to the Python of a rank: an uncaught exception is kept whole, a signal has all stacks written.

`site` imports this at the start of every Python below the launcher, because its folder is the first of PYTHONPATH. In
what is no rank it does nothing; in a rank it takes itself off that path, so that the script and its children see the
environment as it was. It never raises, prints nothing, and starts no thread.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Dict, List, Optional, Tuple

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_TEXT_CHARS, _HEAD_CHARS = 24 * 1024, 4 * 1024
_MESSAGE_CHARS = 4 * 1024
_CHAIN = 8
_ROOM_BYTES = 128 * 1024
_FLIGHT_BYTES = 1 << 20
_FULL_BYTES = 1 << 20
_HANDLE = 900  # out of the way of programs that close or reuse low numbers


def _import_shadowed_sitecustomize() -> None:
    sys.path[:] = [place for place in sys.path if not place or os.path.abspath(place) != _FOLDER]
    this_module = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401 - the next one on the path
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if this_module is not None:
            sys.modules.setdefault("sitecustomize", this_module)


def _is_rank() -> bool:
    """Tell whether this is the first Python with a rank's variables: its children have them too, and the mark."""
    numbers = [os.environ.get(name, "") for name in ("RANK", "LOCAL_RANK")]
    is_known = bool(os.environ.get("NODECTL_JOB_DIR")) and all(number.isdigit() for number in numbers)
    return is_known and "NODECTL_IN_RANK" not in os.environ


def _clean_environment() -> None:
    os.environ["NODECTL_IN_RANK"] = str(os.getpid())
    places = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place != _FOLDER]
    if any(places):
        os.environ["PYTHONPATH"] = os.pathsep.join(places)
    else:
        os.environ.pop("PYTHONPATH", None)


class _Rank:
    """The notes of this process: `RANK.json` (that it is watched, and how), `RANK.stacks`, `RANK.error.json`.

    The last one has its handle and its room from the start: at its end a rank may have no file left, a full disk, or
    another login.
    """

    def __init__(self) -> None:
        import json  # noqa: F401 - a rank may be another login by its end
        import traceback  # noqa: F401

        self.pid = os.getpid()
        folder = os.path.join(os.environ["NODECTL_JOB_DIR"], "notes")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self.place = os.path.join(folder, os.environ["RANK"])
        self.noted = False
        self.error = _opened(self.place + ".error.json")
        os.write(self.error, b" " * _ROOM_BYTES)
        self.error_file = _file_of(self.error)
        number, handle = self._register()
        _write(self.place + ".json", {"signal": number, "handle": handle})
        self._hook()

    def _register(self) -> Tuple[int, int]:
        import faulthandler
        import signal

        handle = _opened(self.place + ".stacks", os.O_APPEND)
        number = int(signal.SIGRTMAX) - 3
        signal.signal(number, signal.SIG_IGN)  # what a Python that ends goes back to: asked then, it must not die of it
        faulthandler.register(number, file=handle, all_threads=True)
        if not faulthandler.is_enabled():
            faulthandler.enable(file=handle, all_threads=True)
        return number, handle

    def _hook(self) -> None:
        import atexit

        before = sys.excepthook

        def hook(kind: Any, value: Any, trace: Any) -> None:
            self.note(value)
            before(kind, value, trace)

        sys.excepthook = hook
        atexit.register(self._at_exit)

    def _at_exit(self) -> None:
        """Note the exception that a script's own hook did not tell; else note that none has ended it."""
        value = getattr(sys, "last_value", None)
        if isinstance(value, BaseException):
            self.note(value)
        elif not self.noted and os.getpid() == self.pid:
            self._put({"left": True})

    def note(self, value: BaseException) -> None:
        """Write the exception down; whatever goes wrong with that is no concern of the script's."""
        if self.noted or os.getpid() != self.pid:
            return
        self.noted = True
        import contextlib

        for _ in range(2):  # the handler of a signal may raise in the midst, as that of torch's DataLoader does
            with contextlib.suppress(Exception):
                self._put(_note(value))
                flight = _flight_recorder()
                if flight is not None:
                    _write(self.place + ".flight.json", flight)
                return

    def _put(self, note: Dict[str, Any]) -> None:
        import contextlib
        import json

        with contextlib.suppress(OSError):  # the program may have closed it
            if _file_of(self.error) == self.error_file:
                os.pwrite(self.error, json.dumps(note).encode().ljust(_ROOM_BYTES), 0)


def _opened(path: str, flags: int = 0) -> int:
    import fcntl

    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | flags, 0o600)
    try:
        high = fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, _HANDLE)
    except OSError:  # fewer files are allowed
        return handle
    os.close(handle)
    return high


def _file_of(handle: int) -> Tuple[int, int]:
    state = os.fstat(handle)
    return state.st_dev, state.st_ino


def _note(value: BaseException) -> Dict[str, Any]:
    import time
    import traceback

    lines = traceback.format_exception(type(value), value, value.__traceback__)
    return {
        "monotonic_s": time.monotonic(),
        "chain": [_link(error, role) for error, role in _chain(value)],
        "text": _bounded("".join(lines), _TEXT_CHARS),
        "full": _or(lambda: _full_disks(value), []),
    }


def _or(ask: Callable[[], Any], otherwise: Any) -> Any:
    """Return what it gives, or `otherwise`: the place where a script died may lack what a part of the note asks for."""
    try:
        return ask()
    except Exception:
        return otherwise


def _bounded(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    head = min(_HEAD_CHARS, most // 4)
    return f"{text[:head]}\n[… {len(text) - most} characters left out …]\n{text[head - most :]}"


def _chain(value: BaseException) -> List[Tuple[BaseException, str]]:
    """Return the exception, then what it came from: by `raise … from` (cause), or as another was handled (context)."""
    links: List[Tuple[BaseException, str]] = [(value, "raised")]
    while len(links) < _CHAIN:
        last = links[-1][0]
        cause = last.__cause__
        before, role = (cause, "cause") if cause is not None else (last.__context__, "context")
        if before is None or (cause is None and last.__suppress_context__):
            break
        links.append((before, role))
    return links


def _link(value: BaseException, role: str) -> Dict[str, Any]:
    import traceback

    kind = type(value)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    frames = [(frame.filename, frame.lineno, frame.name) for frame in traceback.extract_tb(value.__traceback__)[-12:]]
    lines = traceback.format_exception_only(kind, value)
    # a SyntaxError's own line comes last, behind the place, which is indented
    lines.sort(key=lambda line: isinstance(value, SyntaxError) and line.startswith(" "))
    return {
        "type": name,
        "message": _bounded("".join(lines).strip(), _MESSAGE_CHARS),
        "role": role,
        "errno": getattr(value, "errno", None) if isinstance(value, OSError) else None,
        "frames": frames,
    }


def _full_disks(value: BaseException) -> List[str]:
    import tempfile

    here = _or(os.getcwd, "")  # a folder that is gone
    places = [here, _or(tempfile.gettempdir, ""), "/dev/shm", os.environ.get("NODECTL_CHECKPOINT_DIR", "")]  # noqa: S108
    names = [getattr(value, "filename", None), getattr(value, "filename2", None)]
    places += [os.path.dirname(os.path.join(here, name)) for name in names if isinstance(name, str)]
    return [place for place in dict.fromkeys(places) if place and _is_full(place)]


def _is_full(place: str) -> bool:
    try:
        state = os.statvfs(place)
    except OSError:
        return False
    return state.f_blocks > 0 and (
        state.f_bavail * state.f_frsize < _FULL_BYTES or (state.f_files > 0 and not state.f_favail)
    )


def _flight_recorder() -> Optional[Any]:
    """Return the collectives that torch remembers: of the newest, without their stacks; None without any."""
    import json

    library = sys.modules.get("torch._C._distributed_c10d")
    dump = getattr(library, "_dump_fr_trace_json", None)
    if dump is None:
        return None
    data = dump()
    if len(data) > _FLIGHT_BYTES:
        return None
    flight = json.loads(data)
    groups = _or(_process_groups, [])
    return {**flight, **({"pg_config": dict(enumerate(groups))} if groups else {})}


def _process_groups() -> List[Dict[str, str]]:
    """Torch's process groups by their names, with their ranks, which the recorder has for NCCL's alone."""
    world = sys.modules["torch.distributed.distributed_c10d"]._world
    ranks, names = world.pg_group_ranks, world.pg_names  # of groups of which this rank is no member there is no name
    return [{"name": str(names[group]), "ranks": str(sorted(ranks[group]))} for group in ranks if group in names]


def _write(path: str, document: Dict[str, Any]) -> None:
    import json

    temporary = f"{path}.{os.getpid()}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(document, file)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _install() -> None:
    try:
        if _is_rank():
            _clean_environment()
            _Rank()
            if os.environ.pop("NODECTL_TRACE", ""):
                import importlib

                importlib.import_module("nodectl_trace").install()  # of this folder, which is about to leave the path
    except Exception:  # noqa: S110 - a rank without notes is still a rank
        pass


_install()
_import_shadowed_sitecustomize()
