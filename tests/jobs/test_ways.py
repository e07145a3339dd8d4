"""What a launch starts: a script, a module or an engine's words, from copied code or a folder of the hosts."""

import subprocess
from pathlib import Path

import pytest

from nodectl.errors import UsageError
from nodectl.jobs.engines import split
from nodectl.jobs.preflight import skipped_checks, skipped_lines
from nodectl.jobs.ways import Asked, find_way
from nodectl.model.finding import Finding
from nodectl.model.status import Status

HOSTILE = ("a b", "$(touch /pwned)", "; rm -rf /", "--", "")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for place in (
        "pyproject.toml",
        "train.py",
        "mine/__init__.py",
        "mine/run/__main__.py",
        "src/own/go.py",
        "sub/x.py",
    ):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).touch()
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def places(asked: Asked) -> set[str]:
    way = find_way(asked)
    assert way.code is not None
    return {place for _, place in way.code.files}


def test_a_module_brings_its_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    way = find_way(Asked(HOSTILE[0], HOSTILE[1:], module="mine.run"))
    assert (way.script, way.args, way.start.module, way.workdir) == ("mine.run", HOSTILE, True, "")
    assert {"train.py", "mine/run/__main__.py", "src/own/go.py"} <= places(Asked(None, module="mine.run"))
    below = find_way(Asked(None, module="own.go"))
    assert below.script == "own.go" and below.name.startswith("own-go-")
    monkeypatch.chdir(project / "sub")
    assert (find_way(Asked(None, module="x")).workdir, find_way(Asked(None, module="mine.run")).workdir) == (
        "sub",
        "sub",
    )


@pytest.mark.parametrize("module", ["-c", "mine; id", "mine/run", "", "mine.", "$(id)", "mine.run.py2 x"])
def test_what_is_no_name_of_a_module(project: Path, module: str) -> None:
    for asked in (Asked(None, module=module), Asked(None, module=module, chdir="/srv")):
        with pytest.raises(UsageError, match="is not the name of a module"):
            find_way(asked)


def test_a_folder_of_the_hosts_copies_nothing_and_must_be_there() -> None:
    way = find_way(Asked("scripts/train.py", ("--lr", "1"), chdir="/srv/my project/"))
    assert (way.code, way.start.chdir, way.script, way.args) == (
        None,
        "/srv/my project",
        "scripts/train.py",
        ("--lr", "1"),
    )
    assert way.paths == (("/srv/my project", "folder"), ("/srv/my project/scripts/train.py", "file"))
    assert find_way(Asked("/abs/train.py", chdir="/srv")).paths[1] == ("/abs/train.py", "file")
    assert find_way(Asked("python", ("x.py",), engine="command", chdir="/srv")).paths == (("/srv", "folder"),)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (Asked(None), "nothing to start"),
        (Asked("train.py", chdir="srv/x"), "not an absolute path"),
        (Asked("train.py", chdir="/srv", code_folder=Path("/")), "with --chdir nothing is"),
        (Asked("python", ("workload:transformer",), engine="command", chdir="/srv"), "nodectl's own"),
        (Asked("train.py", container="--privileged"), "not the name of an image"),
        (Asked("train.py", container="img; id"), "not the name of an image"),
        (Asked("train.py", engine="deepspeed", trace="nsys"), "ranks of torchrun on the hosts"),
    ],
)
def test_words_that_do_not_fit_together(asked: Asked, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        find_way(asked)


@pytest.mark.parametrize(
    ("engine", "argv", "script", "args"),
    [
        ("deepspeed", "train.py --deepspeed ds.json", "train.py", ("--deepspeed", "ds.json")),
        ("deepspeed", "--bind_cores_to_rank --bind_core_list 0-3 t.py", "t.py", ()),
        ("deepspeed", "--module pkg.train --num_gpus 8", "pkg.train", ("--num_gpus", "8")),
        ("accelerate", "--mixed_precision bf16 --use-fsdp train.py --cpu", "train.py", ("--cpu",)),
        ("accelerate", "--config_file=a.yaml -m pkg.train x", "pkg.train", ("x",)),
        ("command", "bash -x run.sh", "bash", ("-x", "run.sh")),
    ],
)
def test_an_engines_own_options_stand_in_front(engine: str, argv: str, script: str, args: tuple[str, ...]) -> None:
    assert split(engine, argv.split()) == (script, args)


@pytest.mark.parametrize(
    ("engine", "argv", "words", "remedy"),
    [
        ("deepspeed", "--hostfile h t.py", "--hostfile is not for ARGV", "--limit"),
        ("deepspeed", "--bind_cores_to_rank", "needs a script", "its options come first"),
        ("accelerate", "--num-processes 8 t.py", "--num-processes is not for ARGV", "--nproc-per-node"),
        ("command", "", "needs a command to start", "--engine command -- ARGV"),
    ],
)
def test_what_nodectl_says_itself_is_refused_with_the_way_to_say_it(
    engine: str, argv: str, words: str, remedy: str
) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        split(engine, argv.split())
    assert remedy in caught.value.remedy


def test_checks_are_skipped_by_name_and_what_they_found_is_said() -> None:
    checks = skipped_checks(["clock", "launch_gpu_users", "clock"])
    assert checks == ("launch_clock", "launch_gpu_users")
    found = [Finding(host, "launch_clock", Status.FAILED, actual="6.0 s ahead", expected="") for host in ("n1", "n2")]
    found.append(Finding("n3", "launch_clock", Status.OK, actual="0.1 s", expected=""))
    assert skipped_lines(checks, found) == (
        "launch_clock: failed on n[1-2]: 6.0 s ahead",
        "launch_gpu_users: it had found nothing",
    )


@pytest.mark.parametrize(
    ("name", "words"), [("clokc", "did you mean clock"), ("ports", "no job can start"), ("launch_interface", "no job")]
)
def test_what_cannot_be_skipped(name: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        skipped_checks([name])
    assert words in f"{caught.value.message} {caught.value.remedy}"
