"""How the GPUs are set and run: modes, clocks and why they are held down, power, temperature."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from nodectl.checks.base import Check, Subject
from nodectl.checks.gpu.rules import Fault, Rule, gpus_of, judged
from nodectl.model.finding import Finding
from nodectl.model.gpus import Gpu
from nodectl.model.status import Status

_COOL = "look at fans, filters, inlet temperature and the heat sink of this GPU (`nvidia-smi -q -d TEMPERATURE`)"
_POWER = "look at the power supplies and their cables, and at the BMC's log (`ipmitool sel list`)"
_GEFORCE = "GeForce"


def _persistence(host: Subject, gpu: Gpu) -> Fault | None:
    wanted = host.wanted.tuning.gpu.persistence if host.wanted else None
    if wanted is not None and gpu.persistence_mode != wanted.value:
        said = "on" if gpu.persistence_mode else "off"
        return Fault(
            Status.FAILED, f"{said}, the tuning says otherwise", "none", "`nodectl provision --tags gpu_settings`"
        )
    return Fault(Status.WARNING, "off") if wanted is None and not gpu.persistence_mode else None


def _compute_mode(host: Subject, gpu: Gpu) -> Fault | None:
    mode = (gpu.compute_mode or "").lower()
    if mode == "default":
        return None
    return Fault(Status.FAILED if mode == "prohibited" else Status.WARNING, gpu.compute_mode or "")


def _mig(host: Subject, gpu: Gpu) -> Fault | None:
    if gpu.mig_mode_pending is not None and gpu.mig_mode_pending != gpu.mig_mode:
        return Fault(Status.WARNING, "a change waits for a reset", "reset GPU")
    if not gpu.mig_mode:
        return None
    mixed = any(other.mig_mode is False for other in gpus_of(host))
    return Fault(Status.FAILED if mixed else Status.WARNING, "on, but not on all GPUs" if mixed else "on")


def _display(host: Subject, gpu: Gpu) -> Fault | None:
    if not gpu.display_active or _GEFORCE in (gpu.name or ""):
        return None
    return Fault(Status.WARNING, "a display is driven by it")


def _temperature(host: Subject, gpu: Gpu) -> Fault | None:
    margin = host.threshold("gpu_temperature_margin_c")
    limit, now = gpu.temperature_slowdown_c, gpu.temperature_c
    if gpu.temperature_limit_margin_c is not None:
        left: float = gpu.temperature_limit_margin_c
    elif limit is not None and now is not None:
        left = limit - now
    else:
        return None
    if left > margin:
        return None
    said = f"{now} °C, {left:g} °C below where it slows down" if left > 0 else f"{now} °C: it slows down"
    return Fault(Status.FAILED if left <= 0 else Status.WARNING, said)


def _memory_temperature(host: Subject, gpu: Gpu) -> Fault | None:
    limit, now = gpu.memory_temperature_max_c, gpu.memory_temperature_c
    if limit is None or now is None or now < limit - host.threshold("gpu_temperature_margin_c"):
        return None
    return Fault(Status.FAILED if now >= limit else Status.WARNING, f"{now} °C, the most is {limit} °C")


def _held_by(name: str, said: str, status: Status) -> Callable[[Subject, Gpu], Fault | None]:
    def fault(host: Subject, gpu: Gpu) -> Fault | None:
        return Fault(status, _with_clock(gpu, said)) if name in (gpu.clock_event_reasons or ()) else None

    return fault


def _with_clock(gpu: Gpu, said: str) -> str:
    if gpu.sm_clock_mhz is None or gpu.sm_clock_max_mhz is None:
        return said
    return f"{said}; SM clock {gpu.sm_clock_mhz} of {gpu.sm_clock_max_mhz} MHz"


def _slowdown(host: Subject, gpu: Gpu) -> Fault | None:
    reasons = gpu.clock_event_reasons or ()
    named = {"hw_thermal_slowdown", "hw_power_brake_slowdown"} & set(reasons)
    if "hw_slowdown" not in reasons or named:
        return None
    return Fault(Status.FAILED, _with_clock(gpu, "the hardware holds its clocks down"))


def _power_cap(host: Subject, gpu: Gpu) -> Fault | None:
    """At work it is the normal end of the clock's rise; an idle GPU under it is held down by something else."""
    if "sw_power_cap" not in (gpu.clock_event_reasons or ()) or gpu.utilization_gpu_percent is None:
        return None
    if gpu.utilization_gpu_percent > host.threshold("gpu_idle_percent"):
        return None
    drawn = f", drawing {gpu.power_draw_w:g} W" if gpu.power_draw_w is not None else ""
    return Fault(Status.WARNING, f"held by the power cap while idle{drawn}")


def _clock(host: Subject, gpu: Gpu) -> Fault | None:
    now, top, busy = gpu.sm_clock_mhz, gpu.sm_clock_max_mhz, gpu.utilization_gpu_percent
    if now is None or top is None or busy is None or busy < host.threshold("gpu_busy_percent"):
        return None
    if now >= top * host.threshold("gpu_clock_percent") / 100:
        return None
    return Fault(Status.WARNING, f"{now} of {top} MHz at {busy} % utilisation")


def _clock_setting(host: Subject, gpu: Gpu) -> Fault | None:
    """As the tuning sets them; without one, as most of its siblings have them."""
    wanted = host.wanted.tuning.gpu.clocks if host.wanted else None
    now = gpu.applications_graphics_clock_mhz
    if wanted is not None:
        top = wanted.value.rpartition(",")[2]
        expected = gpu.graphics_clock_max_mhz or gpu.sm_clock_max_mhz if top == "max" else int(top)
        said = f"{now} MHz, the tuning says {wanted.value}"
        return None if expected is None or now == expected else Fault(Status.FAILED, said)
    siblings = Counter(
        other.applications_graphics_clock_mhz
        for other in gpus_of(host)
        if other.name == gpu.name and other.applications_graphics_clock_mhz is not None
    )
    most, many = siblings.most_common(1)[0]
    if now == most or 2 * many <= siblings.total():
        return None
    return Fault(Status.WARNING, f"{now} MHz, its siblings {most} MHz")


def _power_limit(host: Subject, gpu: Gpu) -> Fault | None:
    wanted = host.wanted.tuning.gpu.power_limit_w if host.wanted else None
    limit = gpu.power_limit_w or 0
    if wanted is not None:
        if abs(limit - wanted.value) < 1:
            return None
        return Fault(Status.FAILED, f"{limit:g} W, the tuning says {wanted.value} W")
    default = gpu.power_limit_default_w
    return None if default is None or limit >= default - 1 else Fault(Status.WARNING, f"{limit:g} W of {default:g} W")


_Q = "nvidia-smi -q"
RULES = (
    Rule(
        "gpu_persistence", "persistence_mode", _Q, "warning: off; failed: not as the tuning sets it",
        "persistence mode on", "start nvidia-persistenced (`systemctl enable --now nvidia-persistenced`)", _persistence,
    ),
    Rule(
        "gpu_compute_mode", "compute_mode", _Q, "prohibited; warning: exclusive to one process", "Default",
        "`nvidia-smi -c DEFAULT`", _compute_mode,
    ),
    Rule(
        "gpu_mig", "mig_mode", _Q, "on for some GPUs only; warning: on, or a change waits", "off",
        "`nvidia-smi -mig 0`, then reset the GPU: jobs over several GPUs need whole ones", _mig,
    ),
    Rule(
        "gpu_display", "display_active", f"{_Q}, of data-centre GPUs", "warning: a display takes memory and time of it",
        "no display", "stop the X or Wayland server there", _display,
    ),
    Rule(
        "gpu_temperature", "temperature_c", _Q, "as hot as where it slows down; warning: nearly",
        "well below its limit", _COOL, _temperature, "drain",
    ),
    Rule(
        "gpu_memory_temperature", "memory_temperature_c", _Q, "the memory as hot as it may be; warning: nearly",
        "well below its limit", _COOL, _memory_temperature, "drain",
    ),
    Rule(
        "gpu_hw_slowdown", "clock_event_reasons", _Q, "the hardware holds the clocks down", "not held down",
        f"{_COOL}; {_POWER}", _slowdown, "drain",
    ),
    Rule(
        "gpu_hw_thermal", "clock_event_reasons", _Q, "the hardware holds the clocks down for heat", "not held down",
        _COOL, _held_by("hw_thermal_slowdown", "the hardware holds its clocks down for heat", Status.FAILED), "drain",
    ),
    Rule(
        "gpu_power_brake", "clock_event_reasons", _Q, "the system's power brake holds the clocks down", "not held down",
        _POWER, _held_by("hw_power_brake_slowdown", "the power brake holds its clocks down", Status.FAILED), "drain",
    ),
    Rule(
        "gpu_sw_thermal", "clock_event_reasons", _Q, "warning: the driver holds the clocks down for heat",
        "not held down", _COOL,
        _held_by("sw_thermal_slowdown", "the driver holds its clocks down for heat", Status.WARNING),
    ),
    Rule(
        "gpu_power_cap", "clock_event_reasons", _Q, "warning: held by the power cap though idle",
        "not held down when idle", "compare `nvidia-smi -q -d POWER` with its siblings; a limit or a sensor is wrong",
        _power_cap,
    ),
    Rule(
        "gpu_clock", "sm_clock_mhz", _Q, "warning: at work, far below its highest clock", "a high clock at work",
        "look at `nvidia-smi -q -d CLOCK,PERFORMANCE`; stuck clocks go with a reset", _clock, "reset GPU",
    ),
    Rule(
        "gpu_clock_setting", "applications_graphics_clock_mhz", _Q,
        "not the tuning's application clocks; warning: not its siblings'", "the tuning's, or the siblings', clocks",
        "`nodectl provision --tags gpu_settings`, or `nvidia-smi -rac`", _clock_setting,
    ),
    Rule(
        "gpu_power_limit", "power_limit_w", _Q, "not the tuning's; warning: below the GPU's default",
        "the tuning's power limit, or the default", "`nvidia-smi -pl WATTS`, or set it in the tuning", _power_limit,
    ),
)  # fmt: skip


def state(host: Subject) -> Iterator[Finding]:
    """Modes, clocks, power and heat."""
    yield from judged(host, RULES)


CHECKS: tuple[Check, ...] = (state,)
ABOUT = tuple(rule.about for rule in RULES)
