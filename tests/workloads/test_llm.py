"""The language model: its size, its attention, its text, what it refuses; checked in one process that has torch."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nodectl import workloads
from tests.torch_venv import torch_venv

FOLDER = Path(next(iter(workloads.__path__)))
SCRIPT = """
import contextlib, io, json, pathlib, sys
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
import decoder, llm, parallel, ranks, texts
from feed import Feed
from options import parse
from program import Training

work = llm.LanguageModel()
folder = pathlib.Path(sys.argv[1])
told = {}

def refused(*options, world=1):
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            settings = parse(work, [*options, "--device=cpu"])
            parallel.check(work, settings, world)
    except SystemExit as error:
        return said.getvalue() + str(error)
    return ""

def meta(*options):
    with torch.device("meta"):
        model = work.model(parse(work, options))
    return sum(each.numel() for each in model.parameters())

# each form of the model: told by its sizes, and counted
article = ["--preset=article-4"]
forms = [[], ["--mlp=plain"]]
told["sizes"] = [work.sizes(parse(work, [*article, *each])).parameters for each in forms]
told["meta"] = [meta(*article, *each) for each in forms]
told["count"] = json.loads(llm.count(parse(work, [*article, "--count"])))

TINY = ["--layers=2", "--hidden=32", "--intermediate=64", "--heads=4", "--seq=24", "--device=cpu", "--batch=4"]
def begun(*options):
    torch.manual_seed(0)
    settings = parse(work, [*TINY, *options])
    return Training(work, settings, ranks.Ranks(0, 1, 0, torch.device("cpu"), "none", ("here",)))

# what a forward pass leaves behind, and what forward and backward compute
def cost(mode):
    training = begun("--seq=64", f"--recompute={mode}")
    part = training.data.batch([0, 1, 2, 3], 0)
    with torch.profiler.profile(profile_memory=True) as profile:
        loss = work.loss(training.strategy.model(*part[:-1]), part)
    kept = sum(event.self_cpu_memory_usage for event in profile.events())
    loss.backward()
    flat = torch.cat([each.grad.flatten() for each in training.strategy.bare.parameters()])
    with FlopCounterMode(display=False) as counter:
        work.loss(training.strategy.model(*part[:-1]), part).backward()
    return kept, counter.get_total_flops(), flat
costs = {mode: cost(mode) for mode in ("none", "full")}
told["kept"] = {mode: each[0] for mode, each in costs.items()}
told["flops"] = {mode: each[1] for mode, each in costs.items()}
told["recomputed"] = bool(torch.equal(costs["none"][2], costs["full"][2]))

training = begun("--mlp=plain")
part = training.data.batch([0, 1, 2, 3], 0)
with FlopCounterMode(display=False) as counter:
    work.loss(training.strategy.model(*part[:-1]), part).backward()
told["counted"] = counter.get_total_flops()
told["told"] = 4 * work.flops_per_sample(training.settings, training.strategy.bare)

def losses(*options):
    training = begun("--seq=32", "--batch=16", "--lr=0.01", *options)
    found = [float(training.train_step(parts)) for _, parts in Feed(training.data, training.settings,
             training.group.device).steps(training.plan())]
    return found, training.data.words
told["synthetic"] = losses("--samples=640", "--epochs=1")
told["folder"] = losses(f"--text={folder}", "--epochs=40")
one, two = (texts.read(None, 32, 64, 5).batch([7, 3], 0) for _ in range(2))
told["repeated"] = all(torch.equal(*each) for each in zip(one, two))
told["next"] = bool(torch.equal(one[0][:, 1:], one[1][:, :-1]))
told["seeded"] = bool(torch.equal(one[0], texts.read(None, 32, 64, 6).batch([7, 3], 0)[0]))
told["read"] = bytes(texts.read(folder, 8, 1, 0).batch([0], 0)[0][0].tolist()).decode()

told["refused"] = {
    "heads": refused("--preset=article-4", "--tensor=3", world=3),
    "mixed": refused("--preset=article-4", "--tensor=3", "--stages=3", world=3),
    "layers": refused("--layers=4", "--stages=3", world=3),
    "ddp": refused("--tensor=2", "--parallel=ddp", world=4),
    "hosts": refused("--parallel=dataparallel", world=2),
    "copied": refused("--parallel=dataparallel", "--recompute=full"),
    "zero": refused("--parallel=zero3", "--stages=2", world=2),
    "held out": refused("--stages=2", "--held-out=2", world=2),
    "alone": refused("--parallel=fsdp2"),
    "row 4": refused("--preset=article-4-row-4", world=3),
    "row 3": refused("--preset=article-4-row-3", world=3),
    "two by two": refused("--tensor=2", "--stages=2", world=4),
}
def ended(function, *arguments):
    try:
        function(*arguments)
    except SystemExit as error:
        return str(error)
    return ""
told["refused"]["empty"] = ended(texts.read, folder / "none", 8, 1, 0)
told["refused"]["short"] = ended(texts.read, folder, 100000, 1, 0)
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("text")
    (folder / "deeper").mkdir()
    (folder / "a.txt").write_text("ab" * 400)
    (folder / "deeper/b.txt").write_text("cd" * 400)
    (folder / "empty.txt").write_text("")
    done = python("-c", SCRIPT, str(folder))
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [f"{torch_venv()}/bin/python", *arguments],
        cwd=FOLDER,
        env={"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
def test_the_article_s_model_has_as_many_parameters_as_it_is_said_to_have(told: dict[str, Any]) -> None:
    # 48 layers, of 4 x 4096 x 4096 and 3 x 4096 x 11008 and two norms; a norm; two tables of 50257 x 4096
    gated = 48 * (4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096) + 4096 + 2 * 50257 * 4096
    assert told["sizes"][0] == gated == told["count"]["params"]
    assert told["sizes"][1] == gated - 48 * 4096 * 11008
    assert told["sizes"] == told["meta"]


def test_recomputing_keeps_less_and_gives_the_same_gradients(told: dict[str, Any]) -> None:
    kept, flops = told["kept"], told["flops"]
    assert kept["full"] < 0.4 * kept["none"] and told["recomputed"] is True
    # the head is not computed again
    assert 1.1 < flops["full"] / flops["none"] < 1.34


def test_flops_are_those_that_torch_counts(told: dict[str, Any]) -> None:
    # torch's counter does not see its own attention on CPUs: 12 x layers x hidden x length for each of 4 x 24 tokens
    assert told["told"] - 4 * 24 * 12 * 2 * 32 * 24 == pytest.approx(told["counted"], rel=0.01)


def test_a_made_up_text_can_be_learnt_and_says_what_it_is(told: dict[str, Any]) -> None:
    losses, words = told["synthetic"]
    assert words == "synthetic text" and losses[0] > 5 and losses[-1] < 3
    assert told["repeated"] and told["next"] and not told["seeded"]


def test_a_folder_of_files_is_read(told: dict[str, Any]) -> None:
    losses, words = told["folder"]
    assert words.startswith("text of 2 files in ") and losses[-1] < 0.5 < losses[0]
    assert told["read"] == "abababab"


@pytest.mark.parametrize(
    ("what", "rule"),
    [
        ("heads", "--tensor 3 cannot share 32 heads: each rank computes whole heads, so 32 must be a multiple of 3"),
        ("mixed", "the number of ranks must be a multiple of 9"),
        ("layers", "--stages 3 cannot share 4 layers"),
        ("ddp", "--tensor 2 over 2 copies needs --parallel fsdp2"),
        ("hosts", "--parallel dataparallel is one process, and there are 2 ranks"),
        ("copied", "take a rank a GPU and --parallel ddp"),
        ("zero", "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism"),
        ("held out", "--held-out asks the whole model"),
        ("alone", "start it by torchrun"),
        ("row 4", "16 is no multiple of 3"),
        ("empty", "/none: no folder of this host: name a folder of files that is on every host"),
        ("short", "1602 tokens make no sample of 100000"),
    ],
)
def test_what_cannot_be_is_refused_with_the_rule(told: dict[str, Any], what: str, rule: str) -> None:
    assert rule in told["refused"][what]


def test_what_can_be_is_not_refused(told: dict[str, Any]) -> None:
    assert told["refused"]["row 3"] == told["refused"]["two by two"] == ""


def test_counting_needs_no_memory() -> None:
    limited = f"ulimit -v 4000000; exec {torch_venv()}/bin/python llm.py --preset article-4 --count --mlp plain"
    done = subprocess.run(["sh", "-c", limited], cwd=FOLDER, capture_output=True, text=True, timeout=300, check=True)
    told = json.loads(done.stdout)
    assert told["params"] == 7961849856 and told["model_flops_per_token"] > 6 * 7.7e9


@pytest.mark.slow
def test_compiled_layers_learn_the_same() -> None:
    tiny = ("--layers", "1", "--hidden", "16", "--intermediate", "32", "--heads", "2", "--seq", "16", "--steps", "3")
    ends = []
    for more in ((), ("--compile",)):
        done = python("llm.py", *tiny, "--device", "cpu", *more)
        assert done.returncode == 0, done.stderr
        ends.append(json.loads(done.stdout.splitlines()[-1]))
    plain, compiled = ends
    assert compiled["last_loss"] == pytest.approx(plain["last_loss"], abs=1e-5) and compiled["compile"]
