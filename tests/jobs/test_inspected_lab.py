"""`launch --inspect` over torchrun and gloo: a file stands for the plug-in, and the ranks write composed lines of it.

No NCCL runs here: that the plug-in writes such lines is read in its source, not measured.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.jobs import inspected
from tests.jobs.deaths import Case, Lab

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PLUGIN = "/usr/local/lib/libnccl-profiler-inspector.so"
# as the plug-in's thread, which dumps every second; rank 2 comes late to each collective
_WRITES = f"""
exec({Path(inspected.__file__).read_text()!r})
name, wanted = os.environ["NCCL_INSPECTOR_DUMP_DIR"], ("NCCL_PROFILER_PLUGIN", "NCCL_INSPECTOR_ENABLE")
print({{key: os.environ[key] for key in wanted}}, name, flush=True)
with open(f"{{name}}/{{os.uname().nodename}}-pid{{os.getpid()}}.log", "w") as file:
    for step in range(1, 1000):
        dist.all_reduce(one)
        busbw = 150.0 if rank == 2 else 40.0
        for number in range(4):
            file.write(line(rank=rank, ranks=3, nodes=3, number=4 * step + number, busbw=busbw))
        file.flush()
        print(f"step {{step}}/1000 loss 0.5", flush=True)
        time.sleep(0.3)
        enough = torch.tensor(float(os.path.exists(os.path.join(os.environ["NODECTL_JOB_DIR"], "enough"))))
        dist.all_reduce(enough)
        if enough:
            break
"""


def document(lab: Lab, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.run("--output", "json", *words).stdout)
    return found


def groups(found: dict[str, Any]) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = found["jobs"][0]["collectives"]
    return told


def test_a_job_s_collectives_are_told_while_it_runs_and_after_it(lab: Lab) -> None:
    case = Case("inspected", "", after=_WRITES, options=("--inspect",))
    script = lab.folder / "train.py"
    script.write_text(case.text())
    refused = lab.run(
        "launch", "--inspect", "--launcher", "/bin/true", "--venv", "/opt/nodectl-deaths/venv", str(script)
    )
    assert refused.returncode == 1 and "launch_inspector" in refused.stderr
    assert "plugins/profiler/inspector" in refused.stderr
    for host in lab.hosts:
        lab.lab.ssh(host, f"touch {PLUGIN}")
    sizes = ("--collectives", "all_reduce", "--sizes", "64MiB", "--scope", "all")
    measured = lab.run("-e", "pytorch_venv=/opt/nodectl-deaths/venv", "probe", "nccl", *sizes)
    assert measured.returncode in (0, 1), measured.stdout + measured.stderr
    try:
        job_id = lab.begin(case)
        lab.wait(lambda: bool(document(lab, "jobs", "list")["jobs"][-1]["collectives"]), "nothing was told", 90)
        text = lab.run("jobs", "watch", "--once", "--interval", "6", job_id).stdout
        assert "from NCCL Inspector" in text, text
        assert groups(document(lab, "jobs", "show", job_id))[0]["measured_gbs"] > 0, text
        assert f"AllReduce of 64 MiB: rank 2 on {lab.hosts[2]}: last to come" in text, text
        assert 'rank="2"' in lab.run("jobs", "list", "--output", "prometheus").stdout
        said = lab.run("jobs", "logs", job_id).stdout
        assert PLUGIN in said and all(f"/jobs/{job_id}/inspect/{rank}" in said for rank in range(3)), said
        page = lab.folder / "report.html"
        lab.run("report", "--out", str(page))
        assert "from NCCL Inspector" in page.read_text()
        for host in lab.hosts:
            lab.lab.ssh(host, f"touch .local/state/nodectl/jobs/{job_id}/enough")
        job = lab.wait_ended(job_id)
    finally:
        for host in lab.hosts:
            lab.lab.ssh(host, f"rm -f {PLUGIN}")
    (group,) = groups({"jobs": [job]})
    assert (job["state"], group["ranks"], group["busbw_gbs"], group["least_gbs"]) == ("finished", 3, 150.0, 40.0), job
