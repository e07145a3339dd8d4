"""The batch script: options as sbatch reads them, words as the shell does, and the parts that only bash can tell."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from nodectl.errors import UsageError
from nodectl.jobs.export import SbatchJob, read_option, sbatch_line

HOSTILE = ("a b", "$(touch /pwned)", "it's", '"', "\\", "{{ x }}", "#x", "--x", "")


def job(**changes: Any) -> SbatchJob:
    fields: dict[str, Any] = {"name": "train", "nodes": 2, "nproc_per_node": 8, "launcher": "/l"}
    fields["program"] = ["train.py"]
    return SbatchJob(**{**fields, **changes})


def options(text: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]


def test_whole_nodes_unless_the_operator_says_what_of_them() -> None:
    assert options(job(gpus=8).script_text()) == [
        *("--job-name=train", "--nodes=2", "--ntasks-per-node=1", "--output=slurm-%j.out"),
        *("--exclusive", "--mem=0", "--gpus-per-node=8", "--no-requeue"),
    ]
    asked = ("--cpus-per-task=12", "--mem=64G", "--gres=gpu:h100:8", "--requeue", "--partition=gpu")
    named = job(gpus=8, hosts=["n1", "n2"], asked=asked).script_text()
    assert options(named)[3:] == ["--output=slurm-%j.out", "--nodelist=n1,n2", *asked]


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("gpu,long", "--comment=gpu,long"),
        ("a b", '--comment="a b"'),
        ("x#y", '--comment="x#y"'),
        ('say "no"', r'--comment="say \"no\""'),
        ("back\\slash", r'--comment="back\\slash"'),
        ("$(id)", '--comment="$(id)"'),
    ],
)
def test_a_value_is_quoted_as_sbatch_unquotes_it(value: str, line: str) -> None:
    assert sbatch_line("comment", value) == line


@pytest.mark.parametrize(
    "text",
    ["-p gpu", "partition=gpu", "--nodes=3", "--wrap=id", "--job-name=x", "--output=/dev/null", "--a=b\n#SBATCH -x"],
)
def test_what_the_script_cannot_take_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_option(text)


@pytest.mark.parametrize(
    "changes", [{"hosts": ["n[1-3]"]}, {"hosts": ["/etc/x"]}, {"hosts": ["a,b"]}, {"program": ["a\r\n"]}]
)
def test_what_slurm_would_read_as_something_else_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        job(**changes).script_text()


def test_every_word_reaches_the_script_whole(tmp_path: Path) -> None:
    env = {"NCCL_A": "x y", "NCCL_B": "$(touch /pwned)'"}
    text = job(program=["train.py", *HOSTILE], network="eth'1", venv="/a b", env=env).script_text()
    body = text.partition("set -uo pipefail\n")[2].partition("die() {")[0]
    show = 'printf "<%s>" "$launcher" "$venv" "$network" "$NCCL_A" "$NCCL_B" "$ranks" "${program[@]}"'
    script = tmp_path / "shown.sh"
    script.write_text(body + show)
    known = {"PATH": "/usr/bin:/bin", "SLURM_SUBMIT_DIR": "/s", "SLURM_JOB_ID": "7", "NCCL_A": "own"}
    done = subprocess.run(["bash", "-u", script], capture_output=True, text=True, env=known, check=True)
    wanted = ["/l", "/a b", "eth'1", "own", env["NCCL_B"], "8", "train.py", *HOSTILE]
    assert done.stdout == "".join(f"<{word}>" for word in wanted) and done.stderr == ""
