"""The operator's own folders: XDG state and cache, never the checkout."""

from pathlib import Path

from platformdirs import user_cache_path, user_state_path

from nodectl.common.ownership import refuse_open

_looked_at: set[Path] = set()


def folders() -> tuple[Path, Path]:
    """Both, whether or not they are there, or can be."""
    return user_state_path("nodectl"), user_cache_path("nodectl")


def state_dir() -> Path:
    """Return the state folder (XDG_STATE_HOME), made 0700 on first use.

    UsageError where another login could have it hold what it likes.
    """
    path = user_state_path("nodectl")
    if path not in _looked_at:
        refuse_open(path, "nodectl believes what its state folder holds; or set XDG_STATE_HOME to a folder of yours")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    _looked_at.add(path)
    return path


def cache_dir() -> Path:
    """Return the cache folder (XDG_CACHE_HOME): wheels for the lab, nothing that cannot be made again."""
    path = user_cache_path("nodectl")
    path.mkdir(parents=True, exist_ok=True)
    return path
