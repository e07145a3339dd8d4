"""Real outputs of the kernel, lspci, NCCL and torch, where they are at hand: what each of them must be read as."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from nodectl.errors import ParseError
from nodectl.parsers.catalogue import parser_of
from tests.parsers.tool_outputs import SAMPLES


def kinds(found: Any) -> object:
    return dict(Counter(event.kind for event in found.events))


def xids(found: Any) -> object:
    return [(event.pci, event.code, event.pid, event.severity) for event in found.events]


def devices(found: Any) -> object:
    return len(found.bridges), [bridge.address for bridge in found.bridges if bridge.acs_enabled], len(found.links)


def table(found: Any) -> object:
    return len(found.ranks), len(found.rows), found.out_of_bounds, found.average_busbw_gb_s, found.ok


def network(found: Any) -> object:
    return (
        found.version,
        found.network,
        found.interfaces,
        found.nics,
        [(each.host, each.kind) for each in found.warnings],
    )


def job(found: Any) -> object:
    return found.job.gpus, [(each.id, each.ranks, each.missing, each.status) for each in found.communicators][:1]


def end(found: Any) -> object:
    return (
        found.root_cause and (found.root_cause.rank, found.root_cause.pid),
        [other.rank for other in found.others],
        [(each.rank, each.op, each.last_enqueued, each.last_completed, each.timeout_ms) for each in found.watchdog],
    )


CASES: list[tuple[str, str, Callable[[Any], object], object]] = [
    ("dmesg", "dmesg-decode-iso-1", kinds, {"nic_link": 5, "mlx5_power": 12}),
    ("dmesg", "dmesg-mlx5-events", kinds, {"mlx5_module": 1, "mlx5_power": 1}),
    ("dmesg", "dmesg-mlx5-pcie-limited", kinds, {"pcie_limited": 2}),
    ("dmesg", "dmesg-pcie-limited-by-switch", kinds, {"pcie_limited": 2}),
    ("dmesg", "dmesg-peermem-errors", kinds, {"peermem": 7}),
    ("dmesg", "dmesg-time-iso", kinds, {"peermem": 30, "xid": 11}),
    ("dmesg", "dmesg-time-short-iso", kinds, {}),
    ("dmesg", "dmesg-xid-119-gsp-timeout", kinds, {"xid": 5, "driver": 1}),
    ("dmesg", "journalctl-short-iso-1", kinds, {}),
    ("dmesg", "journalctl-short-iso-2", kinds, {"peermem": 14}),
    ("dmesg", "kmsg-raw-1", kinds, {}),
    ("dmesg", "pstore-dmesg-erst-panic", kinds, {"kernel_bug": 2}),
    # what a program says, systemd-networkd here, is no word of the kernel
    ("dmesg", "syslog-ib-link-flap-6", kinds, {}),
    ("dmesg", "syslog-no-flap", kinds, {}),
    (
        "dmesg",
        "dmesg-xid-variants",
        xids,
        [
            ("0000:0f:00", 94, 2503421, None),
            ("0000:0f:00", 64, None, None),
            ("0002:00:00", 119, 67769, None),
            ("0000:10:1c", 63, 1896, None),
            ("0000:03:00", 14, None, None),
            ("0000:05:00", 79, None, None),
            ("0018:01:00", 145, 876767, "nonfatal"),
            ("0008:01:00", 149, None, "fatal"),
            ("0018:01:00", 149, None, "fatal"),
            ("0000:85:00.0", 12028, None, "nonfatal"),
        ],
    ),
    ("lspci-acs", "lspci-vvv-acs-h100-pex890xx-cx7", devices, (10, ["00:0c.0", "00:0e.0"], 17)),
    ("nccl-tests", "nccl-tests-allgather-old", table, (8, 34, 0, 58.2651, True)),
    ("nccl-tests", "nccl-tests-allreduce-2node-ndv4-a100-aks-ipoib", table, (0, 16, 0, 1.38997, True)),
    ("nccl-tests", "nccl-tests-allreduce-2x8-rtxpro-cx8-roce-2.18.3", table, (16, 10, 0, 21.0721, True)),
    ("nccl-tests", "nccl-tests-allreduce-6x4090-p2p-tinybox", table, (6, 1, 0, 24.5413, True)),
    ("nccl-tests", "nccl-tests-allreduce-72xgb200-coreweave", table, (1, 5, 0, 745.53, True)),
    ("nccl-tests", "nccl-tests-allreduce-8x5090-2.18.2-truncated-no-summary", table, (8, 9, None, None, None)),
    ("nccl-tests", "nccl-tests-allreduce-failed-wrong-values-gh200", table, (2, 25, 4, 4.79995, False)),
    ("nccl-tests", "nccl-tests-alltoall-old", table, (8, 34, 0, 58.6481, True)),
    ("nccl-tests", "nccl-tests-deepops-k8s-roce", table, (0, 29, 0, 7.76739, True)),
    ("nccl-tests", "nccl-tests-dstack-gcp-a3high", table, (0, 11, 0, 40.6043, True)),
    ("nccl-tests", "nccl-tests-dstack-gcp-a3mega", table, (0, 11, 0, 146.948, True)),
    ("nccl-tests", "nccl-tests-dstack-gcp-a4", table, (0, 11, 0, 165.789, True)),
    ("nccl-tests", "nccl-tests-gke-a3high-multinode", table, (0, 10, 0, 30.9622, True)),
    ("nccl-tests", "nccl-tests-gke-a3mega-2node", table, (0, 31, 0, 53.8932, True)),
    ("nccl-tests", "nccl-tests-mpirun-tag-output-awsbatch-full", table, (0, 32, 0, 156.742, True)),
    ("nccl-tests", "nccl-tests-oci-2x8h100", table, (16, 5, 0, 464.075, True)),
    ("nccl-tests", "nccl-tests-reduce-old", table, (8, 34, 0, 65.018, True)),
    ("nccl-tests", "nccl-tests-topo-aware-aws", table, (0, 3, 0, 84.0569, True)),
    ("nccl-log", "nccl-info-gdr-enabled-channel-lines", network, (None, "IB", (), (), [])),
    ("nccl-log", "nccl-log-2x4090-init", network, ("2.26.5+cuda12.9", "IB", ("bond0",), ("mlx5_bond_0",), [])),
    ("nccl-log", "nccl-log-ib-completion-error12", network, (None, None, (), (), [("mycl-g2", "ib_completion")])),
    (
        "nccl-log",
        "nccl-log-vendor-err-249-and-81",
        network,
        (None, None, (), (), [("gh-3714u15", "ib_completion"), ("H100-2", "ib_completion")]),
    ),
    ("ncclras", "ncclras-healthy-while-torch-watchdog-times-out", job, (256, [(None, 256, 0, "OK")])),
    ("ncclras", "ncclras-json-2.29.1", job, (None, [("0xae94423cfbb2ef4a", 2, 1, "INCOMPLETE")])),
    ("ncclras", "ncclras-text-healthy", job, (32, [(None, 4, 0, "OK")])),
    ("ncclras", "ncclras-text-mismatch", job, (32, [("27a079b828ff1a75", 32, 0, "MISMATCH")])),
    (
        "torchrun-log",
        "ncclras-healthy-while-torch-watchdog-times-out",
        end,
        (None, [], [(118, "ALLREDUCE", 2398578, 2398458, 1800000)]),
    ),
    (
        "torchrun-log",
        "torch-nccl-watchdog-timeout",
        end,
        (None, [], [(7, "ALLTOALL", 4489, 4485, 600000), (3, "ALLTOALL", 4489, 4485, 600000)]),
    ),
    ("torchrun-log", "torchrun-childfailed-with-other-failures", end, ((0, 78970), [1], [])),
    ("torchrun-log", "torchrun-ddp-slurm-log-aws", end, (None, [], [])),
]
REFUSED = [
    ("lspci-acs", "lspci-gb200", "lspci -vvv"),
    ("lspci-acs", "lspci-nn-a10", "lspci -vvv"),
    ("nccl-tests", "nccl-tests-json-fork-2025-pr318", "no output of an nccl-tests program"),
    ("torchrun-log", "torchdist-bench-all_reduce_bench-table-8xh200", "no line of torch.distributed"),
    ("dmesg", "ufm-event-log-lines", "no line of a kernel log"),
]


def sample(name: str) -> str:
    path = SAMPLES / f"{name}.txt"
    if not path.is_file():
        pytest.skip(f"the folder of real outputs is not here: {path.name}")
    return path.read_bytes().decode("utf-8", errors="replace")


@pytest.mark.parametrize(
    ("tool", "name", "brief", "expected"), CASES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_real_output(tool: str, name: str, brief: Callable[[Any], object], expected: object) -> None:
    assert brief(parser_of(tool)(sample(name))) == expected


@pytest.mark.parametrize(("tool", "name", "why"), REFUSED)
def test_a_real_output_of_something_else(tool: str, name: str, why: str) -> None:
    with pytest.raises(ParseError, match=why):
        parser_of(tool)(sample(name))
