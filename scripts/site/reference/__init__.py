"""The pages of the reference: texts by their place in the site, from what the code declares; none lies in docs/."""

from __future__ import annotations

from scripts.site.reference import command_line, documents, judgements, profiles, roles, statuses

Pages = dict[str, str]

_INDEX = """# Reference

What the code declares, written out when this site is built, so that it says what this version does:

- [Command line](cli/index.md): every command with its options
- [Exit statuses](exit-statuses.md): what a command ends with
- [JSON documents](json.md): what `--output json` prints, with schemas
- [Profiles](profiles/index.md): every value of hardware, stacks and tunings, with its reason and source
- [Roles](roles/index.md): every variable of the Ansible roles
- [Checks](checks/index.md): what `nodectl health` and the look before a job judge, and what to do
- [Xids](xids.md): what the driver's error numbers mean, and what to do

The other pages of this part say how things work, and have tables of their own: [facts and probes](../probes.md),
[faults of the lab](../faults.md#the-matrix), [metrics and alerts](../report.md),
[steps of an acceptance](../accept.md), [outputs that can be read](../recordings.md).
"""


def pages() -> Pages:
    """All of them."""
    parts = (command_line, statuses, documents, profiles, roles, judgements)
    found: Pages = {"index.md": _INDEX}
    for part in parts:
        found |= part.pages()
    return {f"reference/{place}": text for place, text in found.items()}
