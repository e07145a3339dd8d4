"""What may start a node's ranks beside torchrun, and which words of its own launcher nodectl says itself."""

from __future__ import annotations

from collections.abc import Sequence

from nodectl.errors import UsageError

TORCHRUN, DEEPSPEED, ACCELERATE, COMMAND = "torchrun", "deepspeed", "accelerate", "command"
NAMES = (TORCHRUN, DEEPSPEED, ACCELERATE, COMMAND)
# deepspeed/launcher/launch.py and runner.py, accelerate/commands/launch.py; with underscores
_OURS = {
    DEEPSPEED: frozenset(
        (
            *("--hostfile", "-H", "--include", "-i", "--exclude", "-e", "--num_nodes", "--num_gpus"),
            *("--num_accelerators", "--master_addr", "--master_port", "--node_rank", "--world_info", "--launcher"),
            *("--launcher_args", "--no_ssh", "--ssh_port", "--force_multi", "--elastic_training", "--save_pid"),
        )
    ),
    ACCELERATE: frozenset(
        (
            *("--num_processes", "--num_machines", "--machine_rank", "--main_process_ip", "--main_process_port"),
            *("--deepspeed_hostfile", "--mpirun_hostfile", "--same_network", "--rdzv_backend", "--rdzv_conf"),
            *("--deepspeed_multinode_launcher", "--max_restarts", "--monitor_interval", "--log_dir", "--tee"),
        )
    ),
}


def split(engine: str, argv: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return what is started by name, and what follows it; UsageError where ARGV cannot be that engine's."""
    if not argv:
        raise UsageError(
            f"--engine {engine} needs a command to start",
            f"say it behind `--`: nodectl launch --engine {engine} -- ARGV",
        )
    at = 0 if engine == COMMAND else _script_at(engine, argv)
    if not argv[at]:
        raise UsageError(f"--engine {engine}: an empty word names no program")
    return argv[at], tuple(argv[at + 1 :])


def _script_at(engine: str, argv: Sequence[str]) -> int:
    for at, word in enumerate(argv):
        name = word.partition("=")[0]
        if name[:2] + name[2:].replace("-", "_") in _OURS[engine]:
            raise UsageError(
                f"--engine {engine}: {name} is not for ARGV",
                "--limit says the hosts, --nproc-per-node the ranks; nodectl sets addresses, ports and logs itself",
            )
        before = argv[at - 1] if at else ""
        if word.endswith(".py") or word.startswith("workload:") or before in ("--module", "-m", "--no_python"):
            return at
    raise UsageError(
        f"--engine {engine}: it needs a script (.py), and there is none in {' '.join(argv)}",
        "its options come first, then the script, or --module and its name",
    )


def of_module(engine: str, module: str, args: Sequence[str]) -> tuple[str, ...]:
    """ARGV that starts a module; UsageError if the engine knows none."""
    if engine == COMMAND:
        raise UsageError("-m is for Python modules", f"nodectl launch --engine command -- python -m {module}")
    return "--module", module, *args
