"""A page for each Ansible role: the README that its argument_specs make."""

from __future__ import annotations

from scripts.role_readmes import ROLES, readme
from scripts.site.pages import body, table, title

_INDEX = """# Roles

The roles of the Ansible collection `nodectl.fleet`, which lies in nodectl's wheel. `ansible-doc -t role` shows the same
of `nodectl.fleet.NAME` in a terminal. In a playbook of one's own: [Provision](../../provision.md).

{roles}
"""


def pages() -> dict[str, str]:
    """`roles/index.md`, and `roles/NAME.md`."""
    texts = {
        path.parent.parent.name: readme(path.parent.parent) for path in sorted(ROLES.glob("*/meta/argument_specs.yml"))
    }
    rows = [[f"[`{name}`]({name}.md)", body(text).partition("\n\n")[0]] for name, text in texts.items()]
    index = _INDEX.format(roles=table(["role", "what it does"], rows))
    return {"roles/index.md": index} | {f"roles/{title(text)}.md": text for text in texts.values()}
