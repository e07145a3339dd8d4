"""`nodectl ledger`, and who is left out of work for what it says."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodectl.cli.root import root_context
from nodectl.ledger.history.database import FILE
from nodectl.ledger.store import Ledger
from nodectl.model.acceptance import Seen
from nodectl.model.status import Status
from nodectl.recordings.save import prepare, write_host
from tests.cli.test_guide import app, walk
from tests.ledger.kept import accepted, finding, parts, recorded

Asked = Callable[..., Any]
COMMANDS = dict(walk(root_context(app())))
OK, FAILED, USAGE = Status.OK, Status.FAILED, 2
NODE02, NODE07 = parts("dgx-a100", "node02"), parts("dgx-a100", "node07")
BAD = NODE02[2]


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


@pytest.fixture
def replay(tmp_path: Path) -> tuple[str, str]:
    """A recording of node02 and node07, and one after GPU 1 of node02 went to node07: an edited recording."""
    for folder, edits in (("before", {}), ("after", {NODE07[4].id: BAD.id})):
        prepare(tmp_path / folder, {"node02": {}, "node07": {}})
        for host in ("node02", "node07"):
            write_host(tmp_path / folder, recorded("dgx-a100", host, edits if host == "node07" else {}))
    return str(tmp_path / "before"), str(tmp_path / "after")


def rejected(ledger: Ledger) -> None:
    seen = [Seen("gemm", finding("node02", "GPU 1, bf16"))]
    steps = {"node02": {"reach": OK, "gemm": FAILED}, "node07": {"reach": OK, "gemm": OK}}
    ledger.record(accepted({"node02": NODE02, "node07": NODE07}, steps, seen))


def test_a_fleet_that_nobody_knows(asked: Asked) -> None:
    assert "nothing is known of this fleet yet" in asked("ledger", "list").stdout
    unknown = asked("ledger", "show", "node03")
    assert unknown.returncode == USAGE and "node03: no such part or host is known" in unknown.stderr
    never = asked("ledger", "return", "node02")
    assert never.returncode == USAGE and "node02 is not cordoned in this fleet" in never.stderr
    empty = asked("ledger", "cordon", "node02", "--reason", " ")
    assert empty.returncode == USAGE and "--reason is empty" in empty.stderr


@pytest.mark.slow
def test_a_host_by_its_recording_is_cordoned_shown_and_returned(
    asked: Asked, kept: Ledger, replay: tuple[str, str]
) -> None:
    rejected(kept)
    done = asked("--replay", replay[0], "ledger", "cordon", "node02", "--reason", "wrong  bits")
    assert (done.returncode, done.stdout) == (0, "node02: cordoned: 1 host, 8 GPUs, 10 NICs\n")
    listed = json.loads(asked("--output", "json", "ledger", "list").stdout)
    assert listed["schema"] == "nodectl.ledger/1"
    states = {row["host"]: [each["reason"] for each in row["cordoned"]] for row in listed["hosts"]}
    assert states == {"node02": ["wrong bits"], "node07": []}
    assert [row["verdict"] for row in listed["hosts"]] == ["rejected", "accepted"]
    assert {row["host"] for row in listed["parts"] if row["cordon"]} == {"node02"}

    text = asked("ledger", "list", "--parts").stdout
    assert "cordoned" in text and f"{BAD.id}  cordoned" in text
    life = asked("ledger", "show", BAD.id[:10]).stdout
    assert f"gpu {BAD.id}: NVIDIA A100-SXM4-80GB, serial {BAD.serial}\n" in life
    assert "gemm: failed gemm GPU 1, bf16: amiss" in life and ": wrong bits\n" in life
    of_host = json.loads(asked("--output", "json", "ledger", "show", "node02").stdout)
    assert [event["kind"] for event in of_host["events"]] == ["seen", "cordoned"]
    assert of_host["events"][0]["steps"] == {"reach": "ok", "gemm": "failed"}

    again = asked("--replay", replay[0], "ledger", "cordon", "node02", "--reason", "wrong bits")
    assert again.returncode == 0 and again.stderr.startswith("it is cordoned already (node02 is cordoned since ")
    listing = asked("ledger", "list").stdout
    assert listing.count("wrong bits") == 1
    twice = asked("ledger", "return", "node02", "--without-proof", "--reason", "said twice")
    assert twice.stdout == "node02: returned: 1 host, 8 GPUs, 10 NICs\n"
    asked("--replay", replay[0], "ledger", "cordon", "node02", "--reason", "wrong bits")

    refused = asked("ledger", "return", "node02")
    assert refused.returncode == 1 and "node02 does not return: no acceptance of it since it was" in refused.stderr
    assert "nodectl accept --include-cordoned -l node02" in refused.stderr
    alone = asked("ledger", "return", "node02", "--without-proof")
    assert alone.returncode == USAGE and "--without-proof and --reason go together" in alone.stderr
    back = asked("--output", "json", "ledger", "return", "node02", "--without-proof", "--reason", "spare board")
    assert json.loads(back.stdout)["events"][0]["reason"] == "without proof: spare board"
    listed = json.loads(asked("--output", "json", "ledger", "list").stdout)
    assert [row["cordoned"] for row in listed["hosts"]] == [[], []]


def test_a_part_that_moved_holds_its_new_host(asked: Asked, kept: Ledger, replay: tuple[str, str]) -> None:
    rejected(kept)
    done = asked("--replay", replay[0], "ledger", "cordon", "node02", "--reason", "flaky", "--part", BAD.id.lower())
    assert done.stdout == "node02: cordoned: 1 GPU\n"
    many = asked("--replay", replay[0], "ledger", "cordon", "node02", "--reason", "x", "--part", "GPU-")
    assert many.returncode == USAGE and "--part GPU-: 8 parts of node02 begin so" in many.stderr
    # whoever looks at node07 next finds it there
    asked("--replay", replay[1], "ledger", "cordon", "node07", "--reason", "x", "--part", NODE07[3].id)
    holds = kept.cordoned(["node07"])["node07"]
    assert [hold.text.partition(",")[0] for hold in holds] == [
        f"node07 has GPU 1 of node02 ({BAD.id})",
        f"node07 has GPU 2 ({NODE07[3].id})",
    ]


def test_a_card_that_was_replaced_stays_cordoned_and_says_so(asked: Asked, kept: Ledger) -> None:
    rejected(kept)
    kept.cordon("node02", NODE02, "wrong bits", "me@here", when=2000.0)
    new = BAD.id.replace(BAD.id[4:12], "01234567")
    repaired = parts("dgx-a100", "node02", {BAD.id: new})
    kept.record(accepted({"node02": repaired}, {"node02": {"reach": OK, "gemm": OK}}, number="a2", began=3000.0))
    done = asked("ledger", "return", "node02")
    assert (done.returncode, done.stdout) == (0, "node02: returned: 1 host, 7 GPUs, 10 NICs\n"), done.stderr
    life = asked("ledger", "show", BAD.id).stdout.splitlines()
    assert life[1].startswith("last seen ") and life[1].endswith(", where another one is now")
    assert life[2].startswith("cordoned since ") and life[2].endswith(": wrong bits; a host that shows it is left out")
    assert "cordoned" not in asked("ledger", "show", new).stdout


def test_exports(asked: Asked, kept: Ledger) -> None:
    rejected(kept)
    kept.cordon("node02", NODE02, 'it\'s "dead"\nagain', "me@here", when=2000.0)
    cordon = kept.cordon("node07", NODE07, "short", "me@here", when=2000.0)
    (hold,) = kept.cordoned(["node07"])["node07"]
    assert hold.cordon.id == cordon.id
    kept.return_(hold, "mended", "me@here")
    lines = [shlex.split(line) for line in asked("ledger", "list", "--export", "slurm").stdout.splitlines()]
    drain, resume = lines
    assert drain[:4] == ["scontrol", "update", "NodeName=node02", "State=DRAIN"]
    assert drain[4] == "Reason=cordoned (nodectl ledger): it's 'dead' again"
    assert resume == ["scontrol", "update", "NodeName=node07", "State=RESUME"]
    group = yaml.safe_load(asked("ledger", "list", "--export", "ansible").stdout)["cordoned"]["hosts"]
    assert list(group) == ["node02"] and group["node02"]["nodectl_cordoned"].endswith('it\'s "dead" again')


def test_a_reason_is_no_template_to_ansible(asked: Asked, kept: Ledger, tmp_path: Path) -> None:
    reason = "GPU 1: {{ lookup('pipe', 'echo ran') }} {% set x = 1 %} {# gone #}"
    kept.cordon("node02", NODE02, reason, "me@here")
    exported = tmp_path / "cordoned.yml"
    exported.write_text(asked("ledger", "list", "--export", "ansible").stdout)
    ansible = Path(sys.executable).with_name("ansible")
    shown = [str(ansible), "-i", str(exported), "-c", "local", "-m", "debug", "-a", "var=nodectl_cordoned", "node02"]
    done = subprocess.run(shown, capture_output=True, text=True, check=True, cwd=tmp_path)
    said = json.loads(done.stdout[done.stdout.index("{") :])["nodectl_cordoned"]
    assert said.endswith(reason)


def test_work_leaves_a_cordoned_host_out_and_says_so(asked: Asked, kept: Ledger, tmp_path: Path) -> None:
    kept.cordon("node02", NODE02, "wrong bits", "me@here")
    kept.cordon("node07", [], "a thermal paste", "me@here")
    (tmp_path / "job.py").write_text("print(1)\n")
    launch = ("launch", "--launcher", "/bin/true", "--dry-run", "--output", "json", str(tmp_path / "job.py"))
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
