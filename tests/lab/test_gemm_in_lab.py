"""The compute probes on live hosts: what has no GPU is skipped, a bit that one host computes wrongly is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nodectl.common.node_paths import LAB_SHARE
from tests.conftest import Cli, LabUnderTest
from tests.torch_venv import torch_venv

pytestmark = pytest.mark.lab

# a host's own Python environment: the shared one, in which one bit of a product is wrong
_HURT = """
set -e
mkdir -p /opt/hurt/bin /opt/hurt/site
ln -sfn {venv}/lib /opt/hurt/lib
cat > /opt/hurt/bin/python <<'P'
#!/bin/sh
PYTHONPATH=/opt/hurt/site exec {venv}/bin/python "$@"
P
chmod 755 /opt/hurt/bin/python
cat > /opt/hurt/site/sitecustomize.py <<'P'
import torch
right = torch.matmul
def matmul(a, b, *, out):
    right(a, b, out=out)
    out.view(torch.int32)[3, 5] ^= 1 << 14
    return out
torch.matmul = matmul
P
"""


def probe(nodectl: Cli, inventory: str, *args: str, limit: str = "all") -> tuple[dict[str, Any], int]:
    done = nodectl("-i", inventory, "-l", limit, "--output", "json", "probe", *args, check=False, timeout=280)
    return json.loads(done.stdout), done.returncode


def test_copies_on_gpus_are_skipped_where_there_is_certainly_none(nodectl: Cli, lab4: LabUnderTest) -> None:
    found, status = probe(nodectl, lab4.inventory, "hbm,p2p,h2d", limit=",".join(lab4.hosts[:2]))
    told = {(each["host"], each["check"], each["status"], each["actual"]) for each in found["findings"]}
    none = "no NVIDIA GPU here"
    assert told == {(host, name, "skipped", none) for host in lab4.hosts[:2] for name in ("hbm", "p2p", "h2d")}
    assert status == 0 and found["measurements"] == []


@pytest.mark.slow
def test_the_host_that_computes_wrongly_is_named(nodectl: Cli, lab4: LabUnderTest, tmp_path: Path) -> None:
    venv = f"{LAB_SHARE}/venv"
    if not torch_venv().endswith("lab-share/venv"):
        pytest.skip("the lab's share has no torch: `make test` puts it there")
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(Path(lab4.inventory).read_text())
    (tmp_path / "host_vars").mkdir()
    for host in lab4.hosts:
        own = "/opt/hurt" if host == lab4.hosts[2] else venv
        (tmp_path / "host_vars" / f"{host}.yml").write_text(f"pytorch_venv: {own}\n")
    nodectl("-i", lab4.inventory, "-l", lab4.hosts[2], "exec", "--", "sh", "-c", _HURT.format(venv=venv))
    try:
        quick = ("--mode", "bits", "--repetitions", "1", "--duration", "0.05")
        found, status = probe(nodectl, str(inventory), "gemm", *quick)
        assert [(each["host"], each["status"], each["kind"]) for each in found["findings"]] == [
            (lab4.hosts[2], "failed", "host")
        ]
        assert found["findings"][0]["actual"] == "other bits than 3 of 4 devices of its kind"
        assert status == 1 and [each["value"] for each in found["measurements"]] == [0.0] * 4
        pair, _ = probe(nodectl, str(inventory), "gemm", *quick, limit=f"{lab4.hosts[0]},{lab4.hosts[2]}")
    finally:
        nodectl("-i", lab4.inventory, "-l", lab4.hosts[2], "exec", "--", "rm", "-rf", "/opt/hurt")
    (doubt,) = pair["findings"]
    assert doubt["hosts"] == [lab4.hosts[0], lab4.hosts[2]] and "cannot be told which" in doubt["actual"]
