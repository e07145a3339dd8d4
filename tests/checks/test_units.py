"""systemd's units and their limits, and what Slurm thinks of the node."""

from dataclasses import replace

from nodectl.facts.services import SlurmNode, TimeService, Unit, Units
from nodectl.facts.settings import Sysctl, UnitLimits
from tests.checks.table import ABSENT, Case, dgx, plain


def systemd(*failed: str, **named: Unit) -> dict[str, object]:
    return {"units": Units("degraded" if failed else "running", named, failed)}


def limits(
    memlock: str | None = "infinity", nofile: str | None = "1048576", remove_ipc: bool | None = False
) -> dict[str, object]:
    return {"unit_limits": UnitLimits(memlock, nofile, "infinity", remove_ipc)}


def node(*states: str, responding: bool = True) -> dict[str, object]:
    return {"slurm": SlurmNode("n1", states, responding, "bad cable", 256, 990_000, "gpu:a100:8", "23.02")}


CRASHED = Unit("slurmd", "loaded", "failed", "failed", "enabled", "exit-code")
RUNNING = Unit("slurmd", "loaded", "active", "running", "enabled", "success")
OFF = Unit("docker", "loaded", "inactive", "dead", "enabled", "success")
UPGRADES = {"unattended-upgrades": Unit("unattended-upgrades", "loaded", "active", "running", "enabled", "success")}
CASES = [
    Case("failed_units", "ok", systemd()),
    Case("failed_units", "warning", systemd("fwupd.service"), subject="fwupd.service"),
    Case("failed_units", "nothing", {"units": ABSENT}),
    Case("unit_stopped", "ok", systemd(slurmd=RUNNING, docker=OFF)),
    Case("unit_stopped", "warning", systemd(slurmd=CRASHED), subject="slurmd"),
    Case("unit_stopped", "warning", systemd(slurmd=replace(OFF, name="slurmd")), subject="slurmd"),
    Case("unit_stopped", "warning", systemd(chrony=replace(OFF, name="chrony")), subject="chrony"),
    Case("unit_stopped", "ok", systemd(chrony=replace(OFF, name="chrony"), ntpd=RUNNING)),
    Case(
        "unit_stopped",
        "ok",
        {**systemd(chrony=replace(OFF, name="chrony")), "time_service": TimeService((), own_clock=False)},
    ),
    Case("unit_stopped", "ok", systemd(docker=replace(OFF, name="docker"))),
    Case("automatic_upgrades", "ok", systemd(), dgx()),
    Case("automatic_upgrades", "ok", systemd(**UPGRADES), plain()),
    Case("automatic_upgrades", "warning", systemd(**UPGRADES), dgx()),
    Case("unit_limits", "ok", limits(), plain()),
    Case("unit_limits", "warning", limits("8388608"), plain(), subject="memlock"),
    Case("unit_limits", "warning", limits(nofile="1024"), plain(), subject="nofile"),
    Case(
        "unit_limits",
        "skipped",
        {**limits(nofile="1024"), "sysctl": {"fs.nr_open": Sysctl("fs.nr_open", "65536")}},
        plain(),
        subject="nofile",
    ),
    Case("unit_limits", "unknown", limits(None), plain(), subject="memlock"),
    Case("unit_limits", "nothing", {"unit_limits": ABSENT}, plain()),
    Case("remove_ipc", "ok", limits()),
    Case("remove_ipc", "warning", limits(remove_ipc=True)),
]
SLURM = [
    Case("slurm_state", "ok", node("IDLE")),
    Case("slurm_state", "ok", node("ALLOCATED")),
    Case("slurm_state", "warning", node("IDLE", "DRAIN")),
    Case("slurm_state", "failed", node("DOWN")),
    Case("slurm_state", "failed", node("IDLE", responding=False)),
    Case("slurm_state", "nothing", {"slurm": ABSENT}),
]
