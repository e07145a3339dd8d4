"""What may start a node's ranks beside torchrun, and which words of its own launcher nodectl says itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodectl.common.spelling import meant
from nodectl.errors import UsageError

TORCHRUN, DEEPSPEED, ACCELERATE, COMMAND = "torchrun", "deepspeed", "accelerate", "command"
NAMES = (TORCHRUN, DEEPSPEED, ACCELERATE, COMMAND)
_RANKS = "--nproc-per-node says how many ranks a host has"
_HOSTS = "the inventory and --limit say which hosts take part"
_PLACES = "nodectl gives each host its number, and the first one's address and port"
_ENDS = "nodectl ends the job with its first failure"
_LOGS = "`nodectl jobs logs` has the output"


@dataclass(frozen=True, slots=True)
class Launcher:
    """A launcher's options in front of the script, with underscores: without a value, with one, and those of nodectl.

    `closed`: options that stand nowhere here are refused; else they are taken for one of a newer version.
    """

    flags: frozenset[str]
    valued: frozenset[str]
    ours: Mapping[str, str]
    closed: bool


# deepspeed/launcher/launch.py and runner.py
_DEEPSPEED = Launcher(
    flags=frozenset({"--module", "--no_python", "--no_local_rank", "--bind_cores_to_rank"}),
    valued=frozenset({"--bind_core_list", "--enable_each_rank_log"}),
    ours={
        **dict.fromkeys(("--hostfile", "-H", "--include", "-i", "--exclude", "-e", "--num_nodes"), _HOSTS),
        **dict.fromkeys(("--num_gpus", "--num_accelerators"), _RANKS),
        **dict.fromkeys(("--master_addr", "--master_port", "--node_rank", "--world_info"), _PLACES),
        **dict.fromkeys(
            ("--launcher", "--launcher_args", "--no_ssh", "--no_ssh_check", "--ssh_port", "--force_multi"),
            "nodectl starts its launcher on each host",
        ),
        **dict.fromkeys(
            ("--elastic_training", "--enable_elastic_training", "--min_elastic_nodes", "--max_elastic_nodes"), _ENDS
        ),
        "--save_pid": "nodectl holds its processes",
    },
    closed=True,
)
# accelerate/commands/launch.py
_ACCELERATE = Launcher(
    flags=frozenset(
        {
            *("--multi_gpu", "--quiet", "-q", "--enable_cpu_affinity", "--use_deepspeed", "--use_fsdp"),
            *("--use_parallelism_config", "--use_megatron_lm", "--module", "-m", "--no_python", "--debug"),
            *("--downcast_bf16", "--dynamo_use_fullgraph", "--dynamo_use_dynamic"),
            "--dynamo_use_regional_compilation",
        }
    ),
    valued=frozenset(),
    ours={
        **dict.fromkeys(("--num_processes",), _RANKS),
        **dict.fromkeys(("--num_machines", "--deepspeed_hostfile", "--mpirun_hostfile"), _HOSTS),
        **dict.fromkeys(("--deepspeed_inclusion_filter", "--deepspeed_exclusion_filter"), _HOSTS),
        **dict.fromkeys(("--machine_rank", "--main_process_ip", "--main_process_port", "--same_network"), _PLACES),
        **dict.fromkeys(("--rdzv_backend", "--rdzv_conf", "--deepspeed_multinode_launcher"), _PLACES),
        **dict.fromkeys(("--max_restarts", "--monitor_interval"), _ENDS),
        **dict.fromkeys(("--log_dir", "--tee", "-t"), _LOGS),
        "--cpu": "it starts no ranks with that: hand over ACCELERATE_USE_CPU=true by --env ACCELERATE_USE_CPU",
        **dict.fromkeys(("--tpu", "--tpu_cluster", "--tpu_use_sudo"), "nodectl's hosts have no TPU"),
    },
    closed=False,
)
_LAUNCHERS = {DEEPSPEED: _DEEPSPEED, ACCELERATE: _ACCELERATE}


def split(engine: str, argv: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return what is started by name, and what follows it; UsageError where ARGV cannot be that engine's."""
    if not argv:
        raise UsageError(
            f"--engine {engine} needs a command to start",
            f"say it behind `--`: nodectl launch --engine {engine} -- ARGV",
        )
    launcher = _LAUNCHERS.get(engine)
    at = 0 if launcher is None else _script_at(engine, launcher, argv)
    if not argv[at]:
        raise UsageError(f"--engine {engine}: an empty word names no program")
    return argv[at], tuple(argv[at + 1 :])


def _script_at(engine: str, launcher: Launcher, argv: Sequence[str]) -> int:
    at = 0
    while at < len(argv) and argv[at].startswith("-"):
        name, equals, _ = argv[at].partition("=")
        option = name if not name.startswith("--") else "--" + name[2:].replace("-", "_")
        if option in launcher.ours:
            raise UsageError(f"--engine {engine}: {name} is not for ARGV", launcher.ours[option])
        options = launcher.flags | launcher.valued
        if launcher.closed and option not in options:
            raise UsageError(
                f"--engine {engine}: its launcher has no option {name}",
                f"{meant(option, options)}the script's own options stand behind the script",
            )
        at += 1 if equals or option in launcher.flags else 2
    if at >= len(argv):
        raise UsageError(
            f"--engine {engine}: it needs a script, and there is none in {' '.join(argv)}",
            "its options come first, then the script",
        )
    return at


def of_module(engine: str, module: str, args: Sequence[str]) -> tuple[str, ...]:
    """ARGV that starts a module; UsageError where the engine knows none."""
    if engine == COMMAND:
        raise UsageError("-m is for Python modules", f"nodectl launch --engine command -- python -m {module}")
    return "--module", module, *args
