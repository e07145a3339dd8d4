"""The operator's own folders: XDG state and cache, never the checkout."""

from pathlib import Path

from platformdirs import user_cache_path, user_state_path


def folders() -> tuple[Path, Path]:
    """Both, whether or not they are there, or can be."""
    return user_state_path("nodectl"), user_cache_path("nodectl")


def state_dir() -> Path:
    """nodectl's state folder (XDG_STATE_HOME), made 0700 on first use."""
    path = user_state_path("nodectl")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def cache_dir() -> Path:
    """nodectl's cache folder (XDG_CACHE_HOME): wheels for the lab, nothing that cannot be made again."""
    path = user_cache_path("nodectl")
    path.mkdir(parents=True, exist_ok=True)
    return path
