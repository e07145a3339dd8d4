"""What stands on a node is noted, kept and put back: the modules on folders of a test, run as Ansible does."""

import errno
import json
import os
import threading
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nodectl.common.documents import new_id
from nodectl.common.node_paths import TRIALS
from nodectl.provision.run import RUN_NAME
from tests.node_snapshot import described
from tests.roles.run_module import run_module


class Node:
    """Files of a test, and the modules run on them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, folder / "state"
        self.etc = folder / "etc"
        self.etc.mkdir()

    def module(self, name: str, *, check: bool = False, **arguments: Any) -> dict[str, Any]:
        path = f"plugins/modules/{name}.py"
        own = {"folder": str(self.state), "trials": str(self.folder / "trials")}
        return run_module(path, {**own, **arguments}, folder=self.folder, check=check)

    def begin(self, run: str, check: bool = False, **touches: Any) -> dict[str, Any]:
        return self.module(
            "node_record", state="begin", run=run, by="me@here", touches={"a_touches": touches}, check=check
        )

    def settle(self, run: str) -> dict[str, Any]:
        return self.module("node_record", state="settle", run=run)

    def undo(self, to: str = "", **more: Any) -> dict[str, Any]:
        return self.module("node_rollback", state="undone", to=to, **more)

    def write(self, name: str, text: str, mode: int = 0o644) -> Path:
        path = self.etc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def all(self) -> dict[str, str]:
        return {str(path): described(str(path)) for path in sorted(self.etc.rglob("*"))}

    def records(self) -> list[str]:
        return sorted(path.name for path in self.state.glob("runs/[!.]*"))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_content_owner_mode_links_and_absence_come_back(node: Node) -> None:
    kept, link = node.write("kept.conf", "old\n", 0o640), node.etc / "link"
    link.symlink_to("kept.conf")
    node.write("own.d/one", "1")
    before = node.all()
    paths = [str(kept), str(link), str(node.etc / "own.d"), str(node.etc / "new.d" / "deep" / "x")]
    assert not node.begin("r1", paths=paths)["changed"]
    kept.write_text("new\n")
    kept.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(kept, 7, 8)
    link.unlink()
    link.write_text("a file now")
    node.write("own.d/two", "2")
    (node.etc / "own.d" / "one").unlink()
    node.write("new.d/deep/x", "new")
    assert node.settle("r1")["kept"]
    done = node.undo()
    assert done["changed"] and not done["rollback"]["warnings"], done
    assert node.all() == before
    assert not node.records() and (node.state / "undone" / "r1" / "run.json").exists()
    assert not node.undo()["changed"]


def test_the_records_are_roots_alone(node: Node) -> None:
    node.begin("r1", paths=[str(node.write("secret", "s", 0o600))])
    for folder in ("runs", "undone", "runs/r1", "runs/r1/files"):
        assert (node.state / folder).stat().st_mode & 0o777 == 0o700
    for path in (node.state / "runs" / "r1").rglob("*"):
        assert path.is_dir() or path.stat().st_mode & 0o777 == 0o600


def test_a_run_that_changed_nothing_leaves_no_record(node: Node) -> None:
    node.begin("r1", paths=[str(node.write("a", "1")), str(node.etc / "absent")])
    assert node.records() == ["r1"]
    assert not node.settle("r1")["kept"] and not node.records()


def test_check_writes_nothing(node: Node) -> None:
    path = node.write("a", "1")
    assert not node.begin("r1", check=True, paths=[str(path)])["kept"] and not node.state.exists()
    node.begin("r1", paths=[str(path)])
    path.write_text("2")
    before = {str(p): described(str(p)) for p in node.state.rglob("*")}
    looked = node.undo(check=True)
    assert looked["changed"] and path.read_text() == "2"
    assert {str(p): described(str(p)) for p in node.state.rglob("*")} == before
    assert looked["diff"][0]["before"] == "2" and looked["diff"][0]["after"] == "1"
    assert [change["subject"] for change in node.undo()["rollback"]["changes"]] == [str(path)]


def test_what_a_trial_left_is_restored_before_a_run_is_recorded_or_undone(node: Node) -> None:
    value = node.write("value", "trial\n")
    for act in (partial(node.begin, "run1", paths=[str(value)]), partial(node.undo, to="start")):
        trial = node.folder / "trials" / "t1"
        trial.mkdir(parents=True)
        (trial / "restore").write_text(f"echo former > {value}; rm -r {trial}")
        assert not act().get("failed")
        assert value.read_text() == "former\n" and not trial.exists()
        value.write_text("changed\n")


def test_a_later_play_of_the_run_adds_and_does_not_overwrite(node: Node) -> None:
    one, two = node.write("one", "1"), node.write("two", "2")
    node.begin("r1", paths=[str(one)])
    one.write_text("changed by the first play")
    node.begin("r1", paths=[str(one), str(two)])
    two.write_text("changed by the second play")
    node.settle("r1")
    node.undo()
    assert (one.read_text(), two.read_text()) == ("1", "2")


def test_a_killed_run_keeps_its_record_and_the_next_begin_closes_it(node: Node) -> None:
    path, half = node.write("a.conf", "1"), node.etc / ".ansible_tmpab12cd34a.conf"
    node.begin("r1", paths=[str(path)])
    path.write_text("2")
    half.write_text("half")
    node.begin("r2", paths=[str(path)])
    assert not half.exists(), "what a killed module left beside its file"
    assert json.loads((node.state / "runs" / "r1" / "record.json").read_text())["settled"]
    node.settle("r2")
    assert node.records() == ["r1"]
    node.undo()
    assert path.read_text() == "1"


def test_to_a_run_means_as_it_left_things_and_start_means_before_all(node: Node) -> None:
    path = node.write("a", "0")
    for number in (1, 2, 3):
        node.begin(f"r{number}", paths=[str(path)])
        path.write_text(str(number))
        node.settle(f"r{number}")
    assert node.undo("r1")["rollback"]["runs"] == ["r2", "r3"] and path.read_text() == "1"
    assert "taken back" in node.undo("r3")["msg"]
    node.undo("start")
    assert path.read_text() == "0" and not node.records()


def test_what_somebody_changed_since_is_kept_beside(node: Node) -> None:
    path, new = node.write("a", "before"), node.etc / "new"
    node.begin("r1", paths=[str(path), str(new)])
    path.write_text("ours")
    new.write_text("ours too")
    node.settle("r1")
    path.write_text("theirs")
    new.write_text("theirs too")
    done = node.undo()
    assert path.read_text() == "before" and not new.exists()
    kept = node.state / "undone" / "r1" / "conflicts"
    assert Path(f"{kept}{path}").read_text() == "theirs" and Path(f"{kept}{new}").read_text() == "theirs too"
    assert sum("was changed since" in line and str(kept) in line for line in done["rollback"]["warnings"]) == 2


def way_back(node: Node, utils: Any) -> Any:
    """The way back of the run r1, in this process."""
    store = utils("undo.store").Store(str(node.state))
    return utils("undo.restore").Restore(store, lambda argv: (0, "", ""), ["r1"])


def test_what_cannot_be_put_back_keeps_nothing_else_from_it(
    node: Node, utils: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [node.write(name, "before") for name in ("a", "stuck", "z")]
    node.begin("r1", paths=[str(path) for path in paths])
    for path in paths:
        path.write_text("ours")
    node.settle("r1")
    way, put_back = way_back(node, utils), utils("files").put_back

    def read_only(path: str, *rest: Any) -> None:
        if path.endswith("/stuck"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        put_back(path, *rest)

    monkeypatch.setattr(utils("files"), "put_back", read_only)
    assert way.all()
    assert [path.read_text() for path in paths] == ["before", "ours", "before"]
    assert way.errors == [f"{paths[1]}: Read-only file system"] and node.records() == ["r1"]
    monkeypatch.undo()
    assert node.undo()["changed"] and paths[1].read_text() == "before" and not node.records()


def test_a_folder_of_ours_that_was_not_there_goes_with_what_we_put_into_it(node: Node) -> None:
    node.write("kept", "")
    before = node.all()
    ours, shared = node.etc / "ours.d", node.etc / "shared.d"
    node.begin("r1", paths=[str(ours), str(shared), str(node.etc / "none")])
    for name in ("ours.d/a.conf", "ours.d/deep/b", "shared.d/a.conf"):
        node.write(name, "x")
    node.settle("r1")
    theirs = node.write("shared.d/theirs", "x")
    assert node.undo()["changed"]
    assert sorted(path.name for path in shared.iterdir()) == ["theirs"]
    theirs.unlink()
    shared.rmdir()
    assert node.all() == before


def test_trees_lose_what_a_run_left_new_and_links_come_back(node: Node) -> None:
    trees, venv, new = node.etc / "venvs", node.etc / "venv", node.etc / "tools"
    node.write("venvs/first/x", "1")
    venv.symlink_to("venvs/first")
    before = node.all()
    node.begin("r1", trees=[str(venv), str(trees), str(new)])
    node.write("venvs/second/x", "2")
    node.write("tools/one/x", "3")
    venv.unlink()
    venv.symlink_to("venvs/second")
    node.settle("r1")
    theirs = node.write("tools/mine/x", "4")
    assert node.undo()["changed"] and theirs.read_text() == "4", "what no run left stays"
    theirs.unlink()
    theirs.parent.rmdir()
    new.rmdir()
    assert node.all() == before


def test_a_run_that_was_cut_off_before_it_changed_anything_is_not_listed_and_not_taken_back(node: Node) -> None:
    path, other = node.write("a.conf", "0"), node.write("b.conf", "0")
    node.begin("r1", paths=[str(path)])
    path.write_text("1")
    node.settle("r1")
    node.begin("r2", paths=[str(path), str(other)])
    listed = node.module("node_rollback", state="runs")["rollback"]["runs"]
    assert [(row["run"], row["changed"]) for row in listed] == [("r1", {"paths": 1})]
    assert node.module("node_rollback", state="look")["rollback"]["runs"] == ["r1"]
    other.write_text("1")
    listed = node.module("node_rollback", state="runs")["rollback"]["runs"]
    assert [(row["run"], row["changed"], row["settled"]) for row in listed][1:] == [("r2", {"paths": 1}, False)]
    assert node.module("node_rollback", state="look")["rollback"]["runs"] == ["r2"]


def test_live_values_come_back_unless_somebody_else_set_them(node: Node) -> None:
    mtu, rings, same = node.write("mtu", "1500\n"), node.write("rings", "256"), node.write("same", "7")
    node.begin("r1", values=[str(node.etc / "mtu"), str(rings), str(same)])
    mtu.write_text("9000\n")
    rings.write_text("4096")
    node.settle("r1")
    rings.write_text("1024")
    done = node.undo()
    assert mtu.read_text() == "1500" and rings.read_text() == "1024" and same.read_text() == "7"
    assert any(str(rings) in line and "did not set" in line for line in done["rollback"]["warnings"])


def test_what_roles_hold_is_recorded_before_they_give_it_back(node: Node) -> None:
    value = node.write("mtu", "9000\n")
    held = node.state / "nic.json"
    node.state.mkdir()
    held.write_text(json.dumps({str(value): {"before": "1500", "after": "9000"}}))
    node.begin("r1", held=[str(held)], paths=[str(held)])
    value.write_text("1500\n")
    held.unlink()
    node.settle("r1")
    node.undo()
    assert value.read_text() == "9000" and json.loads(held.read_text())[str(value)]["before"] == "1500"


@pytest.mark.parametrize("at", ["write_whole", "rename"])
def test_a_record_is_whole_or_not_there(node: Node, utils: Any, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    record_module, store_module, files = utils("undo.record"), utils("undo.store"), utils("files")
    path, store = node.write("a", "0"), store_module.Store(str(node.state))

    class CutError(BaseException):
        """As SIGKILL: nothing that handles errors sees it."""

    def cut(*_: Any, **__: Any) -> None:
        raise CutError

    touches = record_module.joined({"a_touches": {"paths": [str(path)]}})
    with monkeypatch.context() as patch:
        patch.setattr(files if at == "write_whole" else os, at, cut)
        with store.locked(), pytest.raises(CutError):
            record_module.begin(store, None, "r1", {}, touches)
    assert not store.exists("r1")
    assert not node.begin("r2", paths=[str(path)]).get("failed") and node.records() == ["r2"]
    assert not list(node.state.rglob(".new-*")) and not list(node.state.rglob(".nodectl-*"))


@pytest.mark.parametrize(
    ("touches", "words"),
    [
        ({"pahts": ["/etc/a"]}, "a_touches.pahts"),
        ({"paths": "/etc/a"}, "a_touches.paths"),
        ({"paths": ["etc/a"]}, "absolute"),
        ({"paths": ["/etc/../a"]}, "absolute"),
        ({"trees": ["/"]}, "absolute"),
    ],
)
def test_what_a_role_declares_wrongly_is_refused(node: Node, touches: dict[str, Any], words: str) -> None:
    answer = node.begin("r1", **touches)
    assert answer["failed"] and words in answer["msg"] and not node.records()


@pytest.mark.parametrize("name", ["../r", "start", "", "a b", ".hidden"])
def test_a_run_needs_a_plain_name(node: Node, name: str) -> None:
    assert node.begin(name)["failed"] and not node.state.exists()


def test_two_processes_at_once_take_turns(node: Node) -> None:
    paths = [node.write(f"f{number}", "0") for number in range(4)]
    answers: list[dict[str, Any]] = []
    threads = [
        threading.Thread(target=lambda path=path: answers.append(node.begin("r1", paths=[str(path)]))) for path in paths
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    record = json.loads((node.state / "runs" / "r1" / "record.json").read_text())
    assert not any(answer.get("failed") for answer in answers)
    assert {str(path) for path in paths} <= set(record["before"]["paths"])


def test_runs_and_trials_are_named_here_as_on_the_nodes(utils: Any) -> None:
    for name in ("start", f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-4711", new_id(datetime.now(UTC))):
        assert utils("undo.store").RUN_NAME.fullmatch(name) and RUN_NAME.fullmatch(name)
    assert utils("undo.trials").ROOT == TRIALS
