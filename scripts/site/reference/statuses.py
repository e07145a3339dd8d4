"""What commands end with: the rule as the architecture has it, and the errors that follow it."""

from __future__ import annotations

from nodectl import errors
from scripts.site.pages import ROOT, plain, section, table

_PAGE = """# Exit statuses

{rule}

## Errors by their status

What nodectl raises on purpose ends a command with its status, one line on stderr that says what is wrong, and
where there is one a second that says what to try.

{errors}

A command that says something else of its statuses does so in its help: [command line](cli/index.md).
"""


def pages() -> dict[str, str]:
    """`exit-statuses.md`."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.NodectlError)]
    rows = [
        [str(kind.exit_status), f"`{kind.__name__}`", plain((kind.__doc__ or "").strip().partition("\n\n")[0])]
        for kind in sorted(kinds, key=lambda kind: (kind.exit_status, kind.__name__))
        if kind is not errors.NodectlError
    ]
    rule = section((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), "Exit status")
    return {"exit-statuses.md": _PAGE.format(rule=rule, errors=table(["status", "error", "when"], rows))}
