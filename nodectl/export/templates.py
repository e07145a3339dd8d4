"""The collection's templates/, as Ansible renders them too: a role that needs one links to it."""

from __future__ import annotations

import shlex

from nodectl.common.resources import share_dir


def render(template: str, **variables: object) -> str:
    """Return `templates/TEMPLATE` with these variables; a missing one is jinja2.UndefinedError."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(  # noqa: S701  # scripts and plain files, no HTML
        loader=FileSystemLoader(share_dir() / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["quote"] = shlex.quote
    return environment.get_template(template).render(**variables)
