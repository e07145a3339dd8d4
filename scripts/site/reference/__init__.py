"""The pages of the reference: texts by their place in the site, from what the code declares; none lies in docs/."""

from __future__ import annotations

from scripts.site.reference import command_line, documents, judgements, lists, profiles, roles, statuses

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
- [Facts](facts.md): what a look reads of a host; [probes](probes.md); [steps of an acceptance](accept-steps.md)
- [Outputs that can be read](tools.md), [metrics](metrics.md)

The other pages of this part say how things work. Two have a table of their own: [faults of the
lab](../faults.md#the-matrix), [alerts](../report.md#alerts).
"""


def pages() -> Pages:
    """All of them."""
    parts = (command_line, statuses, documents, profiles, roles, judgements, lists)
    found: Pages = {"index.md": _INDEX}
    for part in parts:
        found |= part.pages()
    return {f"reference/{place}": text for place, text in found.items()}
