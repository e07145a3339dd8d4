"""DeepSpeed's files are ones that DeepSpeed reads, and their batch sizes hold together."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodectl.checks.check import Subject
from nodectl.checks.stack.imports import deepspeed
from nodectl.facts.environment import Imported
from nodectl.jobs.export import render
from nodectl.profiles.resolve import resolve
from tests.playbooks import ansible_playbook
from tests.training_venv import training_venv

CONFIG: dict[str, Any] = {
    "train_batch": 12,
    "micro_batch": 1,
    "accumulation": 4,
    "clip": 1.0,
    "learning_rate": 6e-05,
    "weight_decay": 0.01,
    "precision": "fp16",
    "zero_stage": 3,
    "offload_optimizer": True,
    "offload_parameters": True,
    "checkpoint_activations": True,
    "checkpoints": 0,
    "bucket": 500000000,
}
NODES = [{"address": "10.0.0.1", "slots": 2}, {"address": "gpu02", "slots": 1}]


def config(**changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(render("ds_config.json.j2", **{**CONFIG, **changes}))
    return document


def test_the_articles_settings_come_out_as_json() -> None:
    document = config()
    assert document["fp16"] == {"enabled": True, "initial_scale_power": 16, "loss_scale_window": 1000}
    assert document["optimizer"] == {"type": "AdamW", "params": {"lr": 6e-05, "weight_decay": 0.01}}
    zero = document["zero_optimization"]
    assert (
        zero["stage"] == 3 and zero["reduce_bucket_size"] == 500000000 and zero["offload_param"]["pin_memory"] is True
    )


@pytest.mark.parametrize(("on", "layers"), [(True, 0), (True, 48), (False, 48)])
def test_one_buffer_for_all_activations_comes_with_the_number_of_layers(on: bool, layers: int) -> None:
    found = config(checkpoint_activations=on, checkpoints=layers)["activation_checkpointing"]
    assert found["partition_activations"] is on
    # DeepSpeed: 'Must specify the number of layers with contiguous memory checkpointing'
    assert found["contiguous_memory_optimization"] is (on and layers > 0)
    assert found.get("number_checkpoints") == (layers if on and layers else None)


@pytest.mark.slow
@pytest.mark.parametrize("layers", [0, 2])
def test_deepspeed_takes_it_for_activation_checkpointing(tmp_path: Path, layers: int) -> None:
    file = tmp_path / "ds_config.json"
    file.write_text(render("ds_config.json.j2", **{**CONFIG, "train_batch": 4, "checkpoints": layers}))
    program = (
        "import sys, deepspeed\n"
        "import torch.distributed as dist\n"
        "deepspeed.ops.__compatible_ops__['deepspeed_shm_comm'] = False\n"  # it would compile for a minute
        "dist.init_process_group('gloo', init_method='file://' + sys.argv[1] + '.store', rank=0, world_size=1)\n"
        "deepspeed.init_distributed('gloo')\n"
        "deepspeed.checkpointing.configure(None, deepspeed_config=sys.argv[1])\n"
        "print('CONFIGURED', deepspeed.checkpointing.is_configured(), deepspeed.checkpointing.num_layers)\n"
    )
    argv = [str(training_venv() / "bin/python"), "-c", program, str(file)]
    env = {"PATH": os.environ["PATH"], "GLOO_SOCKET_IFNAME": "lo", "DS_ACCELERATOR": "cpu"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=280, check=False)
    # without the number of layers, and with one buffer, it ends here
    assert f"CONFIGURED True {layers or None}" in done.stdout, done.stdout + done.stderr


def test_the_hostfile_is_one_that_deepspeed_reads() -> None:
    assert render("hostfile.j2", nodes=NODES).splitlines()[1:] == ["10.0.0.1 slots=2", "gpu02 slots=1"]


@pytest.mark.parametrize(
    ("version", "error", "found"),
    [
        ("0.19.8+unknown", "", {"version": ("ok", "0.19.8")}),
        ("0.12.6", "", {"version": ("failed", "0.12.6")}),
        (None, "No module named 'deepspeed'", {"import": ("failed", "No module named 'deepspeed'")}),
    ],
)
def test_an_import_that_fails_or_is_another_version_is_failed(
    version: str | None, error: str, found: dict[str, tuple[str, str]]
) -> None:
    wanted = resolve("unknown", "cpu", "stock", overrides={"stack": {"deepspeed": "0.19.8"}})
    findings = deepspeed(Subject("a", {"deepspeed": Imported(version, error)}, wanted))
    assert {each.subject: (each.status.value, each.actual) for each in findings} == found


def playbook(tmp_path: Path, *arguments: str, roles: Sequence[tuple[str, str]], **variables: Any) -> str:
    """What ansible-playbook says of these roles; the test fails where it ends with an error that is not expected."""
    steps = [{"name": f"nodectl.fleet.{name}", "tasks_from": part} for name, part in roles]
    tasks: list[dict[str, Any]] = [{"ansible.builtin.import_role": step} for step in steps]
    tasks.append({"ansible.builtin.debug": {"msg": "FOUND {{ deepspeed_verified.findings | default([]) | to_json }}"}})
    play = {"hosts": variables.pop("hosts", "all"), "gather_facts": False, "vars": variables, "tasks": tasks}
    path = tmp_path / "play.yml"
    path.write_text(yaml.safe_dump([play]))
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "ANSIBLE_HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    env |= {"ANSIBLE_PIPELINING": "1"}
    done = ansible_playbook(*arguments, str(path), env=env)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"deepspeed_train_batch": 16}, "deepspeed_train_batch 16 is not 1 (deepspeed_micro_batch) x 4"),
        pytest.param(
            {"deepspeed_build": True, "deepspeed_build_packages": ["g++-of-nowhere"]},
            "deepspeed: no repository of this host has g++-of-nowhere: nothing was changed",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_changes(
    tmp_path: Path, variables: dict[str, Any], reason: str
) -> None:
    here = ("-i", "localhost,", "-c", "local")
    fixed = {"deepspeed_version": "0.12.6", "deepspeed_nodes": NODES}
    said = " ".join(playbook(tmp_path, *here, roles=[("deepspeed", "validate")], **fixed, **variables).split())
    assert reason in said and ("set it to 12" in said or "batch" not in reason), said


@pytest.mark.lab
@pytest.mark.slow
def test_deepspeed_is_installed_imported_and_reads_its_configuration_on_a_real_host(lab4: Any, tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    names = ["deepspeed==0.19.8", "einops", "hjson", "msgpack", "ninja", "packaging", "psutil", "py-cpuinfo"]
    names += ["pydantic", "tqdm", "setuptools", "wheel"]
    fetched = subprocess.run(
        [sys.executable, "-m", "pip", "--version"], capture_output=True, check=False
    ).returncode  # a venv made by uv has no pip
    pip = [sys.executable if fetched == 0 else "/usr/bin/python3", "-m", "pip", "download", "-q", "-d", str(wheels)]
    names += ["annotated-types", "typing-inspection"]
    done = subprocess.run([*pip, "--no-deps", *names], capture_output=True, text=True, check=False)
    core = subprocess.run([*pip, "pydantic"], capture_output=True, text=True, check=False)
    if done.returncode or core.returncode:
        pytest.skip(f"pip's own settings give no DeepSpeed here: {(done.stderr + core.stderr).strip()[-200:]}")
    host = lab4.hosts[3]
    lab4.ssh(host, "mkdir -p /root/wheels")
    copy = ["scp", "-q", "-F", lab4.ssh_config, *map(str, wheels.iterdir()), f"{host}:/root/wheels/"]
    subprocess.run(copy, check=True, timeout=120)
    # the lab's own wheels, but for those that came with DeepSpeed
    lab4.ssh(host, "for wheel in /srv/nodectl/provision/wheels/*.whl; do ln -s $wheel /root/wheels/ 2>/dev/null; done")
    said = playbook(
        tmp_path,
        *("-i", lab4.inventory, "-l", host, "-b"),
        roles=[("pytorch", "main"), ("deepspeed", "main"), ("deepspeed", "verify")],
        pytorch_requirements=["torch==2.13.0", "numpy==2.2.6", "deepspeed==0.19.8"],
        pytorch_index="https://example.invalid/simple",
        pytorch_python_min="3.10",
        pytorch_python_max="3.13",
        pytorch_uv="/srv/nodectl/uv",
        pytorch_wheelhouse="/root/wheels",
        deepspeed_version="0.19.8",
        deepspeed_nodes=NODES,
        nodectl_overrides={"stack": {"deepspeed": "0.19.8"}},
    )
    assert "failed=0" in said and said.count('\\"status\\": \\"ok\\"') == 1, said
    # DeepSpeed's own arithmetic for three ranks, without starting them: only who this rank is comes from here
    program = (
        "import deepspeed.runtime.config as own; own.dist.get_rank = lambda *a, **k: 0;"
        "ranks = type('Ranks', (), {'get_data_parallel_world_size': lambda self: 3})();"
        "config = own.DeepSpeedConfig('/opt/nodectl/etc/ds_config.json', mpu=ranks);"
        "print('BATCH', config.train_batch_size, config.zero_config.stage)"
    )
    told = lab4.ssh(host, f'cd /; /opt/nodectl/venv/bin/python -c "{program}" 2>&1 | grep -E "BATCH|Error"')
    assert told.endswith("BATCH 12 3"), told
    lab4.ssh(host, "rm -rf /root/wheels /opt/nodectl/etc")
