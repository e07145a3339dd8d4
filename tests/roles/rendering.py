"""templates/ as Ansible renders them, without a run of Ansible; test_templates.py holds the two together."""

from __future__ import annotations

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from nodectl.common.resources import share_dir


def render(template: str, **variables: object) -> str:
    """`templates/<template>` with these variables; a missing one is jinja2.UndefinedError."""
    environment = Environment(  # noqa: S701  # shell scripts and NCCL's file, no HTML
        loader=FileSystemLoader(share_dir() / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(**variables)
