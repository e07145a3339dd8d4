"""The code of a job, made of what came and what earlier launches brought; each file proven."""

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from nodectl.payload.jobs import code_store
from nodectl.payload.jobs.folder import JobFolderError


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "nodectl"


def receive(
    state: Path, name: str, files: dict[str, str], sent: tuple[str, ...], project: Any = "mine-1234abcd"
) -> Path:
    """A job's folder of these files, of which the texts `sent` came along; what begins with #! is executable."""
    job = state / "jobs" / name
    job.mkdir(parents=True)
    (job / "blobs").write_text("".join(sent))
    sizes = [(sha(text), len(text)) for text in sent]
    manifest = {place: [sha(text), text.startswith("#!")] for place, text in files.items()}
    (job / "files.json").write_text(json.dumps({"project": project, "files": manifest, "blobs": sizes}))
    code_store.assemble(str(job))
    return job


def test_only_what_is_new_need_come(state: Path) -> None:
    first = receive(state, "a", {"train.py": "one", "bin/go": "#!/bin/sh"}, ("one", "#!/bin/sh"))
    assert (first / "code/train.py").read_text() == "one" and os.access(first / "code/bin/go", os.X_OK)
    assert sorted(path.name for path in first.iterdir()) == ["code"]
    assert code_store.kept("mine-1234abcd") == sorted((sha("one")[:16], sha("#!/bin/sh")[:16]))
    (first / "code/train.py").write_text("changed by the job")
    second = receive(state, "b", {"train.py": "one", "copy.py": "one", "new.py": "two"}, ("two",))
    assert {path.name: path.read_text() for path in (second / "code").iterdir()} == {
        "train.py": "one",
        "copy.py": "one",
        "new.py": "two",
    }
    assert code_store.kept("other-1234abcd") == [] == code_store.kept("")


def test_what_is_damaged_or_gone_is_said_and_sent_the_next_time(state: Path) -> None:
    receive(state, "a", {"train.py": "one"}, ("one",))
    (state / "code/mine-1234abcd" / sha("one")).write_text("0ne")
    with pytest.raises(JobFolderError, match=r"was damaged .*launch again"):
        receive(state, "b", {"train.py": "one"}, ())
    assert code_store.kept("mine-1234abcd") == []
    with pytest.raises(JobFolderError, match=r"is gone .*launch again"):
        receive(state, "c", {"train.py": "one"}, ())


@pytest.mark.parametrize("place", ["../plan.json", "/etc/passwd", "a/../../x", ".", ""])
def test_a_place_outside_the_code_is_refused(state: Path, place: str) -> None:
    with pytest.raises(JobFolderError, match="no place in the code"):
        receive(state, "a", {place: "one"}, ("one",))


def test_what_no_launch_used_within_the_hour_is_removed(state: Path) -> None:
    receive(state, "a", {"train.py": "one", "old.py": "two"}, ("one", "two"))
    store = state / "code/mine-1234abcd"
    long_ago = time.time() - 7200
    for path in store.iterdir():
        os.utime(path, (long_ago, long_ago))
    receive(state, "b", {"train.py": "one"}, ())
    assert code_store.kept("mine-1234abcd") == [sha("one")[:16]], "used again, and the other is the project's no more"
    code_store.clean()
    assert code_store.kept("mine-1234abcd") == [sha("one")[:16]]
    os.utime(store / sha("one"), (long_ago, long_ago))
    code_store.clean()
    assert not store.exists()
