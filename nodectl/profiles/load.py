"""Places of profiles, and how their YAML is read: nodectl's own, then the fleet's `profiles/` next to the inventory."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from nodectl.common import bounded_yaml
from nodectl.common.resources import profiles_dir
from nodectl.common.spelling import meant, nearest
from nodectl.errors import ProfileError

Document = dict[str, Any]
Model = TypeVar("Model", bound=BaseModel)


class _UniqueKeys(yaml.constructor.SafeConstructor):
    """Refuses a key given twice, where YAML would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} stands twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


class _FastLoader(_UniqueKeys, bounded_yaml.FastLoader):
    """Ten times as fast, and its complaints show no line."""


class _Loader(_UniqueKeys, yaml.SafeLoader):
    """Its complaints show the line."""


def profile_dirs(inventory_sources: Iterable[str]) -> tuple[Path, ...]:
    """Return the `profiles/` folders beside (or in) the inventories, in their order; those that exist."""
    folders: dict[Path, None] = {}
    for source in inventory_sources:
        path = Path(source)
        for folder in (path.parent, path) if path.is_dir() else (path.parent,):
            if (folder / "profiles").is_dir():
                folders[(folder / "profiles").resolve()] = None
    return tuple(folders)


def find_profiles(kind: str, extra_dirs: Sequence[Path] = ()) -> dict[str, Path]:
    """Name → file of all profiles of a kind; a fleet's own wins over nodectl's; files named `_…` are none."""
    files: dict[str, Path] = {}
    for folder in (profiles_dir(), *extra_dirs):
        files.update({path.stem: path for path in sorted((folder / kind).glob("[!_]*.yml"))})
    return dict(sorted(files.items()))


def read_profile(kind: str, name: str, extra_dirs: Sequence[Path] = ()) -> tuple[Document, Path]:
    """Return the raw document of a profile and its file; ProfileError naming the known ones if there is none."""
    profiles = find_profiles(kind, extra_dirs)
    if name not in profiles:
        hint = f"{meant(name, profiles)}set nodectl_{kind} to one of: {', '.join(profiles)}" if profiles else ""
        raise ProfileError(f"there is no {kind} profile {name!r}", hint)
    if (kind, name) == ("hardware", "auto") and not profiles[name].is_relative_to(profiles_dir()):
        raise ProfileError(f"{profiles[name]}: auto means what the host has itself", "call your profile otherwise")
    return read_document(profiles[name]), profiles[name]


def read_document(path: Path) -> Document:
    """Read a YAML file as a mapping; ProfileError with its line where it is none."""
    try:
        document = bounded_yaml.load(bounded_yaml.read_bytes(path), _FastLoader, _Loader)
    except (yaml.YAMLError, ValueError, OSError) as error:
        raise ProfileError(f"{path}: {' '.join(str(error).split())}", "correct the file") from error
    if not isinstance(document, dict):
        raise ProfileError(f"{path}: a profile is a mapping of fields", f"see {profiles_dir()} for examples")
    return document


def check_document(model: type[Model], document: object, where: str) -> Model:
    """Return the document as its model; ProfileError naming `where` and the path of the first wrong field."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, item['loc'])) or 'profile'}: {_reason(item, model)}" for item in error.errors()]
        raise ProfileError(f"{where}: {'; '.join(lines)}", "correct the field") from error


def shipped(model: type[Model], name: str) -> Model:
    """Return the file of this name in nodectl's own folder of profiles as its model."""
    path = profiles_dir() / name
    return check_document(model, read_document(path), str(path))


def _reason(item: Any, model: type[BaseModel]) -> str:
    if item["type"] == "extra_forbidden":
        near = nearest(str(item["loc"][-1]), _fields_beside(model, item["loc"]))
        return f"no such field, did you mean {near}?" if near else "no such field"
    if item["type"] == "model_type":
        return "Input should be a mapping of fields"
    return str(item["msg"]).removeprefix("Value error, ")


def _fields_beside(model: type[BaseModel], place: Sequence[object]) -> Iterable[str]:
    for part in place[:-1]:
        field = model.model_fields.get(str(part))
        if field is None or not isinstance(field.annotation, type) or not issubclass(field.annotation, BaseModel):
            return ()
        model = field.annotation
    return model.model_fields
