"""Acceptances for tests of the ledger."""

from collections.abc import Mapping

from nodectl.model.acceptance import Acceptance, GpuIdentity, HostAcceptance, Seen, node_verdict
from nodectl.model.finding import Finding
from nodectl.model.status import Status

GPU = GpuIdentity("GPU 1 at 0000:0f:00.0", "GPU-d73ea14f", "NVIDIA A100-SXM4-80GB", "1565020014911")
WRONG = Seen("gemm", Finding("node02", "gemm", Status.FAILED, "GPU 1, bf16", actual="amiss"))


def accepted(
    steps: Mapping[str, Mapping[str, Status]], *, number: str = "a1", began: float = 1000.0, gpu: GpuIdentity = GPU
) -> Acceptance:
    """An acceptance with these hosts and their steps' statuses; what fails gemm has wrong results."""
    rows = [
        HostAcceptance(
            *(host, node_verdict(own.values()), own, ""),
            (WRONG,) if own.get("gemm") is Status.FAILED else (),
            "1570920000417",
            (gpu,),
        )
        for host, own in steps.items()
    ]
    return Acceptance(number, "quick", "fleet", began, began + 60, "recorded", "0.1", hosts=tuple(rows))
