"""How the GPUs are set and run: modes, clocks and why they are held down, power, temperature, links to the host."""

from __future__ import annotations

from nodectl.checks.check import Subject, Threshold
from nodectl.checks.gpu.rules import SET_BY_ROLE, Fault, GpuJudgement, by_tuning, gpu_check, gpus_of
from nodectl.facts.board import Pcie
from nodectl.facts.gpus import Gpu
from nodectl.model.status import Status
from nodectl.profiles.gpus import model_of

ORDER = 70

_ROLES = ("gpu_settings",)
_CLOCK_STEP_MHZ = 15
_COOL = "look at fans, filters, inlet temperature and the heat sink of this GPU (`nvidia-smi -q -d TEMPERATURE`)"
_POWER = "look at the power supplies and their cables, and at the BMC's log (`ipmitool sel list`)"


@gpu_check(
    "gpu_persistence",
    "persistence_mode",
    fires="warning: off; failed: not as the tuning sets it",
    expected="persistence mode on",
    remedy="start nvidia-persistenced (`systemctl enable --now nvidia-persistenced`)",
    roles=_ROLES,
)
def _persistence(host: Subject, gpu: Gpu) -> Fault | None:
    if judged := by_tuning(host, gpu, "persistence", gpu.persistence_mode):
        return judged[0]
    # a display keeps the driver loaded
    return None if gpu.persistence_mode or gpu.display_active else Fault(Status.WARNING, "off")


@gpu_check(
    "gpu_compute_mode",
    "compute_mode",
    fires="prohibited, or not as the tuning sets it; warning: exclusive to one process",
    expected="Default, or the tuning's",
    remedy="`nvidia-smi -c DEFAULT`",
    roles=_ROLES,
)
def _compute_mode(host: Subject, gpu: Gpu) -> Fault | None:
    if judged := by_tuning(host, gpu, "compute_mode", gpu.compute_mode):
        return judged[0]
    mode = (gpu.compute_mode or "").lower()
    if mode == "default":
        return None
    return Fault(Status.FAILED if mode == "prohibited" else Status.WARNING, gpu.compute_mode or "")


@gpu_check(
    "gpu_mig",
    "mig_mode",
    fires="on for some GPUs only, or not as the tuning sets it; warning: on, or a change waits",
    expected="off, or as the tuning sets it",
    remedy="`nvidia-smi -mig 0`, then reset the GPU: jobs over several GPUs need whole ones",
    roles=_ROLES,
)
def _mig(host: Subject, gpu: Gpu) -> Fault | None:
    if gpu.mig_mode_pending is not None and gpu.mig_mode_pending != gpu.mig_mode:
        return Fault(Status.WARNING, "a change waits for a reset", "reset GPU")
    if judged := by_tuning(host, gpu, "mig", gpu.mig_mode):
        return judged[0]
    if not gpu.mig_mode:
        return None
    mixed = any(other.mig_mode is False for other in gpus_of(host))
    return Fault(Status.FAILED if mixed else Status.WARNING, "on, but not on all GPUs" if mixed else "on")


# the reasons for which clocks are held down for heat
_HOT = {"hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown"}
GPU_TEMPERATURE_MARGIN_C_LIMIT = Threshold(
    "gpu_temperature_margin_c", 5, "nearer to the slowdown it comes with the next hot day"
)


@gpu_check(
    "gpu_temperature",
    "temperature_c",
    fires="as hot as where it slows down; warning: nearly",
    expected="well below its limit",
    remedy=_COOL,
    action="drain",
    thresholds=(GPU_TEMPERATURE_MARGIN_C_LIMIT,),
)
def _temperature(host: Subject, gpu: Gpu) -> Fault | None:
    margin = host.threshold(GPU_TEMPERATURE_MARGIN_C_LIMIT)
    limit, now = gpu.temperature_slowdown_c, gpu.temperature_c
    if gpu.temperature_limit_margin_c is not None:
        # from Hopper on it slows down this far beyond T.Limit: -2
        left: float = gpu.temperature_limit_margin_c - (gpu.temperature_slowdown_margin_c or 0)
    elif limit is not None and now is not None:
        left = limit - now
    else:
        return None
    if left > margin:
        return None
    if left <= 0 and gpu.clock_event_reasons is not None and not set(gpu.clock_event_reasons) & _HOT:
        return Fault(Status.WARNING, f"{now} °C, at its limit by T.Limit, but no clock is held down for heat")
    if left <= 0:
        return Fault(Status.FAILED, f"{now} °C: it slows down")
    return Fault(Status.WARNING, f"{now} °C, {left:g} °C below where it slows down")


@gpu_check(
    "gpu_memory_temperature",
    "memory_temperature_c",
    fires="the memory as hot as it may be; warning: nearly",
    expected="well below its limit",
    remedy=_COOL,
    action="drain",
    thresholds=(GPU_TEMPERATURE_MARGIN_C_LIMIT,),
)
def _memory_temperature(host: Subject, gpu: Gpu) -> Fault | None:
    limit, now = gpu.memory_temperature_max_c, gpu.memory_temperature_c
    if limit is None or now is None or now < limit - host.threshold(GPU_TEMPERATURE_MARGIN_C_LIMIT):
        return None
    return Fault(Status.FAILED if now >= limit else Status.WARNING, f"{now} °C, the most is {limit} °C")


def _held(check: str, reason: str, actual: str, remedy: str, action: str) -> GpuJudgement:

    @gpu_check(check, "clock_event_reasons", fires=actual, expected="not held down", remedy=remedy, action=action)
    def fault(host: Subject, gpu: Gpu) -> Fault | None:
        reasons = set(gpu.clock_event_reasons or ())
        if reason not in reasons or (reason == _ANY_HARDWARE and reasons & _NAMED_HARDWARE):
            return None
        known = gpu.sm_clock_mhz is not None and gpu.sm_clock_max_mhz is not None
        clock = f"; SM clock {gpu.sm_clock_mhz} of {gpu.sm_clock_max_mhz} MHz" if known else ""
        return Fault(Status.WARNING if action == "none" else Status.FAILED, f"{actual}{clock}")

    return fault


# the hardware gives this reason next to the one that it knows
_ANY_HARDWARE, _NAMED_HARDWARE = "hw_slowdown", {"hw_thermal_slowdown", "hw_power_brake_slowdown"}
_BY_HARDWARE, _BY_DRIVER = "the hardware holds its clocks down", "the driver holds its clocks down for heat"
HELD = (
    _held("gpu_hw_slowdown", _ANY_HARDWARE, _BY_HARDWARE, f"{_COOL}; {_POWER}", "drain"),
    _held("gpu_hw_thermal", "hw_thermal_slowdown", f"{_BY_HARDWARE} for heat", _COOL, "drain"),
    _held("gpu_power_brake", "hw_power_brake_slowdown", "the power brake holds its clocks down", _POWER, "drain"),
    _held("gpu_sw_thermal", "sw_thermal_slowdown", _BY_DRIVER, _COOL, "none"),
)


GPU_IDLE_PERCENT_LIMIT = Threshold("gpu_idle_percent", 5, "utilisation up to which a GPU has nothing to do")
GPU_BUSY_PERCENT_LIMIT = Threshold("gpu_busy_percent", 90, "utilisation from which its clock should be high")
GPU_CLOCK_PERCENT_LIMIT = Threshold(
    "gpu_clock_percent", 50, "of the highest clock: power caps alone hold a GPU at more than that"
)


@gpu_check(
    "gpu_clock",
    "sm_clock_mhz",
    fires="warning: at work, far below its highest clock",
    expected="a high clock at work",
    remedy="look at `nvidia-smi -q -d CLOCK,PERFORMANCE`; stuck clocks go with a reset",
    action="reset GPU",
    thresholds=(GPU_BUSY_PERCENT_LIMIT, GPU_CLOCK_PERCENT_LIMIT),
)
def _clock(host: Subject, gpu: Gpu) -> Fault | None:
    now, top, busy = gpu.sm_clock_mhz, gpu.sm_clock_max_mhz, gpu.utilization_gpu_percent
    if now is None or top is None or busy is None or busy < host.threshold(GPU_BUSY_PERCENT_LIMIT):
        return None
    if now >= top * host.threshold(GPU_CLOCK_PERCENT_LIMIT) / 100:
        return None
    return Fault(Status.WARNING, f"{now} of {top} MHz at {busy} % utilisation")


@gpu_check(
    "gpu_clock_setting",
    "graphics_clock_mhz",
    fires="above the tuning's clock; warning: idle and below it",
    expected="the tuning's clock",
    remedy=f"{SET_BY_ROLE}, or `nvidia-smi -rac`",
    roles=_ROLES,
)
def clock_setting(host: Subject, gpu: Gpu) -> Fault | None:
    """Compare with the clock that the tuning locks, which no report shows."""
    wanted = host.wanted.tuning.gpu.clocks if host.wanted else None
    now, top = gpu.graphics_clock_mhz or 0, gpu.graphics_clock_max_mhz or 0
    if wanted is not None and not gpu.display_active:
        lock = top if wanted.value == "max" else int(wanted.value.rpartition(",")[2])
        actual = f"{now} MHz, the tuning locks {lock} MHz"
        if now > lock + _CLOCK_STEP_MHZ:
            return Fault(Status.FAILED, actual)
        is_free = now < lock - _CLOCK_STEP_MHZ and "idle" in (gpu.clock_event_reasons or ())
        return Fault(Status.WARNING, f"idle at {actual}") if is_free else None
    return None


@gpu_check(
    "gpu_power_limit",
    "power_limit_w",
    fires="not the tuning's; warning: below the GPU's default",
    expected="the tuning's power limit, or the default",
    remedy="`nvidia-smi -pl WATTS`, or set it in the tuning",
    roles=_ROLES,
)
def _power_limit(host: Subject, gpu: Gpu) -> Fault | None:
    limit = gpu.power_limit_w or 0
    if judged := by_tuning(host, gpu, "power_limit_w", round(limit)):
        return judged[0]
    default = gpu.power_limit_default_w
    return None if default is None or limit >= default - 1 else Fault(Status.WARNING, f"{limit:g} W of {default:g} W")


_SLOT = "drain, reseat the GPU, then its riser; if it stays so, have the board looked at (`lspci -vvv -s BUS`: LnkSta)"


@gpu_check(
    "gpu_pcie_width",
    "pcie_width_current",
    fires="fewer lanes than its slot has, or than its siblings; warning: fewer than 8, and nothing tells of the slot",
    expected="all lanes that the slot has",
    remedy=_SLOT,
    action="drain",
    reads=("pcie", "lab"),
)
def width(host: Subject, gpu: Gpu) -> Fault | None:
    """Compare the link's width with the slot's lanes, not the chip's: some cards and slots have 8 of 16 lanes."""
    now, top = gpu.pcie_width_current or 0, max(gpu.pcie_width_max or 0, _published(gpu)[1])
    if now >= top:
        return None
    slot = _slot_width(host, gpu)
    if slot is not None:
        return None if now >= slot else Fault(Status.FAILED, f"x{now}; its slot has x{slot}, the GPU x{top}")
    best = max((other.pcie_width_current or 0 for other in gpus_of(host) if other.name == gpu.name), default=0)
    model = model_of(gpu.name or "")
    if now < best or (model is not None and model.is_module):
        return Fault(Status.FAILED, f"x{now} of x{top}")
    if now >= _USUAL_SLOT:
        return None
    remedy = "`sudo lspci -vvv` tells what the slot above has (LnkCap): see `nodectl sudoers`"
    return Fault(Status.WARNING, f"x{now} of x{top}; what its slot has is not known", "none", remedy)


_USUAL_SLOT = 8


def _slot_width(host: Subject, gpu: Gpu) -> int | None:
    pcie = host.fact("pcie", Pcie)
    if pcie is None or not gpu.bus_id or host.borrows("sys"):
        return None
    above = pcie.above(gpu.bus_id)
    return next((link.width_max for link in pcie.links if above and link.address == above[0]), None)


@gpu_check(
    "gpu_pcie_gen",
    "pcie_gen_current",
    fires="slower than it can while at work, or than its siblings at best; warning: the slot is older than the GPU",
    expected="the best generation at work",
    remedy=_SLOT,
    action="drain",
    thresholds=(GPU_IDLE_PERCENT_LIMIT,),
)
def generation(host: Subject, gpu: Gpu) -> Fault | None:
    """Require full link speed of a busy GPU, since an idle one lowers it; the possible speed is always judged."""
    now, able = gpu.pcie_gen_current or 0, _able_gen(gpu)
    busy = (gpu.utilization_gpu_percent or 0) > host.threshold(GPU_IDLE_PERCENT_LIMIT)
    if busy and now < able:
        return Fault(Status.FAILED, f"generation {now} of {able} while at work")
    best = max((_able_gen(other) for other in gpus_of(host) if other.name == gpu.name), default=0)
    if able < best:
        return Fault(Status.FAILED, f"at most generation {able}, its siblings {best}")
    own = gpu.pcie_gen_device_max or _published(gpu)[0]
    if 0 < able < own:
        slot = gpu.pcie_gen_host_max or "no more"
        return Fault(Status.WARNING, f"at most generation {able}: the slot has {slot}, the GPU {own}", "none")
    return None


def _published(gpu: Gpu) -> tuple[int, int]:
    model = model_of(gpu.name or "")
    return (model and model.pcie) or (0, 0)


def _able_gen(gpu: Gpu) -> int:
    """Return the PCIe generation that GPU and slot share: with some drivers the report's Max is the GPU's alone."""
    generations = (gpu.pcie_gen_max, gpu.pcie_gen_device_max, gpu.pcie_gen_host_max)
    return min((generation for generation in generations if generation is not None), default=0)


GPU_PCIE_REPLAYS_FIRST_LIMIT = Threshold(
    "gpu_pcie_replays_first", 10_000, "without an earlier reading only a clear number counts"
)

GPU_PCIE_REPLAYS_LIMIT = Threshold("gpu_pcie_replays", 100, "a link that changes its speed replays a few packets")


@gpu_check(
    "gpu_pcie_replays",
    "pcie_replay_counter",
    fires="warning: packets sent again since the last reading",
    expected="few packets sent again",
    remedy=_SLOT,
    thresholds=(GPU_PCIE_REPLAYS_FIRST_LIMIT, GPU_PCIE_REPLAYS_LIMIT),
)
def _replays(host: Subject, gpu: Gpu) -> Fault | None:
    grown = host.growth(f"gpu.{gpu.uuid}.pcie_replays", gpu.pcie_replay_counter or 0)
    limit = host.threshold(GPU_PCIE_REPLAYS_FIRST_LIMIT if grown.by is None else GPU_PCIE_REPLAYS_LIMIT)
    return Fault(Status.WARNING, grown.text) if grown.change > limit else None
