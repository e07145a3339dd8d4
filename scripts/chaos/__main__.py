"""Every event that may hit a job, in every phase of its life, against what docs/jobs.md promises (`make chaos`).

usage: python -m scripts.chaos [--list] [--events NAME[:PHASE],…] [--phases NAME,…] [--hosts N] [--seed N] [--limit S]

Real torchrun over gloo on a lab's hosts. Compared are the job's end, the cause that `jobs why` tells, the time in
which all ranks had ended, losses (bit by bit those of an undisturbed run), checkpoints, and what stays on the hosts.
The last line is JSON: {"events": …, "passed": …, "left_over": …}; an event in a phase counts as one. Exit status 1
if one failed.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from nodectl.common.declarations import ended
from nodectl.common.paths import state_dir
from scripts.chaos.cases import REACTION_S, Event, Phase
from scripts.chaos.events import EVENTS
from scripts.chaos.hosts import Lab, MissingError
from scripts.chaos.reference import Reader, Reference, share_python
from scripts.chaos.run import Result, Runner


def main() -> None:
    """Run the cases that were asked for."""
    # a shell lets its background jobs ignore Ctrl-C, and what is started here would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = _options()
    cases = _chosen(options)
    if options.list:
        print("\n".join(f"{event.name:<22} {phase:<10} {event.about}" for event, phase in cases))
        return
    if not Path(share_python()).exists():
        sys.exit("the lab's share holds no torch: `make wheels`")
    print(
        f"{len(cases)} cases; promised times get {REACTION_S:g} s times this machine's slowness, measured in each case"
    )
    sys.exit(0 if run(cases, options.hosts, options.folder, options.limit) else 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="what would be run")
    names = [name for event in EVENTS for name in (event.name, *(f"{event.name}:{phase}" for phase in event.expects))]
    parser.add_argument("--events", type=_names(names), help="NAME or NAME:PHASE,…; default: all")
    parser.add_argument("--phases", type=_names(set(Phase)), help="default: all")
    parser.add_argument("--hosts", type=int, default=3, help="of the lab")
    parser.add_argument("--seed", type=int, help="run the cases in an order drawn by this number")
    parser.add_argument("--limit", type=float, default=float("inf"), metavar="S", help="begin no case after so long")
    parser.add_argument("--folder", type=Path, default=state_dir() / "chaos", help="what failed cases showed")
    return parser.parse_args()


def _names(known: Collection[str]) -> Callable[[str], list[str]]:
    def read(text: str) -> list[str]:
        names = text.split(",")
        if unknown := sorted(set(names) - set(known)):
            raise argparse.ArgumentTypeError(f"no {', '.join(unknown)}; `--list` shows what there is")
        return names

    return read


def _chosen(options: argparse.Namespace) -> list[tuple[Event, Phase]]:
    """In the order in which they were asked for; of all those that lose the lab come last."""
    known = sorted(EVENTS, key=lambda event: event.loses_lab)
    cases = [(event, phase) for event in known for phase in event.expects]
    if options.events is not None:
        named = [(name.partition(":")[0], name.partition(":")[2]) for name in options.events]
        cases = [case for name, phase in named for case in cases if case[0].name == name and phase in ("", case[1])]
    if options.phases is not None:
        cases = [case for case in cases if case[1] in options.phases]
    if options.seed is not None:
        random.Random(options.seed).shuffle(cases)  # noqa: S311 - an order, no secret
    return cases


def run(cases: Sequence[tuple[Event, Phase]], hosts: int, folder: Path, limit_s: float) -> bool:
    """Print each case's line as it comes, what failed, and the last line; whether all passed."""
    begun_s, results = time.monotonic(), list[Result]()
    python = share_python()
    references, reader, lab = {ranks: Reference(python, ranks) for ranks in (3, 2)}, Reader(python), Lab(hosts)
    try:
        for result in Runner(lab, folder, references, reader).run(cases):
            results.append(result)
            print(line(result), flush=True)
            if time.monotonic() - begun_s > limit_s:
                break
    except MissingError as error:
        sys.exit(str(error))
    finally:
        reader.close()
        lab.down()
    _summary(results, len(cases), folder, time.monotonic() - begun_s)
    return len(results) == len(cases) and all(result.passed for result in results)


def line(result: Result) -> str:
    """One case for people."""
    verdict = "passed" if result.passed else "skipped" if result.skipped else "FAILED"
    ended = "" if result.ended_s is None else f", ranks ended after {result.ended_s:.1f} s"
    more = "; ".join((result.skipped,) if result.skipped else (*result.problems, *result.left))
    told = f"{verdict:<8}{result.event.name:<22}{result.phase:<11}{result.took_s:5.0f} s"
    return f"{told}, slowness {result.slowness:.1f}{ended}" + (f": {more}" if more else "")


def _summary(results: Sequence[Result], count: int, folder: Path, took_s: float) -> None:
    failed = [result for result in results if not result.passed]
    kinds = len({result.event.name for result in results})
    print(f"{kinds} kinds of events, {len(results)} of {count} cases in {took_s:.0f} s")
    if failed:
        print(f"what failed cases showed lies in {folder}")
    passed, over = len(results) - len(failed), sum(len(result.left) for result in results)
    print(json.dumps({"events": len(results), "passed": passed, "left_over": over}))


if __name__ == "__main__":
    ended(main)
