"""What is handed to Slurm: the batch script, the plan that later shells read, and the code; one archive."""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Mapping

from nodectl.common.process import operator
from nodectl.errors import JobError
from nodectl.jobs.code import Code
from nodectl.jobs.export.sbatch import SbatchJob
from nodectl.jobs.package import add_code, add_file


def plan_document(job: SbatchJob, env_names: tuple[str, ...], code: Code | None) -> dict[str, object]:
    """Return what `jobs` shows of it later, and --dry-run now; no value of a variable."""
    return {
        "id": job.id,
        "via": "slurm",
        "created_at": time.time(),
        "operator": operator(),
        "name": job.name,
        "nodes": job.nodes,
        "hosts": list(job.hosts),
        "nproc_per_node": job.nproc_per_node,
        "script": job.program[0],
        "args": list(job.program[1:]),
        "start": list(job.start),
        "workdir": job.workdir,
        "env_names": list(env_names),
        "launcher": job.launcher,
        "venv": job.venv,
        "sbatch": list(job.asked),
        "checkpoint": job.checkpoint_dir,
        "stayed": [] if code is None else list(code.stayed),
    }


def pack(plan: Mapping[str, object], script: str, code: Code | None) -> bytes:
    """tar.gz with private modes; without code where the nodes have it."""
    buffer = io.BytesIO()
    try:
        with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=3, format=tarfile.PAX_FORMAT) as archive:
            add_file(archive, "plan.json", json.dumps(plan).encode())
            add_file(archive, "job.sh", script.encode(), 0o700)
            if code is not None:
                add_code(archive, code)
    except OSError as error:
        raise JobError(f"the code cannot be read: {error}") from error
    return buffer.getvalue()
