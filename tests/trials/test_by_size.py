"""What won by size, from composed curves of an algorithm's start-up time and bandwidth; and plug-ins that are asked."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodectl.errors import NodectlError, UsageError
from nodectl.model.host import Host
from nodectl.model.trial import Pair, Series, Side, Trial
from nodectl.transport.router import LocalTransport
from nodectl.trials import store
from nodectl.trials.bysize import SIZES, better, proposal_by_size, refuse_conflict, rows, sides_by_size
from nodectl.trials.families import judge_all
from nodectl.trials.plugin import refuse_wrong_plugin
from tests.conftest import Cli
from tests.trials.saved_trial import trial

# microseconds to start, GB/s; of two nodes with 8 GPUs each: NCCL itself takes ring/simple
CURVES = {"ring/ll": (60, 40.0), "ring/simple": (90, 180.0), "tree/ll": (30, 35.0), "tree/simple": (70, 150.0)}
STOCK = "ring/simple"
COMM = {"nodes": 2, "ranks": 16, "channels": 16}
HOSTS = [Host("a", "127.0.0.1", connection="local", variables={"nodectl_stack": "cu128"})]


def by_size(curves: Mapping[str, tuple[float, float]], pairs: int = 6, noise: float = 0.01, **changes: Any) -> Trial:
    """A trial of all_reduce over 16 channels; candidates without a curve do as NCCL itself does."""
    chance, series, conditions = random.Random(5), [], []
    against = Side("own")
    sides = sides_by_size(("all_reduce",), against)
    for side in (against, *sides):
        taken = side.label if side.label in curves else STOCK
        algorithm, protocol = (STOCK if "channels" in taken else taken).upper().split("/")
        for size in SIZES:
            what = {"collective": "all_reduce", "size_bytes": size, "algorithm": algorithm, "protocol": protocol}
            conditions.append({"profile": side.label, "what": "", "conditions": {**what, **COMM}})
            if side is not against:
                base, tried = (
                    size / (start * 1e3 + size / rate)
                    for start, rate in (CURVES[STOCK], curves.get(taken, CURVES[STOCK]))
                )
                both = [Pair(*(value * (1 + chance.gauss(0, noise)) for value in (base, tried))) for _ in range(pairs)]
                subject = "a,b, all_reduce, backend nccl, ranks 16"
                series.append(Series(side.label, "own", "nccl", "GB/s", tuple(both), subject, size))
    given: dict[str, Any] = {"options": {"by_size": True}, "baseline": against, "candidates": sides, **changes}
    kept = replace(trial(series=(), conditions=tuple(conditions), probes=("nccl",), **given), series=tuple(series))
    return replace(kept, verdicts=judge_all(kept.series, together=kept.by_size))


@cache
def won() -> Trial:
    """The trial of CURVES."""
    return by_size(CURVES)


def test_each_size_has_its_best_and_reaches_half_way_to_the_next() -> None:
    lines = rows(kept := won(), better(kept))
    assert lines[0] == "allreduce,4096,8192,tree,ll,-1,2,16,-1,-1"
    assert lines[1] == "allreduce,8193,32768,tree,ll,-1,2,16,-1,-1"
    best = {int(line.split(",")[2]): line.split(",")[3:5] for line in lines}
    expected = {min(size * 2, max(SIZES)): name for size in SIZES if (name := _fastest(size)) != STOCK}
    assert {high: "/".join(names) for high, names in best.items()} == expected
    assert {"tree/ll", "tree/simple"} <= {*expected.values()} and len(expected) < len(SIZES)


def _fastest(size: int) -> str:
    times = {name: start * 1e3 + size / rate for name, (start, rate) in CURVES.items()}
    least = min(times, key=lambda name: times[name])
    # a gain below 2 % is not worth a setting
    return least if times[least] < times[STOCK] / 1.03 else STOCK


def test_of_many_that_do_nothing_none_wins() -> None:
    kept = by_size(dict.fromkeys(CURVES, CURVES[STOCK]), pairs=5, noise=0.05)
    assert len(kept.series) > 90 and better(kept) == []
    with pytest.raises(NodectlError, match="nothing is written"):
        proposal_by_size(kept, "", "example")


def test_a_variable_says_only_what_loses_nowhere() -> None:
    with pytest.raises(NodectlError, match="a variable knows no size"):
        proposal_by_size(won(), "", None)
    safe = proposal_by_size(by_size({**CURVES, "tree/simple": (70, 181.0)}), "", None)
    assert (safe.overrides or {})["nccl"] == {"NCCL_ALGO": "allreduce:tree", "NCCL_PROTO": "allreduce:simple"}
    assert {verdict.profile for verdict in safe.verdicts} == {"tree/simple"} and not safe.tuner


def test_a_plug_in_takes_no_more_channels_than_nccl_makes() -> None:
    kept = by_size({"channels 8": (30, 190.0), "channels 32": (20, 200.0)})
    assert {line.split(",")[5] for line in proposal_by_size(kept, "", "example").tuner} == {"8"}
    assert (proposal_by_size(kept, "", None).overrides or {})["nccl"]["NCCL_MIN_NCHANNELS"] == "32"


def test_what_the_log_tells_as_the_baselines_own_choice_has_not_won() -> None:
    kept = won()
    stock = {"algorithm": "RING", "protocol": "SIMPLE"}
    told: list[Any] = [
        {**row, "conditions": {**row["conditions"], **stock}} for row in map(dict[str, Any], kept.conditions)
    ]
    assert better(kept) and not better(replace(kept, conditions=tuple(told)))
    damaged = ("ranks", None), ("ranks", "x,1"), ("protocol", "LL,1"), ("algorithm", 7), ("size_bytes", "4k")
    for key, value in damaged:
        harmed = [
            {**row, "conditions": {**row["conditions"], key: value}} for row in map(dict[str, Any], kept.conditions)
        ]
        assert not better(replace(kept, conditions=tuple(harmed))), key
    # gloo tells nothing
    assert not better(replace(kept, conditions=()))


def test_refused_where_something_else_chooses(tmp_path: Path) -> None:
    refuse_conflict(Side("own"), HOSTS, [])
    for variables, told in (
        ({"nodectl_tuning": "article-20g"}, "NCCL_ALGO, NCCL_PROTO is set there already"),
        ({"nodectl_nccl_env": {"NCCL_TUNER_PLUGIN": "ofi"}}, "NCCL_TUNER_PLUGIN is set there already"),
        ({"nodectl_stack": "cu124"}, "takes no algorithm by collective"),
    ):
        host = replace(HOSTS[0], variables={**HOSTS[0].variables, **variables})
        with pytest.raises(UsageError, match=told):
            refuse_conflict(Side("own"), [host], [])


# NVIDIA's example in short: the first line that fits gets the cost 0; BEGIN is the channels it begins with
PLUGIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static const char *F = "broadcast reduce allgather reducescatter allreduce", *P = "ll ll128 simple";
static const char *A = "tree ring collnet_direct collnet_chain nvls nvls_tree pat";
static char text[9999];
static int nodes, ranks;
static int at(const char *names, const char *name) {
  char all[99];
  int number = 0;
  for (char *word = strtok(strcpy(all, names), " "); strcmp(word, name); word = strtok(0, " ")) number++;
  return number;
}
static int init(void **ctx, unsigned long id, size_t all, size_t hosts, void *log, void *domain, void *constants) {
  text[fread(text, 1, sizeof text - 1, fopen(getenv("NCCL_TUNER_CONFIG_FILE"), "r"))] = 0;
  return nodes = hosts, ranks = all, 0;
}
static int ask(void *ctx, int f, size_t bytes, int ops, float **costs, int algos, int protos, int reg, int *channels) {
  char name[3][30];
  size_t low, high;
  int own, n, r, end;
  *channels = BEGIN;
  for (char *line = text; sscanf(line, "%29[^,],%zu,%zu,%29[^,],%29[^,],%d,%d,%d,-1,-1 %n", name[0], &low, &high,
                                 name[1], name[2], &own, &n, &r, &end) == 8; line += end)
    if (at(F, name[0]) == f && low <= bytes && bytes <= high && n == nodes && r == ranks) {
      if (CRASHES) costs[at(A, name[1])][at(P, name[2])] = 0;
      ((float *)costs)[at(A, name[1]) * protos + at(P, name[2])] = 0;
      return *channels = own < 0 ? *channels : own, 0;
    }
  return 0;
}
const struct { const char *name; void *init, *ask, *end; } ncclTunerPlugin_v5 = {"own", init, ask, 0};
"""


@pytest.mark.skipif(not shutil.which("gcc"), reason="no C compiler is here to build the plug-in")
@pytest.mark.parametrize(
    ("begin", "crashes", "told"), [(0, 0, ""), (1, 0, "begins with one channel"), (0, 1, "SIGSEGV")]
)
def test_a_plug_in_is_asked_what_it_makes_of_the_lines(tmp_path: Path, begin: int, crashes: int, told: str) -> None:
    library, lines = tmp_path / "own.so", rows(kept := won(), better(kept))
    lines = [*lines, "broadcast,64,99,ring,ll128,8,2,16,-1,-1"]
    argv = ["gcc", "-w", "-fPIC", "-shared", f"-DBEGIN={begin}", f"-DCRASHES={crashes}", "-xc", "-", "-o", str(library)]
    subprocess.run(argv, input=PLUGIN, text=True, check=True)
    if told:
        with pytest.raises(NodectlError, match=told):
            refuse_wrong_plugin(LocalTransport(), HOSTS, str(library), lines, 1)
    else:
        refuse_wrong_plugin(LocalTransport(), HOSTS, str(library), lines, 1)
        # of another size of communicator it knows nothing
        with pytest.raises(NodectlError, match="None"):
            refuse_wrong_plugin(
                LocalTransport(), HOSTS, str(library), [lines[0].replace(",2,16,", ",3,16,"), *lines], 1
            )


def test_the_proposal_holds_the_lines_and_no_size_is_no_file(
    nodectl: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path, env = tmp_path / "won.yml", {"XDG_STATE_HOME": str(tmp_path / "state")}
    kept = by_size({**CURVES, "tree/simple": (70, 181.0)})
    store.save(kept)
    nodectl("tune", "propose", kept.id, "--write", str(path), env=env)
    assert {"NCCL_ALGO": "allreduce:tree", "NCCL_PROTO": "allreduce:simple"} in _nccl(path)
    assert "won: all_reduce 4 KiB: tree/ll +" in nodectl("tune", "show", kept.id, env=env).stderr
    assert (
        nodectl("tune", "propose", kept.id, "--write", str(path), "--profile", "x", env=env, check=False).returncode
        == 2
    )
    lines = proposal_by_size(kept, "", "example").tuner
    assert lines and set(lines) == set(rows(kept, better(kept)))
    store.save(by_size({}))
    done = nodectl("tune", "propose", "last", "--write", str(tmp_path / "none.yml"), env=env, check=False)
    assert done.returncode == 1 and "nothing is written" in done.stderr and not (tmp_path / "none.yml").exists()


def _nccl(path: Path) -> list[Mapping[str, str]]:
    return [host["nodectl_overrides"]["nccl"] for host in yaml.safe_load(path.read_text())["all"]["hosts"].values()]
