"""The command line of a training program: what every workload has, and what one has of its own."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodectl.workloads import compression, dynamic_batch, layout, parallel, pytorch, recompute
    from nodectl.workloads.meaning import OFF, RULES, refusal
    from nodectl.workloads.settings import TUNABLE, Settings
    from nodectl.workloads.workload import Workload
else:  # on a node these files lie in one folder, without the package
    import compression
    import dynamic_batch
    import layout
    import parallel
    import pytorch
    import recompute
    from meaning import OFF, RULES, refusal
    from settings import TUNABLE, Settings

PRECISIONS = ("auto", "fp32", "tf32", "fp16", "bf16")
OPTIMIZERS = ("adam", "adamw", "sgd")
OFFLOADS = ("none", "optimizer", "parameters")
SCHEDULES = ("constant", "cosine")


def parse(workload: Workload, arguments: Sequence[str] | None = None) -> Settings:
    """Return settings from the command line; argparse ends the program (2) on a wrong one."""
    parser = _parser(workload)
    own = _own_names(workload)
    parser.set_defaults(**workload.presets.get(_preset_of(arguments) or "", {}))
    given = vars(parser.parse_args(arguments))
    common = {name: value for name, value in given.items() if name not in own}
    settings = Settings(
        **common,
        own=argparse.Namespace(**{name: given[name] for name in sorted(own)}),
        given=_given(workload, arguments),
    )
    try:
        workload.check(settings)
        dynamic_batch.of(settings)
        # those that stand on the ranks or the device are refused where both are known
        if idle := refusal(settings.asked, settings.values, (*RULES, *workload.rules)):
            raise ValueError(idle)
    except ValueError as error:
        parser.error(str(error))
    return settings.on_course()


def start(workload: Workload) -> None:
    """Train by the command line's options; those are read first, since --help needs no torch."""
    parse(workload)
    pytorch.need()
    importlib.import_module("program").run(workload)


def _given(workload: Workload, arguments: Sequence[str] | None) -> frozenset[str]:
    """Return the destinations of the options that stand on the command line, whatever the usual values are."""
    parser = _parser(workload)
    parser.set_defaults(**dict.fromkeys(vars(parser.parse_args([])), argparse.SUPPRESS))
    parser._defaults.clear()  # it would give each the word SUPPRESS for its value
    return frozenset(vars(parser.parse_args(arguments)))


def refuse(workload: Workload, text: str) -> NoReturn:
    """End the program as over an option that cannot be read."""
    _parser(workload).error(text)


class _Parser(argparse.ArgumentParser):
    """Its errors are one line: every rank says them, and the usage of all options would hide them."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (--help tells all options)\n")


def _preset_of(arguments: Sequence[str] | None) -> str | None:
    """Read first, since it gives the other options their defaults; errors are left to the real reading."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--preset", nargs="?")
    name: str | None = first.parse_known_args(arguments)[0].preset
    return name


def _own_names(workload: Workload) -> frozenset[str]:
    only = argparse.ArgumentParser(add_help=False)
    workload.add_options(only)
    return frozenset(vars(only.parse_args([])))


def _parser(workload: Workload) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=workload.name,
        description=workload.summary,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    if workload.presets:
        known = sorted(workload.presets)
        parser.add_argument("--preset", choices=known, help="an article's options; those given beside it go before")
    model = parser.add_argument_group("the workload's own")
    workload.add_options(model)  # type: ignore[arg-type]  # a group takes options as a parser does
    _add_course(parser.add_argument_group("course of the training"))
    dynamic_batch.add_options(parser.add_argument_group("a batch that follows the throughput"))
    _add_speed(parser.add_argument_group("how it is computed"))
    _add_meeting(parser.add_argument_group("how gradients meet (ddp)"))
    _add_shares(parser.add_argument_group("how ranks share a model"))
    _add_log(parser.add_argument_group("what is said and kept"))
    _add_opposites(parser)
    parser.set_defaults(**{"preset": None, **workload.defaults})
    return parser


def _add_opposites(parser: argparse.ArgumentParser) -> None:
    """Let all that a search may vary be said both ways, --x and --no-x, of which the last counts."""
    for action in list(parser._actions):  # argparse has no other list of them
        if action.dest not in TUNABLE or action.nargs != 0:
            continue
        name = action.dest.replace("_", "-")
        is_on = bool(action.const)
        parser.add_argument(
            f"--no-{name}" if is_on else f"--{name}",
            dest=action.dest,
            action="store_false" if is_on else "store_true",
            default=action.default,
            help=argparse.SUPPRESS,
        )


def _add_course(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--batch", type=at_least(1), default=32, help="samples of a micro-batch on each rank")
    group.add_argument("--accumulation", type=at_least(1), default=1, help="micro-batches of a step on each rank")
    group.add_argument(
        "--course-batch",
        type=at_least(0),
        default=0,
        help="samples of a rank and step that --steps, --warmup-steps and --lr are meant for, which then follow the "
        "batch; 0: they are meant for this batch",
    )
    group.add_argument("--epochs", type=at_least(1), default=10, help="passes over the samples")
    group.add_argument("--samples", type=at_least(1), default=1024, help="samples of synthetic data, over all ranks")
    group.add_argument(
        "--held-out",
        type=at_least(0),
        default=0,
        help="so many last samples are not trained on: their loss ends an epoch",
    )
    group.add_argument("--steps", type=at_least(0), default=0, help="end after so many steps in all; 0: by --epochs")
    group.add_argument("--lr", type=number(0.0), default=1e-3, help="learning rate")
    group.add_argument("--optimizer", choices=OPTIMIZERS, default="adam", help="what changes the weights")
    group.add_argument("--weight-decay", type=number(0.0), default=0.0, help="of the optimizer")
    group.add_argument("--momentum", type=number(0.0), default=0.0, help="of sgd")
    group.add_argument("--schedule", choices=SCHEDULES, default="constant", help="of the learning rate; cosine: to 0")
    group.add_argument("--warmup-steps", type=at_least(0), default=0, help="steps in which the learning rate rises")
    group.add_argument("--clip", type=number(0.0), default=1.0, help="largest norm of the gradients; 0: any")
    group.add_argument("--seed", type=at_least(0), default=0, help="of weights, data, order and dropout")


def _add_speed(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--precision", choices=PRECISIONS, default="auto", help="auto: bf16 or fp16 on a GPU, else fp32")
    group.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: a GPU where there is one"
    )
    group.add_argument(
        "--parallel", choices=parallel.NAMES, default="auto", help="auto: ddp over several ranks, else single"
    )
    group.add_argument("--fused", action="store_true", help="the optimizer is one kernel for all weights")
    group.add_argument(
        "--offload",
        choices=OFFLOADS,
        default="none",
        help="zero, fsdp2: to host memory; parameters: the optimizer, too",
    )
    group.add_argument("--deepspeed", type=Path, help="zero: DeepSpeed's file, which says the same as these options")
    group.add_argument(
        "--recompute",
        choices=recompute.MODES,
        default="none",
        help="full: layers keep their inputs alone and are computed again; selective: they keep products and attention",
    )
    group.add_argument("--compile", action="store_true", help="compile the layers (torch.compile)")
    group.add_argument(
        "--workers", type=at_least(0), default=OFF["workers"], help="processes a rank that prepare batches"
    )
    group.add_argument("--pin-memory", action="store_true", help="batches go to a GPU from page-locked memory")
    group.add_argument(
        "--prefetch", type=at_least(1), default=2, help="batches that each of the workers prepares ahead"
    )


def _add_meeting(group: argparse._ArgumentGroup) -> None:
    compression.add_options(group)
    group.add_argument(
        "--bucket-mb",
        type=number(0.001),
        help="gradients are sent in parts of so many MiB; none: as DDP has it, 1, then 25",
    )
    group.add_argument(
        "--bucket-view", action="store_true", help="gradients lie in the parts that are sent: one copy less"
    )
    group.add_argument(
        "--static-graph", action="store_true", help="every step uses the same parameters in the same order"
    )


def _add_shares(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--tensor", type=at_least(1), default=OFF["tensor"], help="ranks that share each matrix (tensor parallelism)"
    )
    group.add_argument(
        "--stages", type=at_least(1), default=OFF["stages"], help="ranks that share the layers (pipeline parallelism)"
    )
    group.add_argument("--pipeline", choices=layout.SCHEDULES, default=layout.SCHEDULES[0], help="schedule of --stages")


def _add_log(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--log-every", type=at_least(1), default=10, help="steps between two lines")
    folder = os.environ.get("NODECTL_CHECKPOINT_DIR") or OFF["checkpoint_dir"]
    group.add_argument("--checkpoint-dir", type=Path, default=folder, help="none: save nothing")
    group.add_argument("--checkpoint-every", type=at_least(1), default=50, help="steps between two checkpoints")
    group.add_argument(
        "--resume", dest="resume", action="store_true", default=True, help="go on from the newest checkpoint"
    )
    group.add_argument(
        "--no-resume", dest="resume", action="store_false", help="begin anew; older checkpoints are set aside"
    )


# of a count and of a seed: what torch's generators take, also with a rank's number added
_MOST = 2**32 - 1


class at_least:  # noqa: N801 (a type of argparse)
    """A whole number from `smallest`, which a generator of torch takes as its seed, too."""

    def __init__(self, smallest: int) -> None:
        self.smallest = smallest

    def __call__(self, text: str) -> int:
        """Return the number of a text; ArgumentTypeError where it is none."""
        with contextlib.suppress(ValueError):
            if self.smallest <= int(text) <= _MOST:
                return int(text)
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {self.smallest} to {_MOST}")


class number:  # noqa: N801 (as above)
    """A finite number from `smallest`."""

    def __init__(self, smallest: float) -> None:
        self.smallest = smallest

    def __call__(self, text: str) -> float:
        """Return the number of a text; ArgumentTypeError where it is none."""
        with contextlib.suppress(ValueError):
            if self.smallest <= float(text) < float("inf"):
                return float(text)
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number from {self.smallest:g}")
