"""Options that take the name of a profile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


class ProfileOption(click.Option):
    """Its help ends with the names that there are; they are looked for only when the help is shown."""

    def __init__(self, *declarations: Any, kind: str, **attributes: Any) -> None:
        super().__init__(*declarations, **attributes)
        self.kind = kind

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        from nodectl.profiles.load import find_profiles

        record = super().get_help_record(ctx)
        return record and (record[0], f"{record[1]}  One of: {', '.join(find_profiles(self.kind))}.".strip())


def profile_option(kind: str, **attributes: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`--hardware NAME`, `--stack NAME` or `--tuning NAME`."""
    return click.option(f"--{kind}", cls=ProfileOption, kind=kind, metavar="NAME", **attributes)
