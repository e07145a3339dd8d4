"""Modules that roles bring with them, loaded by their path as Ansible does."""

import importlib.util
from collections.abc import Callable
from types import ModuleType

import pytest

from nodectl.resources import share_dir


@pytest.fixture(scope="session")
def role_module() -> Callable[[str, str], ModuleType]:
    def load(role: str, name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, share_dir() / "roles" / role / "library" / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
