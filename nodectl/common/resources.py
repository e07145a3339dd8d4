"""Where the package's own files lie, and the Ansible collection beside it."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
# beside the package, where Ansible looks for collections in its Python's path; in a checkout a link
COLLECTION = Path("ansible_collections", "nodectl", "fleet")


def share_dir() -> Path:
    """The collection nodectl.fleet: playbooks/, plugins/ and roles/; in a checkout the checkout itself."""
    return (_PACKAGE.parent / COLLECTION).resolve()


def collections_dir() -> Path:
    """What ANSIBLE_COLLECTIONS_PATH names to have Ansible find that collection."""
    return _PACKAGE.parent


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
