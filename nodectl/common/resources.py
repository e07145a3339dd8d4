"""Paths of the package's own files, and of the Ansible collection beside it."""

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

_PACKAGE = Path(__file__).resolve().parents[1]
# beside the package, where Ansible looks for collections in its Python's path; in a checkout a link
COLLECTION = Path("ansible_collections", "nodectl", "fleet")


def share_dir() -> Path:
    """Return the collection nodectl.fleet: playbooks/, plugins/ and roles/; in a checkout the checkout itself."""
    return (_PACKAGE.parent / COLLECTION).resolve()


def collections_dir() -> Path:
    """Return what ANSIBLE_COLLECTIONS_PATH names to have Ansible find that collection."""
    return _PACKAGE.parent


def profiles_dir() -> Path:
    """Return the folder of the profiles that nodectl ships."""
    return _PACKAGE / "profiles"


def payload_dir() -> Path:
    """Return the folder of the programs that run on nodes."""
    return _PACKAGE / "payload"


def data_dir() -> Path:
    """Return the folder of the figures and recordings that nodectl ships."""
    return _PACKAGE / "data"


def recordings_dir() -> Path:
    """Return the folder of the recordings that nodectl ships."""
    return _PACKAGE / "data" / "recordings"


@cache
def table(path: Path) -> Any:
    """Return what a YAML file of the package holds; its readers change nothing of it."""
    import yaml

    from nodectl.common.bounded_yaml import FastLoader

    return yaml.load(path.read_bytes(), FastLoader)  # noqa: S506


@cache
def node_module(name: str) -> ModuleType:
    """Load a module of plugins/module_utils that nodes run too, by its path; it uses the standard library alone."""
    path = share_dir() / "plugins" / "module_utils" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"nodectl_on_nodes_{name}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
