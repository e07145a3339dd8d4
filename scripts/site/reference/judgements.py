"""What is judged: every check with its thresholds and remedy, by the folders of `nodectl.checks`; every Xid."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from nodectl.checks import catalogue
from nodectl.checks.check import Check
from nodectl.checks.gpu import xid
from nodectl.lab.faults import FAULTS
from scripts.site.pages import plain, table

# what the folders hold, in the order in which findings come
_GROUPS = {
    "gpu": "GPUs, their links and their driver",
    "network": "Network and RDMA",
    "kernel": "Kernel settings",
    "stack": "What is installed",
    "system": "The machine and its system",
    "fleet": "Hosts against one another",
    "launch": "Before a job starts",
}
_INDEX = """# Checks

A check is a judgement on one host, or on the hosts of a fleet or job against one another: a finding with what was
expected, what is, and what to do. How they are asked for, and what a site may set: [Health](../../health.md).

{groups}

## Thresholds of no single check

{thresholds}
"""
_XIDS = """# Xids: what the driver's error numbers mean

The number stands in the kernel's log, `NVRM: Xid (PCI:0000:3b:00): 79, …`. The check [`xid`](checks/gpu.md#xid) finds
it there; a site's own word goes before this one's, by `nodectl_health: {{xid: {{NUMBER: {{status: …, action: …}}}}}}`.

{xids}

## Sources

{sources}
"""


def pages() -> dict[str, str]:
    """`checks/index.md`, `checks/GROUP.md` and `xids.md`."""
    groups: dict[str, list[Check]] = {}
    for module in (*catalogue.modules(), *catalogue.launch_modules()):
        groups.setdefault(_group(module.__name__), []).extend(catalogue.declared(module))
    rows = [
        [f"[{_title(group)}]({group}.md)", " ".join(f"[`{check.id}`]({group}.md#{check.id})" for check in checks)]
        for group, checks in groups.items()
    ]
    own = {limit.name for checks in groups.values() for check in checks for limit in check.thresholds}
    limits = [
        [f"`{limit.name}`", f"{limit.value:g}", plain(limit.why)]
        for limit in catalogue.thresholds().values()
        if limit.name not in own
    ]
    return {
        "checks/index.md": _INDEX.format(
            groups=table(["of", "checks"], rows), thresholds=table(["threshold", "default", "why"], limits)
        ),
        "xids.md": _xids(),
    } | {
        f"checks/{group}.md": "\n\n".join([f"# {_title(group)}", *(_check(check) for check in checks)]) + "\n"
        for group, checks in groups.items()
    }


def _group(module: str) -> str:
    """`gpu` of nodectl.checks.gpu.xid; a module without a folder is of the system."""
    folders = module.split(".")[2:-1]
    return folders[0] if folders else "system"


def _title(group: str) -> str:
    return _GROUPS.get(group, group.capitalize())


def _check(check: Check) -> str:
    return "\n\n".join([f"## `{check.id}`", "\n".join(_lines(check))])


def _lines(check: Check) -> Iterator[str]:
    if facts := catalogue.reads().get(check.id):
        yield f"- **Reads the facts** {', '.join(f'`{name}`' for name in facts)}"
    yield f"- **Not ok when** {plain(check.fires)}"
    if check.expected:
        yield f"- **Expected** {plain(check.expected)}"
    if check.remedy:
        yield f"- **What to do** {plain(check.remedy)}"
    if check.action != "none":
        yield f"- **Action** {check.action}"
    for limit in check.thresholds:
        yield f"- **Threshold** `{limit.name}`, {limit.value:g}: {plain(limit.why)}"
    roles = sorted({*check.roles, *(role for roles in check.roles_of.values() for role in roles)})
    if roles:
        yield f"- **Set by** {', '.join(f'[`{role}`](../roles/{role}.md)' for role in roles)}"
    faults = [name for name, fault in FAULTS.items() if check.id in fault.checks]
    if faults:
        yield f"- **To be seen in a lab** by `nodectl lab fault`: {', '.join(f'`{name}`' for name in faults)}"


def _xids() -> str:
    rows = [
        [
            str(number),
            plain(entry.title),
            entry.status,
            entry.action,
            plain(entry.remedy),
            plain(entry.source),
        ]
        for number, entry in sorted(xid.catalogue().items())
    ]
    unknown = [
        "any other",
        plain(xid.UNKNOWN.title),
        xid.UNKNOWN.status,
        xid.UNKNOWN.action,
        plain(xid.UNKNOWN.remedy),
        "",
    ]
    document = yaml.safe_load(Path(xid.__file__).with_name("xid.yml").read_text(encoding="utf-8"))
    return _XIDS.format(
        xids=table(["Xid", "meaning", "status", "action", "what to do", "whose word"], [*rows, unknown]),
        sources="\n".join(f"- {name}: {plain(place)}" for name, place in document["sources"].items()),
    )
