"""`nodectl ledger`, and who is left out of work for what it says."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodectl.cli.root import root_context
from nodectl.ledger.history.database import FILE
from nodectl.ledger.store import Ledger
from nodectl.model.status import Status
from tests.cli.test_help import app, walk
from tests.ledger.kept import GPU, accepted

Asked = Callable[..., Any]
COMMANDS = dict(walk(root_context(app())))
OK, FAILED, USAGE = Status.OK, Status.FAILED, 2


@pytest.fixture
def kept(tmp_path: Path) -> Ledger:
    (tmp_path / "state" / "nodectl").mkdir(parents=True)
    return Ledger(tmp_path / "state" / "nodectl" / FILE, str(tmp_path / "hosts.ini"))


@pytest.fixture
def asked(nodectl: Asked, tmp_path: Path) -> Asked:
    inventory = tmp_path / "hosts.ini"
    # nobody listens there
    inventory.write_text("[all]\nhere ansible_connection=local\nnode02 ansible_host=127.0.0.1 ansible_port=1\nnode07\n")
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    return lambda *args, **more: nodectl("-i", str(inventory), *args, env=env, check=False, **more)


def rejected(ledger: Ledger) -> None:
    ledger.record(accepted({"node02": {"health": OK, "gemm": FAILED}, "node07": {"health": OK, "gemm": OK}}))


def test_a_fleet_that_nobody_knows(asked: Asked) -> None:
    assert "nothing is known of this fleet yet" in asked("ledger", "list").stdout
    unknown = asked("ledger", "show", "node03")
    assert unknown.returncode == USAGE and "node03 is not known" in unknown.stderr
    never = asked("ledger", "return", "node02")
    assert never.returncode == USAGE and "node02 is not cordoned in this fleet" in never.stderr
    empty = asked("ledger", "cordon", "node02", "--reason", " ")
    assert empty.returncode == USAGE and "--reason is empty" in empty.stderr


def test_a_host_is_cordoned_shown_and_returned(asked: Asked, kept: Ledger) -> None:
    rejected(kept)
    done = asked("ledger", "cordon", "node02", "--reason", "wrong  bits")
    assert (done.returncode, done.stdout) == (0, "node02: cordoned\n"), done.stderr
    listed = json.loads(asked("--output", "json", "ledger", "list").stdout)
    assert listed["schema"] == "nodectl.ledger/1"
    states = {row["host"]: [each["reason"] for each in row["cordoned"]] for row in listed["hosts"]}
    assert states == {"node02": ["wrong bits"], "node07": []}
    assert [row["verdict"] for row in listed["hosts"]] == ["rejected", "accepted"]

    life = asked("ledger", "show", "node02").stdout
    assert life.startswith("node02 is cordoned since ") and ": wrong bits\n" in life
    assert "rejected (acceptance a1, recorded); failed: gemm\n    gemm: failed gemm GPU 1, bf16: amiss\n" in life
    of_host = json.loads(asked("--output", "json", "ledger", "show", "node02").stdout)
    assert [event["kind"] for event in of_host["events"]] == ["judged", "cordoned"]
    assert of_host["events"][0]["steps"] == {"health": "ok", "gemm": "failed"}
    assert of_host["events"][0]["gpus"][0]["serial"] == GPU.serial

    again = asked("ledger", "cordon", "node02", "--reason", "wrong bits")
    assert again.returncode == 0 and again.stderr.startswith("it is cordoned already (node02 is cordoned since ")
    listing = asked("ledger", "list").stdout
    assert listing.count("wrong bits") == 1
    refused = asked("ledger", "return", "node02")
    assert refused.returncode == 1 and "node02 does not return: no acceptance of it since it was" in refused.stderr
    assert "nodectl accept --include-cordoned -l node02" in refused.stderr
    alone = asked("ledger", "return", "node02", "--without-proof")
    assert alone.returncode == USAGE and "--without-proof and --reason go together" in alone.stderr
    back = asked("--output", "json", "ledger", "return", "node02", "--without-proof", "--reason", "spare board")
    assert json.loads(back.stdout)["events"][0]["reason"] == "without proof: spare board"
    listed = json.loads(asked("--output", "json", "ledger", "list").stdout)
    assert [row["cordoned"] for row in listed["hosts"]] == [[], []]


def test_a_pattern_is_cordoned_and_a_host_that_has_left_the_inventory(asked: Asked, kept: Ledger) -> None:
    kept.cordon("node09", "old", "me@here")
    assert asked("ledger", "cordon", "all:!here", "--reason", "moved").stdout == "node02: cordoned\nnode07: cordoned\n"
    assert asked("ledger", "cordon", "node09", "--reason", "gone").stdout == "node09: cordoned\n"
    assert asked("ledger", "cordon", "node03", "--reason", "x").returncode == USAGE


def test_a_gpu_that_was_replaced_is_shown(asked: Asked, kept: Ledger) -> None:
    rejected(kept)
    kept.cordon("node02", "wrong bits", "me@here", when=2000.0)
    new = replace(GPU, uuid="GPU-01234567", serial="1565020019999")
    kept.record(accepted({"node02": {"gemm": OK}}, number="a2", began=3000.0, gpu=new))
    done = asked("ledger", "return", "node02")
    assert (done.returncode, done.stdout) == (0, "node02: returned\n"), done.stderr
    told = f"{GPU.place} is GPU-01234567 (serial 1565020019999) now; it was {GPU.uuid} (serial {GPU.serial})"
    assert told in asked("ledger", "show", "node02").stdout


@pytest.mark.parametrize("damage", ["a folder", "other bytes"])
def test_nothing_starts_if_cordons_cannot_be_read(asked: Asked, kept: Ledger, tmp_path: Path, damage: str) -> None:
    kept.cordon("node02", "wrong bits", "me@here")
    kept.close()
    kept.path.unlink()
    if damage == "a folder":
        kept.path.mkdir()
    else:
        kept.path.write_bytes(b"x" * 5000)
    (tmp_path / "job.py").write_text("print(1)\n")
    launch = ("launch", "-e", "launcher_path=/bin/true", "--dry-run", str(tmp_path / "job.py"))
    for command in (launch, ("accept", "--dry-run")):
        done = asked("-l", "here", *command)
        assert done.returncode == 3 and "which hosts are cordoned cannot be told: " in done.stderr, done.stderr
    assert asked("-l", "here", *launch, "--include-cordoned").returncode == 0


def test_work_leaves_a_cordoned_host_out_and_says_so(asked: Asked, kept: Ledger, tmp_path: Path) -> None:
    kept.cordon("node02", "wrong bits", "me@here")
    kept.cordon("node07", "a thermal paste", "me@here")
    (tmp_path / "job.py").write_text("print(1)\n")
    launch = ("launch", "-e", "launcher_path=/bin/true", "--dry-run", "--output", "json", str(tmp_path / "job.py"))
    done = asked(*launch)
    assert done.returncode == 0, done.stderr
    assert [host["name"] for host in json.loads(done.stdout)["plan"]["hosts"]] == ["here"]
    assert "left out: node02 is cordoned since" in done.stderr and ": wrong bits\n" in done.stderr
    assert "left out: node07 is cordoned since" in done.stderr and ": a thermal paste\n" in done.stderr

    probe = ("--output", "json", "probe", "memory", "--duration", "0.001", "--repetitions", "2")
    done = asked(*probe)
    assert done.returncode == 0, done.stderr
    assert {host for row in json.loads(done.stdout)["measurements"] for host in row["hosts"]} == {"here"}
    assert "left out: node02 is cordoned since" in done.stderr
    done = asked("-l", "here:node02", *probe, "--include-cordoned")
    assert done.returncode == 3 and "taken in all the same: node02 is cordoned since" in done.stderr
    assert "node02" in json.dumps(json.loads(done.stdout)["findings"])

    # the others narrow the hosts in the same place: that they can be told not to is theirs
    for path in ("launch", "probe tcp", "accept", "bench retrieval", "bench scaling", "tune trial"):
        assert any("--include-cordoned" in param.opts for param in COMMANDS[path].params), path
    for command in (launch, ("accept", "--dry-run")):
        done = asked("-l", "node02:node07", *command)
        assert done.returncode == USAGE, (command, done.stderr)
        assert "nothing is left: 2 hosts are cordoned" in done.stderr
        assert "nodectl accept --include-cordoned -l node02" in done.stderr
    # one has to look at it
    assert "cordoned" not in asked("-l", "node02", "facts").stderr
