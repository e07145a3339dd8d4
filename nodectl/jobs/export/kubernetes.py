"""Manifests for Kubernetes: a JobSet, or Kubeflow's PyTorchJob, whose pods are the nodes of one PyTorch job."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from nodectl.common.system_names import is_image_name
from nodectl.errors import UsageError

# the job's name is a service's, too, and those begin with a letter
# NAME-nodes-0-INDEX is a pod's host name, and that has 63 characters
_LONGEST_NAME = 40
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL = "a-z, 0-9 and -"
_RESOURCE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_GPUS = "nvidia.com/gpu"
_NODE_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_PORT = 29500
_NODES = "nodes"
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KubernetesJob:
    """`gpus` of a pod; `rdma` are resources that give it RDMA, with their counts; `shm` is the size of /dev/shm.

    Without a size it is half the node's memory.

    Without GPUs `ranks` a pod run on its CPUs.
    """

    name: str
    image: str
    nodes: int
    ranks: int
    script: str
    gpus: int = 0
    args: Sequence[str] = ()
    namespace: str = ""
    rdma: Mapping[str, int] = field(default_factory=dict)
    shm: str = ""
    host_network: bool = False
    env: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise UsageError for what Kubernetes would refuse, or read as something else."""
        for what, text, is_right, rule in (
            ("--name", self.name, _NAME.fullmatch(self.name), f"{_LABEL}, a letter first, at most {_LONGEST_NAME}"),
            ("--namespace", self.namespace, not self.namespace or _NAMESPACE.fullmatch(self.namespace), _LABEL),
            ("--image", self.image, is_image_name(self.image), "REGISTRY/NAME:TAG, the name in lower case"),
            *(
                ("--rdma-resource", name, _is_rdma(name), "a device's, as `kubectl describe node` names it")
                for name in self.rdma
            ),
            *(("", word, _is_utf8(word), "text in UTF-8") for word in (self.script, *self.args, *self.env.values())),
        ):
            if not is_right:
                raise UsageError(f"{what} {text!r}: Kubernetes takes {rule} here".lstrip(), "say another one")


def _is_rdma(name: str) -> bool:
    return _RESOURCE.fullmatch(name) is not None and name != _GPUS


def _is_utf8(word: str) -> bool:
    """Tell whether an argument is text in UTF-8: one that is none arrives with surrogates in it."""
    return not any("\ud800" <= character <= "\udfff" for character in word)


def job_name(script: str) -> str:
    """Return a name that Kubernetes takes for the job of a script."""
    name = re.sub(r"[^a-z0-9]+", "-", PurePosixPath(script).stem.lower()).strip("-") or "job"
    return (name if name[0].isalpha() else f"job-{name}")[:_LONGEST_NAME].strip("-")


def manifest(job: KubernetesJob, kind: str) -> str:
    """Return the YAML of one object."""
    return yaml.dump(KINDS[kind](job), Dumper=_Plain, sort_keys=False, width=120)


class _Plain(yaml.SafeDumper):
    """Writes what stands twice in full: not all readers know YAML's anchors."""

    def ignore_aliases(self, _: Any) -> bool:
        return True


def jobset(job: KubernetesJob) -> Document:
    """One Job of `nodes` pods that know their number, and find the first by its host name."""
    first = f"{job.name}-{_NODES}-0-0.{job.name}"
    number = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    pod = _pod(job, "NODE_RANK", first, str(_PORT), [{"name": "NODE_RANK", "valueFrom": number}])
    template = {
        "spec": {
            "parallelism": job.nodes,
            "completions": job.nodes,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": {"spec": {"restartPolicy": "Never", **pod}},
        }
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _metadata(job),
        "spec": {
            "failurePolicy": {"maxRestarts": 0},
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "replicatedJobs": [{"name": _NODES, "replicas": 1, "template": template}],
        },
    }


def pytorchjob(job: KubernetesJob) -> Document:
    """Return a PyTorchJob: a master and workers, each of which gets MASTER_ADDR, MASTER_PORT and its number, RANK."""
    replica = {
        "restartPolicy": "Never",
        "template": {"spec": _pod(job, "RANK", "$(MASTER_ADDR)", "$(MASTER_PORT)", [])},
    }
    replicas = {"Master": {"replicas": 1, **replica}}
    if job.nodes > 1:
        replicas["Worker"] = {"replicas": job.nodes - 1, **replica}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": _metadata(job),
        "spec": {
            "nprocPerNode": str(job.ranks),
            "runPolicy": {"backoffLimit": 0, "cleanPodPolicy": "Running"},
            "pytorchReplicaSpecs": replicas,
        },
    }


def acceptance(job: KubernetesJob, hosts: Sequence[str]) -> str:
    """Return the YAML of a Job with a pod on each of these nodes, in which nodectl runs with `args`, once."""
    if odd := [name for name in hosts if not _NODE_LABEL.fullmatch(name)]:
        rule = "no value of the label kubernetes.io/hostname"
        raise UsageError(f"host {odd[0]!r}: {rule}", "name hosts as `kubectl get nodes` does")
    document = yaml.safe_load(Path(__file__).with_name("accept.yml").read_bytes())
    spec, limits = document["spec"], {_GPUS: job.gpus} if job.gpus else {}
    document["metadata"] = _metadata(job)
    spec |= {"parallelism": len(hosts), "completions": len(hosts)}
    pod = spec["template"]["spec"]
    pod["containers"][0] |= {"image": job.image, "args": list(map(literal, job.args)), "resources": {"limits": limits}}
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    term["matchExpressions"][0]["values"] = [str(name) for name in hosts]  # Ansible has a string of its own
    return yaml.dump(document, Dumper=_Plain, sort_keys=False, width=120)


def _metadata(job: KubernetesJob) -> Document:
    return {"name": job.name, **({"namespace": job.namespace} if job.namespace else {})}


def _pod(job: KubernetesJob, rank: str, address: str, port: str, own_env: list[Document]) -> Document:
    """Container, shared memory and network of a pod; `rank` is the variable that holds its number."""
    limits = {**({_GPUS: job.gpus} if job.gpus else {}), **job.rdma}
    env = {"PYTHONUNBUFFERED": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", **job.env}
    container: Document = {
        "name": "pytorch",  # the training operator looks for this name
        "image": job.image,
        "command": ["torchrun"],
        "args": _torchrun(job, rank, address, port),
        "env": [*own_env, *({"name": name, "value": literal(value)} for name, value in env.items())],
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 - a mount point of the pod
    }
    if limits:
        container["resources"] = {"limits": limits, "requests": dict(limits)}
    if job.rdma:  # verbs register memory
        container["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    memory = {"medium": "Memory", **({"sizeLimit": job.shm} if job.shm else {})}
    pod: Document = {"containers": [container], "volumes": [{"name": "shm", "emptyDir": memory}]}
    if job.host_network:
        pod |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    return pod


def _torchrun(job: KubernetesJob, rank: str, address: str, port: str) -> list[str]:
    options = {
        "--nnodes": str(job.nodes),
        "--node-rank": f"$({rank})",
        "--nproc-per-node": str(job.ranks),
        "--max-restarts": "0",
        "--master-addr": address,
        "--master-port": port,
    }
    torchrun_options = [word for option in options.items() for word in option]
    return [*torchrun_options, *(literal(word) for word in (script_path(job.script), *job.args))]


def literal(text: str) -> str:
    """Return a word so that Kubernetes hands it on as it is, without a variable's value in the place of `$(NAME)`."""
    return text.replace("$", "$$")


KINDS: Mapping[str, Callable[[KubernetesJob], Document]] = {"jobset": jobset, "pytorchjob": pytorchjob}


def script_path(script: str) -> str:
    """Return the script's path so that no launcher takes it for an option."""
    return f"./{script}" if script.startswith("-") else script
