"""The training measurement: the reference transformer over all hosts, of a size that the network limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodectl.articles.gangs import device_of, with_torch
from nodectl.articles.programs import Setting, ranks_of, run_setting
from nodectl.common.counting import counted
from nodectl.common.units import MIB, time_text
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Conditions, Measurement, MeasurementKind, Unit
from nodectl.model.status import Status
from nodectl.probes.base import Amount, Note, Probe, ProbeOptions, ProbeResult, host_finding, spread
from nodectl.probes.budget import fit, given_up, marked
from nodectl.probes.endpoints import Endpoint
from nodectl.transport.base import Transport

NAME = "training"
# importing torch, meeting, the first steps
_START_S = 10.0
# fewer steps than this may not show that it learns
_LEARNS_STEPS = 8
_BYTES_PER_PARAMETER = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """A transformer and what it is fed; `batch` is per rank."""

    layers: int
    d_model: int
    heads: int
    batch: int
    seq: int


# gradients, and what feeds them: much to send for little to compute, so that the network is what limits
_DEFAULT_BYTES = {"cpu": 8 * MIB, "cuda": 256 * MIB}
_FEED = {"cpu": (4, 4), "cuda": (32, 32)}
_LARGE_BYTES = 32 * MIB
# widths are multiples of these: a head of a large model has one such width, small models have four heads
_SMALL_WIDTH, _WIDTH, _SMALL_HEADS = 16, 64, 4


def shape_for(device: str, gradient_bytes: int | None = None) -> Shape:
    """Return a model of about that many bytes of gradients."""
    wanted = gradient_bytes or _DEFAULT_BYTES[device]
    large = wanted >= _LARGE_BYTES
    layers, width = (12, _WIDTH) if large else (2, _SMALL_WIDTH)
    # attention has 4, the feed-forward part 8 matrices of d_model squared
    d_model = max(1, round((wanted / _BYTES_PER_PARAMETER / layers / 12) ** 0.5 / width)) * width
    batch, seq = _FEED[device]
    return Shape(layers, d_model, d_model // _WIDTH if large else _SMALL_HEADS, batch, seq)


@dataclass(frozen=True, slots=True)
class TrainingOptions(ProbeOptions):
    """`gradient_bytes` is about what a step sends; it fixes the size of the model."""

    gradient_bytes: int | None = None


def run_training(transport: Transport, hosts: Sequence[Host], options: TrainingOptions, note: Note) -> ProbeResult:
    """Measure the samples per second of all ranks together; a rank a GPU, one a host without GPUs.

    The model, its data and the seed are the same on the same kind of device, so that two runs differ by their network
    and hosts alone.
    """
    ready, findings = with_torch(transport, hosts, NAME, options)
    if not ready:
        return ProbeResult(findings=tuple(findings))
    options, amount = fit(PROBE, options)
    device = device_of(ready)
    ranks, shape = ranks_of(ready, device), shape_for(device, options.gradient_bytes)
    note(
        f"{NAME}: {counted(sum(ranks), 'rank')} on {counted(len(ready), 'host')}, {device}, "
        f"{time_text(_cost_s(amount))} or more{given_up(options)}"
    )
    # every step has the same samples: its loss must fall, however few the steps are
    given = {
        "layers": shape.layers,
        "d-model": shape.d_model,
        "heads": shape.heads,
        "batch": shape.batch,
        "seq": shape.seq,
        "samples": shape.batch * sum(ranks),
        "seconds": amount.repetitions * amount.duration_s,
        "seed": 1,
        "dropout": 0,
        "lr": 1e-4,
        "log-every": 10**6,
    }
    arguments = ("--no-resume", *(f"--{name}={value}" for name, value in given.items()))
    setting = Setting("all", ranks, arguments, sum(ranks))
    outcome = run_setting(transport, ready, "transformer", setting, device, options, NAME)
    if outcome.summary is None:
        refused = host_finding(NAME, ready[0].host.name, Status.FAILED, outcome.why)
        return ProbeResult(findings=outcome.findings or (refused,))
    return marked(_result(ready, outcome.summary), options)


def _cost_s(amount: Amount) -> float:
    return _START_S + amount.repetitions * amount.duration_s


def _result(ready: Sequence[Endpoint], summary: Mapping[str, Any]) -> ProbeResult:
    rate, rates = summary["samples_per_s"], summary["samples_per_s_in_parts"]
    conditions = {
        **{name: summary.get(name) for name in ("backend", "precision", "first_loss", "last_loss", "torch", "threads")},
        "ranks": summary["world_size"],
        "batch_size": summary["batch_per_rank"],
        "parameters": summary["params"],
        "gradient_bytes": _BYTES_PER_PARAMETER * summary["params"],
        "device": summary["device_name"],
        "step_ms": summary["median_step_ms"],
        "values_samples_s": rates,
        "interfaces": [endpoint.interface for endpoint in ready],
        "mtu": [endpoint.mtu for endpoint in ready],
    }
    hosts = tuple(endpoint.host.name for endpoint in ready)
    measured = [Measurement(NAME, hosts, rate, "samples/s", "", None, spread(rates, rate), conditions)]
    if joules := summary.get("joule_per_sample"):
        measured.append(Measurement(NAME, hosts, joules, "J/sample", conditions=conditions))
    return ProbeResult(tuple(measured), tuple(_not_learnt(hosts, summary)))


def _not_learnt(names: tuple[str, ...], summary: Mapping[str, Any]) -> list[Finding]:
    """Every step has the same samples: the loss is a number, and falls."""
    first, last = (summary.get(name) for name in ("first_loss", "last_loss"))
    if not (isinstance(first, float) and isinstance(last, float) and math.isfinite(first + last)):
        actual = "the loss is not a number"
    elif last >= first and summary["steps"] >= _LEARNS_STEPS:
        actual = f"the loss does not fall: {first:g} at first, {last:g} at last"
    else:
        return []
    return [Finding(names[0], NAME, Status.FAILED, "loss", expected="falling", actual=actual, hosts=names)]


def _shown(given: Conditions) -> str:
    gradient = given.get("gradient_bytes")
    sized = f"{gradient / 1e6:.1f} MB of gradients" if isinstance(gradient, int) else "?"
    return f"{counted(given.get('ranks'), 'rank')}, {given.get('backend')}, {sized}"


PROBE = Probe(
    name=NAME,
    summary="A short data-parallel training of the reference workload over all hosts.",
    run=run_training,
    options=TrainingOptions,
    results=MeasurementKind(
        units=(Unit("samples/s"), Unit("J/sample", lower_is_better=True)),
        identity=(
            *("backend", "ranks", "interfaces", "threads", "device", "batch_size", "gradient_bytes"),
            *("precision", "rate"),
        ),
        places=("interfaces",),
        shown=_shown,
    ),
    usual=Amount(repetitions=5, duration_s=2.0),
    least=Amount(repetitions=2, duration_s=0.5),
    cost_s=_cost_s,
    in_a_trial=TrainingOptions(duration_s=1.0, repetitions=2),
    between_hosts=True,
    has_ranks=True,
    listed=False,
    feels=("sysctl", "limits", "nic", "gpu", "nccl"),
)
