"""Templates: those of the collection's roles, as Ansible renders them too, and those of exports."""

from __future__ import annotations

import shlex
from pathlib import Path

from nodectl.common.resources import share_dir


def render(template: str, **variables: object) -> str:
    """Render the TEMPLATE of a role, or beside this module; a missing variable is jinja2.UndefinedError."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folders = [Path(__file__).parent, *sorted((share_dir() / "roles").glob("*/templates"))]
    environment = Environment(  # noqa: S701  # scripts and plain files, no HTML
        loader=FileSystemLoader(folders),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["quote"] = shlex.quote
    return environment.get_template(template).render(**variables)
