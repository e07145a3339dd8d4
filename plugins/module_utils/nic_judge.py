"""What an interface's rings, interrupts and QoS are judged to be."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from ansible_collections.nodectl.fleet.plugins.module_utils import nic_hw
from ansible_collections.nodectl.fleet.plugins.module_utils.findings import finding, not_settable

if TYPE_CHECKING:  # nodes run this from Python 3.8 on, which cannot evaluate these
    from collections.abc import Callable, Mapping

    Run = Callable[[list[str]], tuple[int, str, str]]
    Finding = dict[str, str]

CHECK, REMEDY = "nic", "run `nodectl provision --tags nic`; what owns the interface may have set it back"


def judge_rings(name: str, sizes: tuple[Mapping[str, int], Mapping[str, int]] | None) -> Finding:
    """Pure: the rings are as large as the device lets them be."""
    subject = f"{name} rings"
    if sizes is None or not sizes[0]:
        return not_settable(CHECK, subject, "the device's maximum", "it has no ring sizes, or ethtool is not installed")
    expected, actual = (", ".join(f"{ring} {size}" for ring, size in sorted(each.items())) for each in sizes)
    status = "ok" if expected == actual else "failed"
    return finding(CHECK, status, subject, expected=expected, actual=actual, remedy=REMEDY)


def judge_interrupts(name: str, found: tuple[str, Mapping[str, str]] | None, balanced: bool) -> Finding:
    """Pure: every interrupt is served on the interface's own NUMA node."""
    subject, expected = f"{name} interrupts", "on the CPUs of its NUMA node"
    if found is None:
        return not_settable(CHECK, subject, expected, "the device has no NUMA node, or no interrupts of its own")
    cpus, affinity = found
    away = sorted(irq for irq, now in affinity.items() if not nic_hw.cpu_set(now) <= nic_hw.cpu_set(cpus))
    if balanced:
        remedy = "set nic_irqbalance to stop, or ban these interrupts in irqbalance's own settings"
        actual = f"irqbalance moves them; {len(away)} of {len(affinity)} elsewhere now"
        return finding(CHECK, "warning", subject, expected=f"{expected} ({cpus})", actual=actual, remedy=remedy)
    actual = f"{len(away)} of {len(affinity)} elsewhere" if away else f"all {len(affinity)}"
    status = "failed" if away else "ok"
    return finding(CHECK, status, subject, expected=f"{expected} ({cpus})", actual=actual, remedy=REMEDY)


def qos(run: Run, name: str) -> Finding:
    """Priority flow control and trust as the device has them: never written, since they must match the switch."""
    subject, expected = f"{name} qos", "as the switch has it: read only"
    if not shutil.which("dcb"):
        return finding(CHECK, "skipped", subject, expected=expected, actual="no dcb to ask (package iproute2)")
    status, out, err = run(["dcb", "pfc", "show", "dev", name])
    if status != 0:
        reason = (err or out).strip().splitlines()[:1]
        return finding(CHECK, "skipped", subject, expected=expected, actual=f"it has none: {''.join(reason)}")
    app = run(["dcb", "app", "show", "dev", name])[1]
    words = " ".join((out + " " + app).split())
    return finding(CHECK, "ok", subject, expected=expected, actual=words)
