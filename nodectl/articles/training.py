"""The training measurement: a short real data-parallel training of the reference workload over the hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median

from nodectl.articles.gangs import Turns, common, measure, rank_members
from nodectl.common.counting import counted
from nodectl.common.units import MIB
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Conditions, Measurement, MeasurementKind, Unit
from nodectl.model.status import Status
from nodectl.probes.base import Amount, Note, Probe, ProbeOptions, ProbeResult, host_finding, spread
from nodectl.probes.endpoints import Endpoint
from nodectl.probes.events import Event
from nodectl.probes.gang import Member, Played
from nodectl.transport.base import Transport

NAME = "training"
# importing torch, meeting, the first steps
_START_S = 10.0
# how long one step may take before a rank gives up on the others
_STEP_S = 180.0
_SEED = 1
# fewer steps than this may not show it yet
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


def run_training(
    transport: Transport, hosts: Sequence[Host], options: TrainingOptions, note: Note, turns: Turns | None = None
) -> ProbeResult:
    """Measure the samples per second of all ranks together; a rank a GPU, one a host without GPUs.

    The model, its data and the seed are the same on the same kind of device, so that two runs differ by their network
    and hosts alone. With `turns` a measurement for each of their settings, in one run.
    """
    return measure(
        transport,
        hosts,
        PROBE,
        options,
        note,
        turns,
        about=lambda ready, device: counted(sum(_ranks_on(endpoint, device) for endpoint in ready), "rank"),
        members=partial(_members, options),
        results=partial(_results, options, len(turns.settings) if turns else 1),
    )


def _cost_s(amount: Amount) -> float:
    """Return the seconds of the measurement at least: a window has one step, however long that takes."""
    return _START_S + amount.rounds * amount.repetitions * amount.duration_s


def _ranks_on(endpoint: Endpoint, device: str) -> int:
    return endpoint.gpus if device == "cuda" else 1


def _members(options: TrainingOptions, ready: Sequence[Endpoint], device: str, amount: Amount) -> list[Member]:
    given = {
        "windows": amount.repetitions * amount.rounds,
        "seconds": amount.duration_s,
        "seed": _SEED,
        **{name.replace("_", "-"): value for name, value in asdict(shape_for(device, options.gradient_bytes)).items()},
    }
    ranks = [_ranks_on(endpoint, device) for endpoint in ready]
    return rank_members(ready, ranks, "articles.training", device, options, given, _STEP_S)


def _results(
    options: TrainingOptions, settings: int, ready: Sequence[Endpoint], device: str, played: Sequence[Played]
) -> ProbeResult:
    """Return a measurement for each setting if every rank came to its end, and findings on what they came to."""
    trained = [(event, player.member.host.name) for player in played for event in player.events.of("trained")]
    ranks = [event for event, _ in trained]
    if len(ranks) != sum(_ranks_on(endpoint, device) for endpoint in ready):
        return ProbeResult()
    shape = shape_for(device, options.gradient_bytes)
    started = [event for player in played for event in player.events.of("ready")]
    conditions = {
        "backend": ("nccl" if device == "cuda" else "gloo") if len(ranks) > 1 else "none",
        "ranks": len(ranks),
        "batch_size": shape.batch,
        "seq": shape.seq,
        "parameters": ranks[0]["parameters"],
        "gradient_bytes": _BYTES_PER_PARAMETER * ranks[0]["parameters"],
        "precision": common(ranks, "precision"),
        "seed": _SEED,
        "first_loss": ranks[0]["first_loss"],
        "last_loss": ranks[0]["last_loss"],
        "weights_equal": len({event["weights"] for event in ranks}) == 1,
        "torch": common(started, "torch"),
        "nccl": common(started, "nccl"),
        "nccl_env": common(started, "nccl_env") if device == "cuda" else None,
        "device": common(started, "device"),
        "threads": common(started, "threads"),
        "interfaces": [endpoint.interface for endpoint in ready],
        "mtu": [endpoint.mtu for endpoint in ready],
    }
    names = tuple(endpoint.host.name for endpoint in ready)
    # a window is as slow as its slowest rank
    slowest_s = [max(times) for times in zip(*(event["seconds"] for event in ranks), strict=True)]
    windows = list(zip(ranks[0]["steps"], slowest_s, strict=True))
    samples = shape.batch * len(ranks)
    measured = [_measurement(windows[turn::settings], names, samples, conditions) for turn in range(settings)]
    measured += _energy([event["joules"] for event in ranks], windows, settings, names, samples, conditions)
    return ProbeResult(tuple(measured), (*_unequal(trained), *_not_learnt(names, ranks)))


def _measurement(
    windows: Sequence[tuple[int, float]], names: tuple[str, ...], samples: int, conditions: dict[str, object]
) -> Measurement:
    """Return the measurement of the steps and seconds of each window; `samples` are those of a step."""
    values = [samples * steps / seconds for steps, seconds in windows]
    value = median(values)
    figures = {
        "repetitions": len(values),
        "values_samples_s": [round(rate, 3) for rate in values],
        "steps": [steps for steps, _ in windows],
        "step_ms": median(1e3 * seconds / steps for steps, seconds in windows),
    }
    return Measurement(NAME, names, value, "samples/s", "", None, spread(values, value), {**figures, **conditions})


def _energy(
    told: Sequence[Sequence[float | None]],
    windows: Sequence[tuple[int, float]],
    settings: int,
    names: tuple[str, ...],
    samples: int,
    conditions: dict[str, object],
) -> list[Measurement]:
    """Return the joules of all ranks' GPUs for a sample, by setting; [] unless each rank tells those of each window."""
    spent = [sum(joules for joules in ranks if joules) for ranks in zip(*told, strict=True) if all(ranks)]
    if len(spent) < len(windows):
        return []
    each = [joules / samples / steps for joules, (steps, _) in zip(spent, windows, strict=True)]
    return [
        Measurement(NAME, names, median(values), "J/sample", "", None, spread(values, median(values)), conditions)
        for values in (each[turn::settings] for turn in range(settings))
    ]


def _unequal(trained: Sequence[tuple[Event, str]]) -> list[Finding]:
    """Ranks that start equal and take the same gradients end equal, bit for bit."""
    counts = Counter(event["weights"] for event, _ in trained)
    if len(counts) == 1:
        return []
    usual, most = counts.most_common(1)[0]
    hosts = tuple(dict.fromkeys(host for _, host in trained))
    if 2 * most <= len(trained):
        actual = "the ranks' weights differ after the training, and none are those of most"
        return [Finding(hosts[0], NAME, Status.FAILED, "weights", actual=actual, hosts=hosts)]
    odd = dict.fromkeys(host for event, host in trained if event["weights"] != usual)
    remedy = "run `nodectl probe nccl` over pairs with it, and look at its memory errors"
    return [
        host_finding(NAME, host, Status.FAILED, "its weights differ from the others' after the training", remedy)
        for host in odd
    ]


def _not_learnt(names: tuple[str, ...], ranks: Sequence[Event]) -> list[Finding]:
    """Every step has the same samples: the loss is a number, and falls."""
    first, last = ranks[0]["first_loss"], ranks[0]["last_loss"]
    if not all(event["finite"] for event in ranks) or first is None or last is None:
        actual = "the loss is not a number"
    elif last >= first and sum(ranks[0]["steps"]) >= _LEARNS_STEPS:
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
