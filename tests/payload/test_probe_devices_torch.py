"""The GPU probes' programs with torch: on processors for real, else with a fake of torch.cuda, and said so."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nodectl.common.resources import payload_dir
from nodectl.payload.common.frames import texts
from tests.torch_venv import torch_venv

HERE = Path(__file__).parent
QUICK = ("--seconds=0.002", "--runs=2", "--deadline=120")
Events = list[dict[str, Any]]


def run(name: str, *args: str, fake_gpus: int = 0, status: int = 0) -> Events:
    environment = dict(os.environ)
    if fake_gpus:
        environment["PYTHONPATH"] = str(HERE / "fake_cuda")
        environment["NODECTL_FAKE_GPUS"] = str(fake_gpus)
        environment["NODECTL_FAKE_PAYLOAD"] = str(payload_dir().parent)
    program = (str(payload_dir() / "run.py"), f"probes.device.{name}")
    argv = [f"{torch_venv()}/bin/python", "-B", *program, "measure", *QUICK, *args]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=200, check=False, env=environment)
    assert done.returncode == status, done.stdout + done.stderr
    return [json.loads(text) for text in texts(done.stdout)]


def of(events: Events, kind: str) -> Events:
    return [each for each in events if each["event"] == kind]


PARTS = """
import json, sys, types
sys.path.insert(0, sys.argv[1])
import torch
from payload.probes.device import copies, devices, gemm, matmul
from payload.probes.device.cuda import Cuda

torch.set_num_threads(1)
told = {}
cuda = Cuda(torch)
choice = matmul.Choice((128, 96, 64), "nt")
for name in ("fp32", "bf16", "fp8"):
    bench = matmul.Bench(cuda, name, None, 1 << 28)
    given = bench.operands(choice, 0)
    right = bench.product(given)
    hurt = right.clone()
    hurt[0, 3], hurt[127, 95] = hurt[0, 3] + 40.0, float("nan")
    told[name] = [bench.check(given, right)[:2], bench.check(given, hurt)[:2]]
hurt = right.clone()
hurt[0, 3] = float("nan")
told["no number"] = bench.check(given, hurt)[1:]
bench = matmul.Bench(cuda, "fp32", None, 1 << 28)
told["again"] = bool((bench.operands(choice, 1).a == bench.operands(choice, 1).a).all())
told["other"] = bool((bench.operands(choice, 1).a == bench.operands(choice, 2).a).all())
many = bench.operands(choice, 0)
told["normal"] = [float(many.a.mean()), float(many.a.std())]
small = matmul.Bench(cuda, "fp32", None, 3 << 20)
told["within"] = small.search(0.01).shape
found = small.measure(matmul.Choice((256, 256, 256), "nn"), 0.01, 3, lambda: None)
told["found"] = [len(found.rates), min(found.rates) > 0, found.wrong, found.changed, found.sets]

one, other = copies.pattern(torch, "cpu", 1 << 20, 1), copies.pattern(torch, "cpu", 1 << 20, 2)
bad = one.clone()
bad[5] ^= 1
bad[(1 << 20) - 1] ^= 128
told["bytes"] = [copies.differing(torch, one, one), copies.differing(torch, one, bad)]
told["patterns"] = copies.differing(torch, one, other) > (1 << 19)
tried = []
def work(size):
    tried.append(size)
    if size > copies.LEAST_BYTES:
        raise RuntimeError("CUDA out of memory. Tried to allocate")
    return size
told["halved"] = [copies.halving(4 * copies.LEAST_BYTES, work), len(tried)]
try:
    copies.halving(64 << 20, lambda size: 1 / 0)
except ZeroDivisionError:
    told["others pass"] = True

class Cpu(Cuda):
    def device(self, gpu): return torch.device("cpu")
    def stream(self, gpu): return gpu
    def sync(self, *gpus): pass
class Lossy(copies.Pair):
    def copy(self):
        self.target.copy_(self.source)
        self.target[77] += 1
pair = Lossy(Cpu(torch), 0, 1, 1 << 20)
told["lossy"] = copies.between(Cpu(torch), [pair], 0.001, 1).wrong

calls = []
def as_torch_2_1(a, b, *, bias=None, out_dtype=None, scale_a=None, scale_b=None, scale_result=None):
    calls.append(out_dtype)
    return (a.float() @ b.float()).to(out_dtype), None
kept, torch._scaled_mm = torch._scaled_mm, as_torch_2_1
old = matmul.Bench(cuda, "fp8", None, 1 << 28)
told["torch 2.1"] = [old.refusal(), *old.check(given, old.product(given))[1:2], len(calls)]
def as_of_a_4090(*given, **words):
    raise RuntimeError("torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0")
torch._scaled_mm = as_of_a_4090
told["refused"] = matmul.Bench(cuda, "fp8", None, 1 << 28).refusal()
def broken(*given, **words):
    raise RuntimeError("CUDA error: an illegal memory access was encountered")
torch._scaled_mm = broken
try:
    matmul.Bench(cuda, "fp8", None, 1 << 28).refusal()
except RuntimeError as error:
    told["broken"] = str(error)
torch._scaled_mm = kept

one, other = (gemm.digest(matmul.Bench(cuda, "fp32", None, 0).operands(choice, seed).a) for seed in (1, 2))
told["digests"] = one == gemm.digest(bench.operands(choice, 1).a), one == other

class Product:
    # if hurt, every third result has one wrong bit
    def __init__(self, hurt): self.hurt, self.calls = hurt, 0
    def __call__(self, given):
        self.calls += 1
        out = torch.full((4, 4), float("nan"))
        out.view(torch.int32)[1, 2] ^= int(self.hurt and self.calls % 3 == 0)
        return out
def repeated(product, runs):
    said = []
    kept, matmul.Bench = matmul.Bench, lambda *_: types.SimpleNamespace(
        refusal=lambda: "", operands=lambda *_, **__: None, product=product)
    options = types.SimpleNamespace(runs=runs, seconds=0.0)
    gemm.repeat(cuda, devices.Device(torch, None, options, lambda **event: said.append(event), lambda: None), "fp32")
    matmul.Bench = kept
    return [said[0]["rounds"], said[0]["changed"]]
told["repeated"] = [repeated(Product(False), 5), repeated(Product(True), 5)]
equal, torch.equal = torch.equal, lambda *_: True
told["blind"] = repeated(Product(True), 2)
torch.equal = equal
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def parts() -> Any:
    """One start of torch for all of them."""
    argv = [f"{torch_venv()}/bin/python", "-B", "-c", PARTS, str(payload_dir().parent)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("part", "told"),
    [
        # a wrong element of a product is found, and rounding is not; what is no number is off by more than any
        *((name, [[8 * 96, 0], [8 * 96, 2]]) for name in ("fp32", "bf16", "fp8")),
        ("no number", [1, float("inf")]),
        # _scaled_mm of torch 2.1 was once refused with an option too many, then taken; twice
        ("torch 2.1", ["", 0, 2]),
        ("again", True),
        ("other", False),
        ("found", [3, True, 0, 0, 4]),
        # every byte of a copy is looked at
        ("bytes", [0, 2]),
        ("patterns", True),
        ("lossy", 1),
        ("halved", [16 << 20, 3]),
        ("others pass", True),
        # a seed gives the same bits, and another one others; a single flipped bit is counted, also of no number
        ("digests", [True, False]),
        ("repeated", [[5, 0], [5, 2]]),
        # a device that compares wrongly is found by the processor
        ("blind", [2, 1]),
    ],
)
def test_parts_of_the_programs(parts: Any, part: str, told: object) -> None:
    assert parts[part] == told


def test_operands_are_normal_and_errors_are_told_from_lacks(parts: Any) -> None:
    mean, deviation = parts["normal"]
    assert abs(mean) < 0.05 and abs(deviation - 1) < 0.05
    assert parts["within"] in ([256, 256, 256], [512, 512, 512])
    assert parts["refused"].endswith("only supported on CUDA devices with compute capability >= 9.0")
    assert parts["broken"].startswith("CUDA error")


def test_products_on_processors() -> None:
    events = run("gemm", "--precisions=fp32,tf32")
    (measured,), (lacks,) = of(events, "measured"), of(events, "lacks")
    assert measured["gpu"] is None and len(measured["rates"]) == 2 and min(measured["rates"]) > 0
    assert measured["wrong"] == 0 and measured["checked"] > 0
    assert (lacks["precision"], lacks["text"]) == ("tf32", "a processor has no tf32")


@pytest.mark.slow
def test_a_repeated_product_has_the_same_bits_in_each_process() -> None:
    one, other = (of(run("gemm", "--mode=bits"), "repeated") for _ in range(2))
    (first,), (second,) = one, other
    assert (first["precision"], first["changed"], second["changed"]) == ("fp32", 0, 0)
    assert first["rounds"] >= 2 and first["digest"] == second["digest"]


@pytest.mark.slow
def test_a_gpu_that_torch_does_not_see_is_an_error_and_processors_do_not_stand_in_for_it() -> None:
    (error,) = run("gemm", "--need=2", status=1)
    assert "sees no GPU of the 2 that are there" in error["text"]


@pytest.mark.slow
def test_pairs_with_a_fake_of_torch_cuda() -> None:
    told = of(run("p2p", fake_gpus=3), "measured")
    assert len(told) == 3 * 3 and all(each["wrong"] == 0 and len(each["rates"]) == 2 for each in told)
    one_way = {(each["gpu"], each["target"]) for each in told if not each["bidirectional"]}
    assert one_way == {(a, b) for a in range(3) for b in range(3) if a != b}
    access = {(each["gpu"], each["target"]): each["peer_access"] for each in told if not each["bidirectional"]}
    assert access == {pair: pair != (0, 1) for pair in access}
    assert {each["peer_access"] for each in told if each["bidirectional"] and each["target"] == 1} == {False}


@pytest.mark.slow
def test_host_memory_with_a_fake_of_torch_cuda() -> None:
    told = of(run("h2d", fake_gpus=1), "measured")
    assert [(each["gpu"], each["to_gpu"], each["place"], each["wrong"]) for each in told] == [
        (0, True, "any", 0),
        (0, False, "any", 0),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "args", "kind"),
    [
        ("gemm", ["--precisions=bf16,fp8"], "measured"),
        ("gemm", ["--mode=bits", "--precisions=bf16"], "repeated"),
        ("hbm", [], "measured"),
    ],
)
def test_all_at_once_with_a_fake_of_torch_cuda(name: str, args: list[str], kind: str) -> None:
    events = run(name, *args, fake_gpus=2)
    told = of(events, kind)
    assert sorted(each["gpu"] for each in told) == [0, 1] and not of(events, "error")
    assert [each["device"] for each in of(events, "devices")[0]["gpus"]] == ["NVIDIA Nothing"] * 2
    if kind == "repeated":
        assert len({each["digest"] for each in told}) == 1 and all(each["changed"] == 0 for each in told)
    elif name == "gemm":
        assert {each["text"] for each in of(events, "lacks")} == {"needs compute capability 8.9, this GPU has 8.0"}
        assert all(each["wrong"] == 0 and each["changed"] == 0 for each in told)
        # both within the same stretch of time
        assert max(each["began"] for each in told) < min(each["ended"] for each in told)
