"""Content for reports of any size: every kind of result, made up, with what a hostile host could put into each text."""

from __future__ import annotations

from nodectl.model.acceptance import (
    Acceptance,
    GpuIdentity,
    HostAcceptance,
    NodeVerdict,
    Seen,
    Step,
    StepState,
    Taken,
)
from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement, MeasurementKind, Unit
from nodectl.model.status import Status
from nodectl.model.topology import Fabric, GpuNic, NodeGpu, NodeNic, NodeTopology, SwitchLoad
from nodectl.model.verdict import Outcome, Verdict
from nodectl.report.page.content import (
    Content,
    Found,
    Launched,
    Measured,
    Nature,
    Origin,
    Tuned,
    Wired,
)

HOSTILE = "</script><script>window.broken=1</script><!--<img src=x onerror=window.broken=2>\u202e\x1b[31m&\"'"
NOW = 1_790_000_000.0
RECORDED = Origin(Nature.RECORDED, "dgx-a100")
_STEPS = ("health", "gemm", "hbm", "memory", "pairs", "fleet")


def names(count: int) -> list[str]:
    """`gpu0001` and so on."""
    return [f"gpu{number:04}" for number in range(1, count + 1)]


def kind_of(probe: str) -> MeasurementKind:
    """Kinds of the probes that are made up here."""
    if probe == "collective":
        return MeasurementKind(units=(Unit("GB/s"),), identity=("collective",), shown="{collective}")
    return MeasurementKind(units=(Unit("Gbit/s"),), shown="{streams} streams")


def acceptance(hosts: list[str], nature: str = "recorded") -> Acceptance:
    """The third host is rejected at gemm, the sixth has a remark, the last one could not be asked."""
    fates = {
        len(hosts): (NodeVerdict.UNTOLD, "health", Status.UNKNOWN, "no answer within 10 s"),
        3: (NodeVerdict.REJECTED, "gemm", Status.FAILED, "171 TFLOPS"),
        6: (NodeVerdict.REMARKS, "hbm", Status.WARNING, HOSTILE),
    }
    whole: list[HostAcceptance] = []
    for number, host in enumerate(hosts, 1):
        steps, left = dict.fromkeys(_STEPS, Status.OK), ""
        reasons: tuple[Seen, ...] = ()
        verdict, step, status, actual = fates.get(number, (NodeVerdict.ACCEPTED, "", Status.OK, ""))
        if step:
            found = Finding(host, f"{step}_slow", status, "GPU 2", "replace", "at least 250 TFLOPS", actual,
                            "send it back", HOSTILE, "host", (host,))  # fmt: skip
            left, reasons = ("" if verdict.accepts else step), (Seen(step, found),)
            steps = {**(steps if verdict.accepts else {"health": Status.OK}), step: status}
        gpus = (GpuIdentity("GPU 3 at 0000:1b:00.0", f"GPU-{number:08x}", "NVIDIA A100-SXM4-80GB", HOSTILE),)
        whole.append(HostAcceptance(host, verdict, steps, left, reasons, HOSTILE, gpus))
    seen = tuple(one for host in whole for one in host.reasons)
    steps_of = tuple(
        Step(name, f"what {name} does", "node", tuple(hosts), 30.0, 28.4, StepState.DONE) for name in _STEPS
    )
    took = tuple(Taken("fleet", one) for one in collectives(hosts[:8]))
    return Acceptance("20261123T220000Z-ab12", "standard", "fleet", NOW, NOW + 900, nature, "0.9", steps_of,
                      tuple(whole), seen, took)  # fmt: skip


def findings(hosts: list[str]) -> tuple[Finding, ...]:
    """Three checks a host: one fails on some, one differs on each, one is fine."""
    return tuple(
        finding
        for number, host in enumerate(hosts)
        for finding in (
            Finding(host, "ecc", Status.FAILED if number % 9 == 4 else Status.OK, "GPU 1", "reset GPU", "0",
                    "3 uncorrected", f"nodectl -l {host} exec -- nvidia-smi -r", HOSTILE),
            Finding(host, "uptime", Status.WARNING, actual=f"up for {number} days {HOSTILE}", remedy="reboot it"),
            Finding(host, "kernel", Status.OK, actual="6.8"),
        )
    )  # fmt: skip


def pairs(hosts: list[str]) -> tuple[Measurement, ...]:
    """All pairs; those of the third host are slow."""
    return tuple(
        Measurement("flows", (a, b), (41.0 if hosts[2] in (a, b) else 96.0) + (i * 7 + j * 3) % 5, "Gbit/s",
                    f"{a}->{b}", 90.0, 0.02, {"streams": 8})
        for i, a in enumerate(hosts) for j, b in enumerate(hosts) if a != b
    )  # fmt: skip


def collectives(hosts: list[str]) -> tuple[Measurement, ...]:
    """Two collectives over sizes, with a floor."""
    return tuple(
        Measurement("collective", tuple(hosts), peak / (1 + 2e6 / size), "GB/s", expected=0.8 * peak / (1 + 2e6 / size),
                    conditions={"collective": name, "size_bytes": size})
        for name, peak in (("all_reduce", 230.0), ("all_gather", 200.0), ("broadcast", 180.0))
        for size in (1 << power for power in range(10, 32, 2))
    )  # fmt: skip


def node() -> NodeTopology:
    """Four GPUs and two NICs on two NUMA nodes."""
    gpus = tuple(NodeGpu(f"GPU{n}", "NVIDIA A100-SXM4-80GB", str(n // 2), pcie_width=8 if n == 3 else 16,
                         pcie_width_max=16) for n in range(4))  # fmt: skip
    nics = tuple(NodeNic(f"NIC{n}", f"mlx5_{n}{HOSTILE if n else ''}", str(n), rate_gbit_s=200.0) for n in range(2))
    links = {
        f"GPU{a}": {**{f"GPU{b}": "NV12" for b in range(4) if a != b}, f"NIC{a // 2}": "PXB", f"NIC{1 - a // 2}": "SYS"}
        for a in range(4)
    }
    devices = {nic.name: nic.device for nic in nics}
    uses = {f"GPU{n}": GpuNic(nic := f"NIC{n // 2}", devices[nic], "PXB", "the nearest") for n in range(4)}
    return NodeTopology(gpus, nics, links, uses)


def fabric(hosts: list[str]) -> Fabric:
    """Two leaves below two spines."""
    half = len(hosts) // 2
    leaves = tuple(SwitchLoad(f"leaf{n}", 1, half, half, 4) for n in (1, 2))
    spines = tuple(SwitchLoad(f"spine{n}", 2, 0, 0, 4) for n in (1, 2))
    return Fabric("LLDP", (*leaves, *spines), 3, ("leaf1", "spine1", "leaf2"), tuple(hosts))


def verdicts() -> tuple[Verdict, ...]:
    """One of each outcome, at some sizes."""
    outcomes = (Outcome.BETTER, Outcome.NOISE, Outcome.WORSE)
    known = [
        Verdict("big-buffers", "base", "flows", f"mean of {HOSTILE if n == 1 else 'all'}", 1 << (10 + 2 * n), "Gbit/s",
                outcomes[n % 3], (4.0, 0.2, -6.0)[n % 3], 0.9, ((2.0, 6.1), (-0.9, 1.2), (-9.0, -3.0))[n % 3], 12)
        for n in range(7)
    ]  # fmt: skip
    return (*known, Verdict("big-buffers", "base", "flows", "lost", None, "Gbit/s", Outcome.UNKNOWN, reason=HOSTILE))


def jobs(hosts: list[str]) -> tuple[dict[str, object], ...]:
    """One that went well, one that failed at its second attempt, and one of which nothing makes sense."""
    cause = {"host": hosts[0], "rank": 3, "kind": "exception", "message": HOSTILE, "class": "out_of_memory",
             "evidence": [HOSTILE], "remedy": "a smaller batch", "traceback": f"Traceback\n  {HOSTILE}"}  # fmt: skip
    past = [{"number": 1, "hosts": hosts, "started_at": NOW, "ended_at": NOW + 300, "cause": cause}]
    return (
        {"id": "job-1", "state": "finished", "hosts": hosts, "script": "train.py", "operator": "ada",
         "started_at": NOW - 4000, "ended_at": NOW - 500, "first_failure": None},
        {"id": "job-2", "state": "failed", "hosts": hosts, "script": HOSTILE, "operator": "ada", "started_at": NOW,
         "ended_at": NOW + 700, "first_failure": cause, "consequences": [cause], "past_attempts": past},
        {"id": None, "state": HOSTILE, "hosts": "none", "started_at": "yesterday", "first_failure": 7},
    )  # fmt: skip


def content(count: int) -> Content:
    """All kinds of results of so many hosts."""
    hosts = names(count)
    some = hosts[: min(count, 16)]
    # pairs make a matrix from three hosts on
    guilty = [] if count < 3 else [Finding(some[2], "flows", Status.FAILED, actual="slow to all others", kind="host")]
    measured = () if count < 3 else pairs(some)
    return Content(
        title=f"Fleet report: {count} hosts",
        made="2026-11-23 22:00:00 +0000",
        nodectl="0.9",
        kind_of=kind_of,
        acceptances=(acceptance(hosts),),
        found=(Found(findings(hosts), RECORDED),),
        wired=(Wired({host: node() for host in hosts}, fabric(hosts) if count > 1 else None, RECORDED),),
        measured=(Measured((*measured, *collectives(some)), tuple(guilty), Origin(Nature.LAB)),),
        tuned=(Tuned("big-buffers against base", "base", verdicts(), Origin(Nature.UNTOLD, "saved in trial.json")),),
        launched=(Launched(jobs(some), Origin(Nature.LAB)),),
    )
