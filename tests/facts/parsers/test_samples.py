"""Outputs of real machines, where they lie beside this checkout: each is read, or refused for the right reason."""

import json

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.catalogue import as_document, parser_of
from tests.facts.parsers.tool_outputs import SAMPLES

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
    **dict.fromkeys(("dmesg-", "journalctl-", "pstore-dmesg-", "syslog-", "ufm-event-log-"), "dmesg"),
    "lspci-": "lspci-acs",
    **dict.fromkeys(("nccl-info-gdr", "nccl-info-net", "nccl-log-"), "nccl-log"),
    "nccl-tests-": "nccl-tests",
    **dict.fromkeys(("ncclras-text-", "ncclras-healthy-"), "ncclras"),
    **dict.fromkeys(("torch-nccl-watchdog-", "torchrun-", "torchdist-"), "torchrun-log"),
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
    "dmesg-peermem-errors.txt": {"events": 7},
    "dmesg-time-iso.txt": {"events": 41},
    "dmesg-time-short-iso.txt": {"events": 0},
    "dmesg-xid-119-gsp-timeout.txt": {"events": 5},
    "dmesg-xid-variants.txt": {"events": 10},
    "syslog-ib-link-flap-6.txt": {"events": 0},  # a program says so, and no kernel
    "lspci-vvv-acs-h100-pex890xx-cx7.txt": {"bridges": 8, "links": 17},
    "nccl-tests-allgather-old.txt": {"ranks": 8, "rows": 34},
    "nccl-tests-allreduce-72xgb200-coreweave.txt": {"ranks": 1, "rows": 5},
    "nccl-tests-allreduce-8x5090-2.18.2-truncated-no-summary.txt": {"ranks": 8, "rows": 9},
    "nccl-tests-mpirun-tag-output-awsbatch-full.txt": {"ranks": 0, "rows": 32},
    "nccl-info-net-using-lines.txt": {"nets": 1, "transports": 1},
    "nccl-log-vendor-err-249-and-81.txt": {"warnings": 2},
    "ncclras-text-healthy.txt": {"communicators": 8},
    "torch-nccl-watchdog-timeout.txt": {"others": 0, "watchdog": 2},
    "torchrun-childfailed-with-other-failures.txt": {"others": 1},
}
_HELP, _NO_RUN, _NO_TABLE = "the program's help", "no run of perftest", "without --output"
REFUSED = {
    **dict.fromkeys(("ib_write_bw.help.txt", "ib_write_lat.help.txt"), _HELP),
    **dict.fromkeys(("ib_write_bw.output.client.txt", "ib_write_bw.output.server.txt"), _NO_TABLE),
    **{f"err.{name}.server.txt": _NO_RUN for name in ("bad-hostname", "bad-option", "no-host", "no-server")},
    **{f"err.{name}.server.txt": _NO_RUN for name in ("wrong-device", "server-killed-midrun")},
    "nvidia-smi-nvlink-status-a10.txt": "empty",
    **dict.fromkeys(("lspci-gb200.txt", "lspci-nn-a10.txt"), "lspci -vvv"),
    "nccl-tests-json-fork-2025-pr318.txt": "no output of an nccl-tests program",
    "torchdist-bench-all_reduce_bench-table-8xh200.txt": "no line of torch.distributed",
    "ufm-event-log-lines.txt": "no line of a kernel log",
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
