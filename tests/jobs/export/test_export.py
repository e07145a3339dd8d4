"""Hostfiles and manifests: held against the published schemas, with every word whole."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from nodectl.errors import UsageError
from nodectl.jobs.export.hostfile import Node, hostfile
from nodectl.jobs.export.kubernetes import KINDS, KubernetesJob, job_name, manifest
from tests.conftest import Cli

SCHEMAS = {"jobset": "jobset-v1alpha2", "pytorchjob": "pytorchjob-v1"}
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "kubernetes"
HOSTNAME = "kubernetes.io/hostname"
HOSTILE = ("a b", "$(RANK)", "$$", "it's", "--x", "", "yes", "1e3", "#x: [")


def schema(kind: str) -> Any:
    """The published schema; as Kubernetes in its strict mode, it knows no field that it does not name."""
    return closed(json.loads(gzip.decompress((FIXTURES / f"{SCHEMAS[kind]}.json.gz").read_bytes())))


def closed(node: Any) -> Any:
    if isinstance(node, list):
        return [closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    made = {name: closed(value) for name, value in node.items()}
    is_open = node.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in node
    return made if is_open or not isinstance(node.get("properties"), dict) else {**made, "additionalProperties": False}


def problems(kind: str, document: Any) -> list[str]:
    return [
        f"{list(error.path)}: {error.message}" for error in Draft202012Validator(schema(kind)).iter_errors(document)
    ]


def job(**changes: Any) -> KubernetesJob:
    fields: dict[str, Any] = {
        "name": "train",
        "image": "pytorch:2",
        "nodes": 3,
        "ranks": 8,
        "gpus": 8,
        "script": "/app/train.py",
        "args": HOSTILE,
        "namespace": "ml",
        "rdma": {"rdma/hca_shared_devices_a": 1},
        "shm": "64Gi",
        "env": {"NCCL_ALGO": "$(x) y"},
        "host_network": True,
    }
    return KubernetesJob(**{**fields, **changes})


def pods(document: Any) -> list[Any]:
    if document["kind"] == "JobSet":
        return [each["template"]["spec"]["template"]["spec"] for each in document["spec"]["replicatedJobs"]]
    return [each["template"]["spec"] for each in document["spec"]["pytorchReplicaSpecs"].values()]


def expanded(word: str, env: dict[str, str]) -> str:
    """As Kubernetes does it: $$ is a dollar, $(NAME) a variable's value where there is one."""
    text, at = "", 0
    while at < len(word):
        if word.startswith("$$", at):
            text, at = text + "$", at + 2
        elif word.startswith("$(", at) and word[at + 2 :].partition(")")[0] in env:
            name = word[at + 2 :].partition(")")[0]
            text, at = text + env[name], at + len(name) + 3
        else:
            text, at = text + word[at], at + 1
    return text


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize(
    "changes", [{}, {"nodes": 1, "gpus": 0, "rdma": {}, "shm": "", "host_network": False, "namespace": "", "env": {}}]
)
def test_a_manifest_is_what_the_published_schema_takes(kind: str, changes: dict[str, Any]) -> None:
    text = manifest(job(**changes), kind)
    assert problems(kind, yaml.safe_load(text)) == [] and "&id" not in text


@pytest.mark.parametrize(("kind", "rank"), [("jobset", "NODE_RANK"), ("pytorchjob", "RANK")])
def test_a_pod_runs_torchrun_with_every_word_whole(kind: str, rank: str) -> None:
    document = yaml.safe_load(manifest(job(), kind))
    for pod in pods(document):
        container = pod["containers"][0]
        env = {entry["name"]: entry.get("value", "") for entry in container["env"]}
        known = {**env, rank: "2", "MASTER_ADDR": "train-nodes-0-0.train", "MASTER_PORT": "29500"}
        words = [expanded(word, known) for word in container["args"]]
        assert words == [
            *("--nnodes", "3", "--node-rank", "2", "--nproc-per-node", "8", "--max-restarts", "0"),
            *("--master-addr", "train-nodes-0-0.train", "--master-port", "29500", "/app/train.py", *HOSTILE),
        ]
        assert expanded(env["NCCL_ALGO"], known) == "$(x) y"
        assert container["resources"]["limits"] == {"nvidia.com/gpu": 8, "rdma/hca_shared_devices_a": 1}
        assert container["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
        assert pod["volumes"] == [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}]
        assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")


def test_the_pods_are_the_nodes() -> None:
    jobset = yaml.safe_load(manifest(job(), "jobset"))["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (jobset["parallelism"], jobset["completions"], jobset["completionMode"]) == (3, 3, "Indexed")
    replicas = yaml.safe_load(manifest(job(), "pytorchjob"))["spec"]["pytorchReplicaSpecs"]
    assert {name: part["replicas"] for name, part in replicas.items()} == {"Master": 1, "Worker": 2}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"image": "a b"}, "--image"),
        ({"image": "Pytorch:2"}, "--image"),
        ({"image": "a/" * 128 + "a"}, "--image"),
        ({"namespace": "a_b"}, "--namespace"),
        ({"rdma": {"rdma/-x": 1}}, "--rdma-resource"),
        ({"rdma": {"nvidia.com/gpu": 1}}, "--rdma-resource"),
        ({"args": ["\udcff"]}, "UTF-8"),
    ],
)
def test_a_value_that_kubernetes_refuses_is_refused_here(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        job(**changes)


def test_a_name_is_made_of_a_script_that_begins_with_a_digit_or_a_dash() -> None:
    assert [job_name(script) for script in ("/a/7b.py", "-Dash.py", "__.py", f"{'7' * 50}.py", f"{'a' * 39}-b.py")] == [
        *("job-7b", "dash", "job", f"job-{'7' * 36}", "a" * 39)
    ]
    assert yaml.safe_load(manifest(job(script="-x.py"), "jobset")) == yaml.safe_load(
        manifest(job(script="./-x.py"), "jobset")
    )


@pytest.mark.parametrize(
    ("form", "lines"),
    [
        ("deepspeed", ["10.0.0.1 slots=8", "gpu02 slots=4"]),
        ("openmpi", ["10.0.0.1 slots=8", "gpu02 slots=4"]),
        ("mpich", ["10.0.0.1:8", "gpu02:4"]),
        (
            "torchrun",
            [
                f"torchrun --nnodes 2 --node-rank {rank} --nproc-per-node {slots} --master-addr 10.0.0.1"
                f" --master-port 29500  # on {host}"
                for rank, slots, host in ((0, 8, "10.0.0.1"), (1, 4, "gpu02"))
            ],
        ),
    ],
)
def test_hostfiles(form: str, lines: list[str]) -> None:
    first, *rest = hostfile([Node("10.0.0.1", 8), Node("gpu02", 4)], form).splitlines()
    assert first.startswith("# Written by nodectl") and rest == lines
    for address in ("a b", "a#b", "a\nb slots=9", "", "-x", "a\x07", "a;b"):
        with pytest.raises(UsageError):
            hostfile([Node(address, 1)], form)


INVENTORY = """\
all:
  hosts:
    gpu[1:2]: {}
  vars:
    nodectl_hardware: dgx-a100
    nodectl_stack: cu128
    nodectl_tuning: ib-100g
"""


def test_what_the_profiles_say_stands_in_what_is_exported(nodectl: Cli, tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(INVENTORY + '    nodectl_nccl_env: {NCCL_SOCKET_IFNAME: "=ib0", NCCL_SOCKET_NTHREADS: 4}\n')
    own = ("-i", str(inventory), "export")
    done = nodectl(*own, "kubernetes", "--image", "pytorch:2", "/app/train.py", "--", "--x", "$(id)")
    document = yaml.safe_load(done.stdout)
    assert problems("jobset", document) == []
    container = pods(document)[0]["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8, "rdma/hca_shared_devices_a": 1}
    env = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert env["NCCL_SOCKET_NTHREADS"] == "4" and "NCCL_SOCKET_IFNAME" not in env
    assert "NCCL_SOCKET_IFNAME" in done.stderr and container["args"][-2:] == ["--x", "$$(id)"]
    script = nodectl(*own, "sbatch", "--nodes", "4", "train.py").stdout
    assert "#SBATCH --gpus-per-node=8\n" in script and "ranks=8 " in script
    assert "[[ -v NCCL_SOCKET_IFNAME ]] || export NCCL_SOCKET_IFNAME==ib0\n" in script
    assert nodectl(*own, "hostfile").stdout.splitlines()[1:] == ["gpu1 slots=8", "gpu2 slots=8"]
    assert "\nprogram=(./-dash.py --x )\n" in nodectl(*own, "sbatch", "--", "-dash.py", "--x").stdout
    odd = nodectl(*own, "kubernetes", "--image", "i", "--rdma-resource", "a/b=²", "t.py", check=False)
    assert (odd.returncode, "--rdma-resource 'a/b=²'" in odd.stderr) == (2, True)
    odd = nodectl(*own, "sbatch", "--interface", "a b", "t.py", check=False)
    assert (odd.returncode, "no name of an interface" in odd.stderr) == (2, True)


def test_an_acceptance_has_a_pod_on_each_node_and_tries_it_once(nodectl: Cli, tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(INVENTORY)
    accept = ("export", "accept", "--image", "nodectl:1", "--namespace", "ml", "--level", "standard")
    document = yaml.safe_load(nodectl("-i", str(inventory), *accept).stdout)
    spec = document["spec"]
    assert (document["kind"], document["apiVersion"], document["metadata"]["namespace"]) == ("Job", "batch/v1", "ml")
    # the schema of a JobSet has the whole of a Job's
    around = yaml.safe_load(manifest(job(), "jobset"))
    around["spec"]["replicatedJobs"][0]["template"] = {"spec": spec}
    assert problems("jobset", around) == []
    assert (spec["parallelism"], spec["completions"], spec["backoffLimitPerIndex"]) == (2, 2, 0)
    pod = spec["template"]["spec"]
    node = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert node == [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": ["gpu1", "gpu2"]}]}]
    (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart == {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": spec["template"]["metadata"]["labels"]}}
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    words = [*container["command"], *(expanded(word, {}) for word in container["args"])]
    assert words[0] == "nodectl" and words[3:] == ["accept", "--level", "standard"]
    assert json.loads(words[2])["nodectl_stack"] == "none"
    odd = nodectl("-i", "a$(b),", "-e", "nodectl_hardware=lab-cpu", *accept, check=False)
    assert (odd.returncode, f"no value of the label {HOSTNAME}" in odd.stderr) == (2, True)
