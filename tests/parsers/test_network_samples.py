"""Outputs of real machines, where they lie beside this checkout: each is read, or refused for the right reason."""

import json
from pathlib import Path

import pytest

from nodectl.errors import ParseError
from nodectl.parsers.catalogue import as_document, parser_of

SAMPLES = Path(__file__).parents[3] / "shared" / "samples"
TOOLS = {
    "fio-": "fio",
    "ib_": "perftest",
    "ibnetdiscover-": "ibnetdiscover",
    "ibstat-": "ibstat",
    "ibstatus-": "ibstatus",
    "ibv_devinfo": "ibv-devinfo",
    "iperf3-": "iperf3",
    "perfquery-": "perfquery",
    "perftest-": "perftest",
    "rdma-link": "rdma-link",
    "show_gids": "show-gids",
    "err.": "perftest",
    "ctl.": "perftest",
}
# what of each sample can be counted by eye
COUNTS = {
    "fio-json-nvme.txt": {"jobs": 1},
    "ib_write_bw-a-hdr-gbps.txt": {"rows": 23},
    "ib_write_bw-loopback-allsizes-MBsec.txt": {"rows": 23},
    "ib_write_bw-loopback-8M-hdr-MBsec.txt": {"rows": 1},
    "ibnetdiscover-azure-topoaware.txt": {"switches": 8, "hosts": 11, "links": 18},
    "ibnetdiscover-test2.txt": {"switches": 5, "hosts": 2, "links": 3},
    "ibnetdiscover-topograph-example-bad.txt": {"switches": 0, "hosts": 1, "links": 0},
    "ibstat-a100-mad-failed-ibpanic-exit255.txt": {"adapters": 8},
    "ibstat-h100-some-down-0.txt": {"adapters": 12},
    "ibstatus-h20-mixed-ib-2xNDR-and-roce.txt": {"ports": 3},
    "show_gids-multi.txt": {"gids": 8},
    "perfquery-0x506b4b03005c2740.txt": {"ports": 1},
}
_HELP, _NO_RUN, _NO_TABLE = "the program's help", "no run of perftest", "without --output"
REFUSED = {
    **dict.fromkeys(("ib_write_bw.help.txt", "ib_write_lat.help.txt"), _HELP),
    **dict.fromkeys(("ib_write_bw.output.client.txt", "ib_write_bw.output.server.txt"), _NO_TABLE),
    **{f"err.{name}.server.txt": _NO_RUN for name in ("bad-hostname", "bad-option", "no-host", "no-server")},
    **{f"err.{name}.server.txt": _NO_RUN for name in ("wrong-device", "server-killed-midrun")},
}
FILES = sorted(
    (path, tool)
    for folder in (SAMPLES, SAMPLES / "rxe")
    if folder.is_dir()
    for path in folder.iterdir()
    for start, tool in TOOLS.items()
    if path.is_file() and path.name.startswith(start)
)


@pytest.mark.skipif(not FILES, reason="the samples of real machines are not beside this checkout")
def test_every_sample_is_read_or_refused_for_the_right_reason() -> None:
    wrong = {}
    for path, tool in FILES:
        try:
            document = as_document(parser_of(tool)(path.read_text()))
        except ParseError as error:
            if REFUSED.get(path.name, "-") not in str(error):
                wrong[path.name] = str(error)
        else:
            json.dumps(document, allow_nan=False)
            counts = {key: len(document[key]) for key in COUNTS.get(path.name, {})}
            if path.name in REFUSED or counts != COUNTS.get(path.name, {}):
                wrong[path.name] = f"{counts} in {str(document)[:200]}"
    assert wrong == {}
