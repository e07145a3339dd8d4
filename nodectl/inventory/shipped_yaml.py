"""The large YAML files that come with Ansible, parsed once a version and kept as JSON in nodectl's cache folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from nodectl.common.files import replace_file
from nodectl.common.paths import cache_dir

# its settings and its plug-ins' former names have 91 kB and more; what operators write is parsed each time
_LARGE_BYTES = 50_000


@cache
def keep_parsed() -> None:
    """Have Ansible's own readers of these files look here first; before its constants are imported.

    They are a third of what reading an inventory costs.
    """
    from ansible.config import manager
    from ansible.utils.collection_loader import _collection_finder as finder

    parse_settings, parse_names = manager.yaml_load, finder._meta_yml_to_dict

    def settings(stream: Any) -> Any:
        text = stream.read() if hasattr(stream, "read") else stream
        return _kept(text, "settings", parse_settings)

    def names(text: Any, content_id: Any) -> Any:
        return _kept(text, "names", lambda text: parse_names(text, content_id))

    manager.yaml_load, finder._meta_yml_to_dict = settings, names


def _kept(text: str | bytes, how: str, parse: Callable[[Any], Any]) -> Any:
    """Return what `parse` makes of the text; `how` tells apart two that read the same text differently."""
    data = text.encode() if isinstance(text, str) else text
    if len(data) < _LARGE_BYTES:
        return parse(text)
    with suppress(OSError, ValueError):
        return json.loads(_place(data, how).read_bytes())
    value = parse(text)
    with suppress(OSError, ValueError, TypeError):
        _keep(_place(data, how), value)
    return value


def _place(data: bytes, how: str) -> Path:
    return cache_dir() / "ansible" / f"{how}-{hashlib.sha256(data).hexdigest()[:32]}.json"


def _keep(path: Path, value: Any) -> None:
    """Only what JSON gives back as it was; dates and keys that are numbers are parsed each time."""
    text = json.dumps(value)
    if json.loads(text) == value:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        replace_file(path, text)
