"""NCCL Inspector's lines in a job's folder: read as they come, hostile ones left out, files kept small."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from nodectl.payload.jobs import outputs
from nodectl.payload.jobs.folder import JobFolder
from nodectl.payload.jobs.inspector import Inspector, find, summary, variables
from tests.jobs.inspected import BUILT, COMM, line

PLAN = {"nproc_per_node": 2, "hosts": [{"name": "a"}, {"name": "b"}]}


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobFolder:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = JobFolder("20261128-090000-abcd")
    Path(folder.path).mkdir(parents=True)
    return folder


def write(job: JobFolder, text: str | bytes, place: str = "3", name: str = "gpu01-pid7.log") -> Path:
    path = Path(job.at("inspect"), place, name)
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    return path


def looked(reader: Inspector, job: JobFolder) -> list[dict[str, Any]]:
    reader.look(last=True)
    return summary(job) or []


def test_a_rank_s_collectives_are_told_by_kind_and_size_with_their_medians(job: JobFolder) -> None:
    reader = Inspector(job, PLAN)
    for at, busbw in enumerate((100.0, 150.0, 400.0)):
        write(job, line(rank=1, number=at, busbw=busbw, verbose=at == 1))
        reader.look()
    write(job, line(kind="AllGather", size=1 << 20, busbw=70) + line(kind="Send", p2p=True, busbw=20))
    rows = {row["kind"]: row for row in looked(reader, job)}
    reduced = rows["AllReduce"]
    assert (reduced["rank"], reduced["comm"], reduced["ranks"], reduced["nodes"]) == (
        3,
        COMM,
        4,
        2,
    )
    assert (reduced["count"], reduced["busbw_gbs"], reduced["size_bytes"], reduced["time_us"]) == (
        3,
        150.0,
        64 << 20,
        2100,
    )
    assert (rows["AllGather"]["busbw_gbs"], rows["Send"]["busbw_gbs"]) == (70.0, 20.0)


@pytest.mark.parametrize("version", BUILT)
def test_what_the_plug_in_writes_is_read(job: JobFolder, version: str) -> None:
    reader = Inspector(job, PLAN)
    write(job, BUILT[version] * 3)
    (row,) = looked(reader, job)
    assert (row["kind"], row["size_bytes"], row["count"], row["busbw_gbs"]) == ("AllGather", 64 << 20, 3, 287.609)


def test_a_line_that_comes_in_pieces_is_read_once(job: JobFolder) -> None:
    reader, text = Inspector(job, PLAN), line() * 3
    for at in range(0, len(text), 100):
        write(job, text[at : at + 100])
        reader.look()
    assert [row["count"] for row in looked(reader, job)] == [3]


def test_without_python_in_the_rank_the_world_s_communicator_tells_it(job: JobFolder) -> None:
    reader = Inspector(job, PLAN)
    write(job, line(rank=2) + line(rank=1, ranks=2, comm="0xab"), place=".")
    assert {row["comm"]: row["rank"] for row in looked(reader, job)} == {COMM: 2, "0xab": None}


HOSTILE: list[str | bytes] = [
    "[" * 30_000 + "\n", "{}\n", "7\n", "null\n", b"\0\xff\xfe{\n", line(kind="x" * 99), line(kind="\x1b[31m"),
    line(comm="a\\nb"),
    line(busbw=float("nan")), line(busbw=float("inf")), line(busbw=-1), line(busbw=0), line(size=0), line(size=1 << 60),
    line(rank=-1), line(rank=10**6), line(nodes=1 << 40), line(time_us=-5), line().replace("150.000000", "9" * 400),
    line().replace('"header":{', '"header":[{'), line().replace(":4,", ':"4",'),
    line().replace("150.000000", '"nan"'), "x" * 200_000 + "\n", '{"header":{"id":7},"coll_perf":{"coll":7}}\n',
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_line_is_left_out(job: JobFolder, text: str | bytes) -> None:
    reader = Inspector(job, PLAN)
    write(job, text)
    write(job, "\n" + line(busbw=33))
    assert [row["busbw_gbs"] for row in looked(reader, job)] == [33.0]


def test_what_is_no_file_of_the_plug_in_is_not_touched(job: JobFolder, tmp_path: Path) -> None:
    reader, other = Inspector(job, PLAN), tmp_path / "precious"
    other.write_bytes(b"x" * (9 << 20))
    folder = Path(job.at("inspect"))
    (folder / "0.log").symlink_to(other)
    (folder / "7").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe.log")
    (folder / "deep.log").mkdir()
    assert looked(reader, job) == [] and other.stat().st_size == 9 << 20


@pytest.mark.parametrize("holes", [True, False])
def test_files_stay_below_their_limit_and_reading_goes_on(
    job: JobFolder, monkeypatch: pytest.MonkeyPatch, holes: bool
) -> None:
    def refuse(path: str, end: int) -> None:
        raise OSError(95, "no holes here")

    if not holes:
        monkeypatch.setattr(outputs, "punch", refuse)
    reader, path = Inspector(job, PLAN), Path(job.at("inspect"), "3", "gpu01-pid7.log")
    path.parent.mkdir()
    with path.open("wb") as file:  # as the plug-in: opened once, not for appending
        for _ in range(6):
            file.write(line().encode() * 8000)
            file.flush()
            reader.look(last=True)
            assert path.stat().st_blocks * 512 <= 13 << 20
        before = looked(reader, job)[0]["count"]
        file.write(line().encode() * 10)
        file.flush()
        reader.look(last=True)
    assert looked(reader, job)[0]["count"] == before + 10


def test_a_full_disk_and_many_files_do_no_harm(job: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Inspector(job, PLAN)
    for at in range(80):
        write(job, line(comm=f"0x{at:x}"), name=f"gpu01-pid{at:02}.log")
    assert len(looked(reader, job)) == 64

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    write(job, line(busbw=1), name="gpu01-pid00.log")
    monkeypatch.setattr(os, "replace", full)
    reader.look(last=True)
    assert len(summary(job) or []) == 64
    Path(job.at("inspect.json")).write_text("{]")
    assert summary(job) == []


def test_a_job_that_is_not_inspected_is_another_thing_than_one_without_collectives(job: JobFolder) -> None:
    assert summary(job) is None
    assert looked(Inspector(job, PLAN), job) == []


def test_another_attempt_begins_anew(job: JobFolder) -> None:
    reader = Inspector(job, PLAN)
    write(job, line())
    assert looked(reader, job)
    assert looked(Inspector(job, PLAN), job) == []


def test_own_settings_stay_and_the_plug_in_is_found(job: JobFolder, tmp_path: Path) -> None:
    place = tmp_path / "venv/lib/python3.12/site-packages/nvidia/nccl/lib"
    place.mkdir(parents=True)
    plugin = place / "libnccl-profiler-inspector.so"
    assert find("", str(tmp_path / "venv")) in ("", "/usr/local/lib/libnccl-profiler-inspector.so")
    plugin.touch()
    assert find("", str(tmp_path / "venv")) == str(plugin)
    assert (find("inspector", ""), find(str(plugin), ""), find(f"{plugin}x", "")) == ("inspector", str(plugin), "")
    ours = variables({"NCCL_INSPECTOR_DUMP_DIR": "/mine"}, str(tmp_path / "venv"), job)
    assert ours["NCCL_PROFILER_PLUGIN"] == str(plugin) and "NCCL_INSPECTOR_DUMP_DIR" not in ours
    assert json.loads(ours["NCCL_INSPECTOR_ENABLE"]) == 1
