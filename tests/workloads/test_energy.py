"""The energy of a training by NVML's counter, on a counter that is none: what counts, and what tells nothing."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from nodectl.common.resources import payload_dir
from tests.torch_venv import torch_venv

PARTS = """
import ctypes, json, sys, time, types
sys.path.insert(0, sys.argv[1])
import torch
from nodectl.workloads import usage

asked = []
class Nvml:
    value = 0
    def nvmlInit_v2(self): return 0
    def nvmlDeviceGetHandleByUUID(self, uuid, handle):
        asked.append(uuid.decode())
        return 0
    def nvmlDeviceGetTotalEnergyConsumption(self, handle, out):
        out._obj.value = Nvml.value
        return 0
kept, ctypes.CDLL = ctypes.CDLL, lambda name: Nvml()
torch.cuda.get_device_properties = lambda device: types.SimpleNamespace(uuid="abc")
torch.cuda.synchronize = lambda device: None
gpu = torch.device("cuda", 0)
told = {"cpu": usage.Energy(torch.device("cpu")).joules()}
Nvml.value = 1500
told["gpu"] = usage.Energy(gpu).joules()
def missing(name): raise OSError(name)
ctypes.CDLL = missing
told["no driver"] = usage.Energy(gpu).joules()
ctypes.CDLL = lambda name: Nvml()
clock = usage.Clock(gpu, 6)
for step in range(6):
    if step == 4:  # an evaluation between two steps is no part of them
        Nvml.value += 1_000_000
        time.sleep(0.1)
    clock.start()
    Nvml.value += 10_000
    clock.stop(2, 0.0)
told["joules"], told["warmup"] = clock.joules, clock.warmup
one = types.SimpleNamespace(device=torch.device("cpu"), world_size=1, mean=lambda value: float(value))
two = types.SimpleNamespace(device=torch.device("cpu"), world_size=2, mean=lambda value: float(value) / 2)
told["a sample"] = usage.Usage(one, "bf16").joule_per_sample(clock)
told["one of two tells"] = usage.Usage(two, "bf16").joule_per_sample(clock)
told["asked"] = sorted(set(asked))
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told() -> Any:
    argv = [f"{torch_venv()}/bin/python", "-c", PARTS, str(payload_dir().parent.parent)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_counter_is_read_in_joules_by_the_gpus_own_id(told: Any) -> None:
    assert told["gpu"] == 1.5 and told["asked"] == ["GPU-abc"]


def test_what_cannot_tell_is_no_zero(told: Any) -> None:
    assert [told[name] for name in ("cpu", "no driver")] == [None] * 2


def test_steps_after_the_warm_up_count_and_what_is_between_does_not(told: Any) -> None:
    assert told["warmup"] == 3 and told["joules"] == 30.0
    assert told["a sample"] == 30.0 / 6 and told["one of two tells"] is None
