"""Outputs of real machines, where they lie beside this checkout: each is read, or refused for the right reason."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.catalogue import as_document, parser_of
from nodectl.facts.parsers.nccl.nccl_log import NcclNet
from tests.facts.parsers.tool_outputs import PARSERS, SAMPLES

TOOLS = {
    "ib_": "perftest",
    "ibdev2netdev-": "ibdev2netdev",
    "ibnetdiscover-": "ibnetdiscover",
    "ibstat-": "ibstat",
    "ibv_devinfo": "ibv-devinfo",
    "iperf3-": "iperf3",
    "perftest-": "perftest",
    "rdma-link": "rdma-link",
    "err.": "perftest",
    "ctl.": "perftest",
    "nvidia-smi-q-": "nvidia-smi-q",
    "nvidia-smi-topo-m-": "nvidia-smi-topo",
    "nvidia-smi-topo-p2p-": "nvidia-smi-p2p",
    "nvidia-smi-nvlink-": "nvidia-smi-nvlink",
    "nvidia-smi-query-gpu-": "nvidia-smi-query",
    "nvidia-smi-query-retired-": "nvidia-smi-query",
    "nvidia-smi-error-": "nvidia-smi-query",
    "nvidia-smi-table-": "nvidia-smi-q",
    "dcgmi-diag-": "dcgmi-diag",
    "nvbandwidth-": "nvbandwidth",
}
# what of each sample can be counted by eye
COUNTS = {
    "ib_write_bw-a-hdr-gbps.txt": {"rows": 23},
    "ib_write_bw-loopback-allsizes-MBsec.txt": {"rows": 23},
    "ib_write_bw-loopback-8M-hdr-MBsec.txt": {"rows": 1},
    "ibnetdiscover-azure-topoaware.txt": {"switches": 8, "hosts": 11, "links": 18},
    "ibnetdiscover-test2.txt": {"switches": 5, "hosts": 2, "links": 3},
    "ibnetdiscover-topograph-example-bad.txt": {"switches": 0, "hosts": 1, "links": 0},
    "ibstat-a100-mad-failed-ibpanic-exit255.txt": {"adapters": 8},
    "ibstat-h100-some-down-0.txt": {"adapters": 12},
}
_HELP, _NO_RUN, _NO_TABLE = "the program's help", "no run of perftest", "without --output"
REFUSED = {
    **dict.fromkeys(("ib_write_bw.help.txt", "ib_write_lat.help.txt"), _HELP),
    **dict.fromkeys(("ib_write_bw.output.client.txt", "ib_write_bw.output.server.txt"), _NO_TABLE),
    **{f"err.{name}.server.txt": _NO_RUN for name in ("bad-hostname", "bad-option", "no-host", "no-server")},
    **{f"err.{name}.server.txt": _NO_RUN for name in ("wrong-device", "server-killed-midrun")},
    "nvidia-smi-nvlink-status-a10.txt": "empty",
    "nvidia-smi-error-invalid-field.txt": "not a valid field",
    "nvidia-smi-error-messages.txt": "Unable to determine the device handle",
}
# telegraf's sample of four GPUs shows the first alone
ONE_OF_FOUR = "nvidia-smi-q-x-a100-sxm4-v12.txt"
FILES = sorted(
    (path, tool)
    for folder in (SAMPLES, SAMPLES / "rxe")
    if folder.is_dir()
    for path in folder.iterdir()
    for start, tool in TOOLS.items()
    if path.is_file() and path.name.startswith(start)
)


def _refusal(name: str) -> str:
    # a table of nvidia-smi without options is no report
    return "GPU <bus id>" if name.startswith("nvidia-smi-table-") else REFUSED.get(name, "-")


@pytest.mark.skipif(not FILES, reason="the samples of real machines are not beside this checkout")
def test_every_sample_is_read_or_refused_for_the_right_reason() -> None:
    wrong = {}
    for path, tool in FILES:
        try:
            document = as_document(parser_of(tool)(path.read_text(errors="replace")))
        except ParseError as error:
            if _refusal(path.name) not in str(error):
                wrong[path.name] = str(error)
        else:
            json.dumps(document, allow_nan=False)
            counts = {key: len(document[key]) for key in COUNTS.get(path.name, {})}
            attached = document.get("attached_gpus")
            lacks = attached not in (None, len(document.get("gpus", ()))) and path.name != ONE_OF_FOUR
            if _refusal(path.name) != "-" or lacks or counts != COUNTS.get(path.name, {}):
                wrong[path.name] = f"{counts} in {str(document)[:200]}"
    assert wrong == {}


def kinds(found: Any) -> object:
    return dict(Counter(event.kind for event in found.events))


def xids(found: Any) -> object:
    return [(event.pci, event.code, event.pid, event.severity) for event in found.events]


def devices(found: Any) -> object:
    return len(found.bridges), [bridge.address for bridge in found.bridges if bridge.redirects], len(found.links)


def table(found: Any) -> object:
    return len(found.ranks), len(found.rows), found.out_of_bounds, found.average_busbw_gb_s, found.ok


def network(found: Any) -> object:
    return found.version, [each.host for each in found.warnings]


def job(found: Any) -> object:
    return [(each.id, each.ranks, each.missing, each.status) for each in found.communicators][:1]


def end(found: Any) -> object:
    return (
        found.root_cause and (found.root_cause.rank, found.root_cause.pid),
        [other.rank for other in found.others],
        [(each.rank, each.op, each.last_enqueued, each.last_completed, each.timeout_ms) for each in found.watchdog],
    )


def rate(found: Any) -> object:
    return found.received_gbit_s, found.error


def paths(found: Any) -> object:
    return found.transports, found.nets, found.channels


CASES: list[tuple[str, str, Callable[[Any], object], object]] = [
    ("dmesg", "dmesg-decode-iso-1", kinds, {"nic_link": 5, "mlx5_power": 12}),
    ("dmesg", "dmesg-mlx5-pcie-limited", kinds, {"pcie_limited": 2}),
    ("dmesg", "dmesg-peermem-errors", kinds, {"peermem": 7}),
    ("dmesg", "dmesg-time-iso", kinds, {"peermem": 30, "xid": 11}),
    ("dmesg", "dmesg-xid-119-gsp-timeout", kinds, {"xid": 5, "driver": 1}),
    ("dmesg", "journalctl-short-iso-2", kinds, {"peermem": 14}),
    ("dmesg", "pstore-dmesg-erst-panic", kinds, {"kernel_bug": 2}),
    # what a program says, systemd-networkd here, is no word of the kernel
    ("dmesg", "syslog-ib-link-flap-6", kinds, {}),
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
    ("lspci-acs", "lspci-vvv-acs-h100-pex890xx-cx7", devices, (8, ["0000:00:0c.0", "0000:00:0e.0"], 17)),
    ("nccl-tests", "nccl-tests-allgather-old", table, (8, 34, 0, 58.2651, True)),
    ("nccl-tests", "nccl-tests-allreduce-72xgb200-coreweave", table, (1, 5, 0, 745.53, True)),
    ("nccl-tests", "nccl-tests-allreduce-8x5090-2.18.2-truncated-no-summary", table, (8, 9, None, None, None)),
    ("nccl-tests", "nccl-tests-allreduce-failed-wrong-values-gh200", table, (2, 25, 4, 4.79995, False)),
    ("nccl-tests", "nccl-tests-gke-a3mega-2node", table, (0, 31, 0, 53.8932, True)),
    ("nccl-tests", "nccl-tests-mpirun-tag-output-awsbatch-full", table, (0, 32, 0, 156.742, True)),
    ("nccl-tests", "nccl-tests-reduce-old", table, (8, 34, 0, 65.018, True)),
    ("nccl-log", "nccl-info-gdr-enabled-channel-lines", network, (None, [])),
    ("nccl-log", "nccl-log-2x4090-init", network, ("2.26.5+cuda12.9", [])),
    ("nccl-log", "nccl-log-ib-completion-error12", network, (None, ["mycl-g2"])),
    ("nccl-log", "nccl-log-vendor-err-249-and-81", network, (None, ["gh-3714u15", "H100-2"])),
    ("ncclras", "ncclras-healthy-while-torch-watchdog-times-out", job, [(None, 256, 0, "OK")]),
    ("ncclras", "ncclras-text-healthy", job, [(None, 4, 0, "OK")]),
    ("ncclras", "ncclras-text-mismatch", job, [("27a079b828ff1a75", 32, 0, "MISMATCH")]),
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
    ("iperf3", "iperf3-json-3.6-5s", rate, (0.35029657428915395, None)),
    ("iperf3", "iperf3-json-end-3.16", rate, (94.1, None)),
    ("iperf3", "iperf3-json-error-warning-prefix", rate, (None, "unable to connect to server: Connection refused")),
    (
        "nccl-log",
        "nccl-info-gdr-enabled-channel-lines",
        paths,
        (("NET/IB/1/GDRDMA",), (NcclNet("IB", 1, None, True),), 2),
    ),
    (
        "nccl-log",
        "nccl-info-net-using-lines",
        paths,
        (("NET/IB/0/GDRDMA",), (NcclNet("IB", 0, "mlx5_0", True),), None),
    ),
    ("nccl-log", "nccl-log-2x4090-init", paths, ((), (), None)),
]
OTHERS = [
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
    assert brief(PARSERS[tool](sample(name))) == expected


@pytest.mark.parametrize(("tool", "name", "why"), OTHERS)
def test_a_real_output_of_something_else(tool: str, name: str, why: str) -> None:
    with pytest.raises(ParseError, match=why):
        parser_of(tool)(sample(name))
