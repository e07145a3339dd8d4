"""Where playbooks, roles and templates lie: beside the package in a checkout, inside it in a wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def share_dir() -> Path:
    """The folder that holds playbooks/, roles/ and templates/."""
    installed = _PACKAGE / "share"
    return installed if installed.is_dir() else _PACKAGE.parent


def profiles_dir() -> Path:
    """The folder of the profiles that nodectl ships."""
    return _PACKAGE / "profiles"


def payload_dir() -> Path:
    """The folder of the programs that run on nodes."""
    return _PACKAGE / "payload"


def data_dir() -> Path:
    """The folder of the figures and recordings that nodectl ships."""
    return _PACKAGE / "data"


def recordings_dir() -> Path:
    """The folder of the recordings that nodectl ships."""
    return _PACKAGE / "data" / "recordings"
