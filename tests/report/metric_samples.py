"""A small fleet of which every metric has something to say."""

from nodectl.model.acceptance import Acceptance, HostAcceptance, NodeVerdict, Seen, Step, StepState, Taken
from nodectl.model.finding import Finding
from nodectl.model.job import Failure, Job, JobPart, JobState
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.registry import kind_of
from nodectl.report.metrics import acceptance_metrics, jobs_metrics, probe_metrics, prometheus

NOW = 1_790_000_000.0
ODD = 'a "quoted" \\ name\nand a line'
FINDINGS = (
    Finding("gpu01", "disk", Status.OK, "/", actual="9000 MiB"),
    Finding("gpu02", "mtu", Status.WARNING, ODD, actual="1500"),
)
ALL_REDUCE = {"collective": "all_reduce", "backend": "nccl", "ranks": 16}
GEMM = {"precision": "bf16", "device": "NVIDIA L40S"}
MEASURED = (
    Measurement("gemm", ("gpu01",), 260.0, "TFLOPS", "gpu01 GPU 0", 269.0, conditions={**GEMM, "gpu": 0}),
    Measurement("gemm", ("gpu01",), 240.0, "TFLOPS", "gpu01 GPU 1", 269.0, conditions={**GEMM, "gpu": 1}),
    Measurement("gemm", ("gpu01",), 1.0, "TFLOPS", "gpu01 GPU 1", 269.0, conditions={**GEMM, "gpu": 1, "again": 1}),
    Measurement("tcp", ("gpu01", "gpu02"), 80.0, "Gbit/s", "gpu01 -> gpu02", conditions={"streams": 1}),
    Measurement("tcp", ("gpu02", "gpu01"), 40.0, "Gbit/s", "gpu02 -> gpu01", conditions={"streams": 1}),
    Measurement("latency", ("gpu01", "gpu02"), 25.0, "us", "gpu01 -> gpu02", 20.0),
    Measurement("latency", ("gpu02", "gpu01"), 10.0, "us", "gpu02 -> gpu01", 20.0),
    Measurement("nccl", ("gpu01", "gpu02"), 40.0, "GB/s", "", None, conditions={**ALL_REDUCE, "size_bytes": 1 << 30}),
    Measurement("preprocess", ("gpu01",), 5000.0, "files/s"),
    Measurement("gemm", ("gpu02",), 3.0, "wrong results", conditions={"gpu": 0}),
    Measurement("training", ("gpu02",), 0.25, "J/token"),
    Measurement("ours", ("gpu02",), 7.0, "furlongs"),
)
PROBE_FINDINGS = (Finding("gpu01", "gemm", Status.FAILED, "GPU 1", kind="host", hosts=("gpu01",)),)
ACCEPTANCE = Acceptance(
    "20260601T000000Z-aaaa", "standard", "ours", NOW - 900, NOW - 60, "measured", "1.0",
    (Step("gemm", "each GPU", "node", ("gpu01", "gpu02"), 10, 12.3456, StepState.DONE), Step("nccl", "all", "fleet")),
    (
        HostAcceptance("gpu01", NodeVerdict.REJECTED, {"reach": Status.OK, "gemm": Status.FAILED}, "gemm"),
        HostAcceptance("gpu02", NodeVerdict.REMARKS, {"reach": Status.OK, "gemm": Status.WARNING}),
    ),
    (Seen("gemm", PROBE_FINDINGS[0]),),
    tuple(Taken("gemm", measurement) for measurement in MEASURED[:2]),
)  # fmt: skip
CAUSE = Failure("gpu02", 5, "exception", "CUDA out of memory", 1, category="gpu_memory")


def job(name: str, state: JobState, began_s: float, ended_s: float | None, cause: Failure | None = None) -> Job:
    parts = (JobPart("gpu01", 0, state.value), JobPart("gpu02", 1, "unreachable"))
    return Job(
        name, state, ("gpu01", "gpu02"), "train.py", (), 8, parts, None, cause, (), began_s, ended_s, "ann", attempt=4
    )


JOBS = (
    job("old", JobState.FINISHED, NOW - 200_000, NOW - 100_000),
    job("failed", JobState.FAILED, NOW - 5000, NOW - 1000, CAUSE),
    job("running", JobState.RUNNING, NOW - 600, None),
)


def all_texts() -> dict[str, str]:
    """What each command writes, by its name."""
    profiles = {host: {"hardware": "l40s-8", "stack": "cu128", "tuning": "stock"} for host in ("gpu01", "gpu02")}
    return {
        "health": prometheus(FINDINGS, profiles, time_s=NOW, recorded={"gpu02": "dgx-a100"}),
        "probe": probe_metrics(MEASURED, PROBE_FINDINGS, kind_of, time_s=NOW),
        "accept": acceptance_metrics(ACCEPTANCE, kind_of),
        "jobs": jobs_metrics(JOBS, time_s=NOW),
    }


# names of dcgm-exporter's default-counters.csv; the values are made up, and the second GPU has fallen off the bus
DCGM = {
    "DCGM_FI_DEV_GPU_TEMP": ("gauge", 41, 44),
    "DCGM_FI_DEV_POWER_USAGE": ("gauge", 118.247, 112.9),
    "DCGM_FI_DEV_GPU_UTIL": ("gauge", 97, 0),
    "DCGM_FI_DEV_XID_ERRORS": ("gauge", 0, 79),
    "DCGM_FI_DEV_FB_FREE": ("gauge", 19762, 80994),
    "DCGM_FI_DEV_FB_USED": ("gauge", 61018, 0),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("gauge", 0, 0),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("counter", 1234567890, 987654321),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("counter", 0, 0),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("counter", 0, 0),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": ("counter", 0, 0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("gauge", 0.412, 0.0),
}


def dcgm_text(host: str, label: str) -> str:
    """What a dcgm-exporter tells of two GPUs, by its template (render_metrics.go) with this label of the host."""
    lines = []
    for name, (kind, *values) in DCGM.items():
        lines += [f"# HELP {name} Of DCGM.", f"# TYPE {name} {kind}"]
        for gpu, value in enumerate(values):
            more = f',err_code="{value}",err_msg="-"' if name == "DCGM_FI_DEV_XID_ERRORS" else ""
            identity = f'gpu="{gpu}",UUID="GPU-{host}-{gpu}",pci_bus_id="00000000:0{gpu + 1}:00.0",device="nvidia{gpu}"'
            host_labels = f'modelName="NVIDIA H100 80GB HBM3",{label}="{host}",DCGM_FI_DRIVER_VERSION="580.95.05"'
            lines.append(f"{name}{{{identity},{host_labels}{more}}} {value}")
    return "\n".join([*lines, ""])
