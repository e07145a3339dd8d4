"""Which GPUs a host reports."""

from collections.abc import Sequence

import pytest

from nodectl.common.resources import recordings_dir
from nodectl.ledger.accept import means as module
from nodectl.ledger.accept.means import look
from nodectl.model.host import Host
from nodectl.recordings.folder import read_host
from nodectl.recordings.source import Answer, CommandsOf
from nodectl.transport.router import open_transport


class _Recorded:
    """Answers as a bundled recording does."""

    def __init__(self, hosts: Sequence[Host], *_: object) -> None:
        self.hosts = hosts

    def recordings(self, _: CommandsOf) -> list[tuple[Host, Answer]]:
        folder = recordings_dir() / "dgx-a100" / "node01"
        return [(host, read_host(folder, host.name, "dgx-a100")) for host in self.hosts]


def test_gpus_and_serial_numbers_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LiveSource", _Recorded)
    host = look(open_transport(), [Host("node01", "node01")], 1)["node01"]
    assert (host.serial, len(host.devices)) == ("1570920000417", 8)
    first = host.devices[0]
    assert first.place == "GPU 0 at 0000:07:00.0" and first.model == "NVIDIA A100-SXM4-80GB"
    assert first.uuid.startswith("GPU-") and first.serial.isdigit()
