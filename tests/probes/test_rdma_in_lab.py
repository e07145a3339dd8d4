"""`nodectl probe rdma` on a lab: hosts without RDMA, which is no fault, and a device that is named and is not there."""

from __future__ import annotations

import json

import pytest

from nodectl.payload.probes.rdma import ports
from tests.conftest import Cli, LabUnderTest

HAS_RDMA = ports.INFINIBAND.is_dir() or bool(ports.adapters_on_bus())


@pytest.mark.skipif(HAS_RDMA, reason="this machine has RDMA, and its lab's hosts see it")
@pytest.mark.parametrize(("options", "status", "found"), [((), 0, "skipped"), (("--device", "mlx5_0"), 1, "failed")])
def test_hosts_without_rdma(
    nodectl: Cli, lab4: LabUnderTest, options: tuple[str, ...], status: int, found: str
) -> None:
    pair = ",".join(lab4.hosts[:2])
    argv = ("-i", lab4.inventory, "-l", pair, "--output", "json", "probe", "rdma", *options)
    done = nodectl(*argv, check=False)
    document = json.loads(done.stdout)
    assert (done.returncode, document["measurements"]) == (status, []), done.stderr
    assert [(each["subject"], each["status"], each["hosts"]) for each in document["findings"]] == [
        ("no_device", found, [name]) for name in lab4.hosts[:2]
    ]
