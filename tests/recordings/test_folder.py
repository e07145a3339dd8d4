"""A recording's folder, whoever made it: read with care, written whole, chosen by pattern."""

import json
import os
import resource
import stat
from pathlib import Path
from typing import Any

import pytest

from nodectl.common.files import folder_name
from nodectl.errors import InventoryError, ParseError, UsageError
from nodectl.model.host import Host
from nodectl.model.recording import Command, Entry, Recording
from nodectl.model.result import CommandResult
from nodectl.recordings.collect import CAP_BYTES
from nodectl.recordings.folder import bundled, host_name, open_recording, read_host
from nodectl.recordings.save import prepare, write_host
from nodectl.recordings.source import ReplaySource, replay_source, select

FULL = Recording(
    "gpu01",
    {
        "uname": Entry("uname", ("uname", "-srm"), 0, "Linux 6.1 x86_64\n", "", 0.01),
        "dmesg": Entry("dmesg", ("dmesg",), 1, "", "sudo: a password is required\n", 0.02),
        "nvidia-smi-q": Entry("nvidia-smi-q", ("nvidia-smi", "-q"), 127, "", "", 0.0),
        "lspci-acs": Entry("lspci-acs", ("lspci",), None, "half", "", 1.5, cut=True),
        "odd": Entry("odd", ("sh", "-c", "é\n$(x)"), 0, "é\x1b[31m\r\n\ufffd", "", 0.0),
    },
    clock_offset_s=-0.25,
    clock_error_s=0.125,
    time=1_700_000_000.0,
)


def fleet_of(path: Path, **files: str) -> Path:
    """DIR/host__key='text' as files; `__` parts host and key, a dot is written `_dot_`."""
    for name, text in files.items():
        host, _, key = name.partition("__")
        (path / host).mkdir(parents=True, exist_ok=True)
        (path / host / key.replace("_dot_", ".")).write_text(text, encoding="utf-8")
    return path


class TestRoundTrip:
    def test_what_was_written_is_read(self, tmp_path: Path) -> None:
        prepare(tmp_path / "r", {"gpu01": {"hardware": "dgx-a100"}})
        write_host(tmp_path / "r", FULL)
        found = read_host(tmp_path / "r" / "gpu01", "gpu01", "r")
        assert {k: (e.argv, e.exit_status, e.stdout, e.stderr, e.cut) for k, e in found.entries.items()} == {
            k: (e.argv, e.exit_status, e.stdout, e.stderr, e.cut) for k, e in FULL.entries.items()
        }
        assert (found.clock_offset_s, found.clock_error_s, found.time) == (-0.25, 0.125, 1_700_000_000.0)
        assert (found.recorded, all(each.recorded for each in found.entries.values())) == ("r", True)

    def test_its_owner_only_can_read_it(self, tmp_path: Path) -> None:
        prepare(tmp_path / "r", {})
        write_host(tmp_path / "r", FULL)
        modes = {stat.S_IMODE(path.lstat().st_mode) for path in (tmp_path / "r").rglob("*")}
        assert modes == {0o700, 0o600}
        assert stat.S_IMODE((tmp_path / "r").stat().st_mode) == 0o700

    def test_a_second_time_replaces_the_host_and_nothing_else(self, tmp_path: Path) -> None:
        prepare(tmp_path, {"gpu01": {"stack": "cu128"}})
        write_host(tmp_path, FULL)
        prepare(tmp_path, {"gpu02": {"stack": "cu121"}})
        write_host(tmp_path, Recording("gpu02", {}))
        write_host(tmp_path, Recording("gpu01", {"a": Entry("a", ("a",), 0, "x", "", 0.0)}))
        fleet = open_recording(str(tmp_path))
        assert [fleet.profiles_of(host)["stack"] for host in fleet.hosts] == ["cu128", "cu121"]
        assert sorted(path.name for path in (tmp_path / "gpu01").iterdir()) == ["a.out", "index.json"]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["gpu01", "gpu02", "recording.yml"]

    def test_a_folder_that_is_something_else_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").write_text("…")
        with pytest.raises(UsageError, match="no recording"):
            prepare(tmp_path, {})

    def test_masked_and_plain_hosts_do_not_mix(self, tmp_path: Path) -> None:
        prepare(tmp_path, {}, masked=True)
        with pytest.raises(UsageError, match="made anew"):
            prepare(tmp_path, {})


@pytest.mark.parametrize("name", ["gpu01", "../x", "a/b", ".", "..", ".hidden", "", "a b", "ü", "x\n", "%41", "a%2Fb"])
def test_a_hosts_name_is_one_component_and_comes_back(name: str, tmp_path: Path) -> None:
    folder = folder_name(name)
    assert folder not in ("", ".", "..")
    assert "/" not in folder
    assert not folder.startswith(".")
    assert name == "" or host_name(folder) == name
    write_host(tmp_path, Recording(name, {}))
    assert [path.name for path in tmp_path.iterdir()] == [folder]


class TestByHand:
    """What somebody put together without our index."""

    def test_files_alone_work_and_the_rest_is_missing(self, tmp_path: Path) -> None:
        fleet_of(tmp_path, gpu01__ibstat_dot_out="CA 'mlx5_0'\n", gpu02__dmesg_dot_err="oops")
        source = replay_source(open_recording(str(tmp_path)), None)
        first, second = (source.one(host, [Command("ibstat", ()), Command("dmesg", ())]) for host in source.hosts)
        assert isinstance(first, Recording)
        assert isinstance(second, Recording)
        assert (first.entries["ibstat"].stdout, first.entries["ibstat"].exit_status) == ("CA 'mlx5_0'\n", 0)
        assert (list(first.entries), list(second.entries)) == (["ibstat"], [])

    def test_one_hosts_own_folder_is_that_host(self, tmp_path: Path) -> None:
        fleet_of(tmp_path, gpu07__ibstat_dot_out="x")
        assert list(open_recording(str(tmp_path / "gpu07")).hosts) == ["gpu07"]

    def test_natural_order_and_hidden_folders(self, tmp_path: Path) -> None:
        for name in ("gpu10", "gpu2", "gpu1", ".git"):
            (tmp_path / name).mkdir()
        assert list(open_recording(str(tmp_path)).hosts) == ["gpu1", "gpu2", "gpu10"]

    def test_its_profiles_count_where_the_inventory_is_silent(self, tmp_path: Path) -> None:
        fleet_of(tmp_path, a__x_dot_out="", b__x_dot_out="")
        (tmp_path / "recording.yml").write_text(
            "schema: nodectl.recording/1\nhardware: dgx-a100\nstack: cu128\nhosts: {b: {stack: cu121}}\n"
        )
        fleet = open_recording(str(tmp_path))
        inventory = [Host("b", "10.0.0.2", variables={"nodectl_hardware": "h100-8", "x": 1}), Host("c", "c")]
        own, named = replay_source(fleet, None), replay_source(fleet, None, inventory)
        assert [dict(host.variables)["nodectl_stack"] for host in own.hosts] == ["cu128", "cu121"]
        assert dict(named.hosts[0].variables) == {"nodectl_hardware": "h100-8", "x": 1, "nodectl_stack": "cu121"}
        gone = named.one(named.hosts[1], [])
        assert isinstance(gone, CommandResult)
        assert "holds no host 'c'" in gone.error

    @pytest.mark.parametrize(
        "about", ["[", "a: b", "schema: nodectl.recording/9", "schema: nodectl.recording/1\nhosts: [1]"]
    )
    def test_a_description_that_cannot_be_read_is_refused(self, tmp_path: Path, about: str) -> None:
        fleet_of(tmp_path, a__x_dot_out="")
        (tmp_path / "recording.yml").write_text(about)
        with pytest.raises(UsageError, match=r"recording\.yml"):
            open_recording(str(tmp_path))

    def test_neither_a_folder_nor_a_bundled_one(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="no recording at"):
            open_recording("dgx-z900")
        with pytest.raises(UsageError, match="holds no recording"):
            open_recording(str(tmp_path))

    @pytest.mark.parametrize("name", sorted(bundled()))
    def test_a_bundled_one_is_found_by_its_name(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        fleet = open_recording(name)
        assert (fleet.name, fleet.made) == (name, "hand-written")
        assert all(fleet.profiles.get(kind) for kind in ("hardware", "stack", "tuning"))


class TestHostile:
    """Nothing outside the folder is read, nothing blocks, nothing grows without bound."""

    def test_links_lead_nowhere(self, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.write_text("s3cret")
        fleet = fleet_of(tmp_path / "r", a__x_dot_out="fine")
        (fleet / "a" / "link.out").symlink_to(secret)
        (fleet / "b").symlink_to(tmp_path)
        found = read_host(fleet / "a", "a", "r")
        assert list(found.entries) == ["x"]
        with pytest.raises(ParseError, match="link"):
            read_host(fleet / "b", "b", "r")
        (fleet / "a" / "index.json").symlink_to(secret)
        assert list(read_host(fleet / "a", "a", "r").entries) == ["x"]

    def test_a_fifo_does_not_block_and_a_folder_is_no_file(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo.out")
        (tmp_path / "dir.out").mkdir()
        assert read_host(tmp_path, "a", "r").entries == {}

    def test_a_long_text_is_cut_and_marked(self, tmp_path: Path) -> None:
        with (tmp_path / "big.out").open("wb") as stream:
            stream.truncate(100 << 20)
        with (tmp_path / "line.out").open("wb") as stream:
            stream.write(b"x" * (CAP_BYTES + 1))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = read_host(tmp_path, "a", "r", ["line", "big"]).entries
        assert (found["line"].cut, found["line"].exit_status, len(found["line"].stdout)) == (True, None, CAP_BYTES)
        assert (found["big"].cut, found["big"].stdout) == (True, "")  # NUL is dropped
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000

    def test_all_texts_of_a_host_together_are_bounded(self, tmp_path: Path) -> None:
        for number in range(4):
            (tmp_path / f"k{number}.out").write_bytes(b"x" * CAP_BYTES)
        found = read_host(tmp_path, "a", "r").entries
        assert sum(len(each.stdout) for each in found.values()) == 2 * CAP_BYTES
        assert [found[f"k{number}"].cut for number in range(4)] == [False, False, True, True]

    @pytest.mark.parametrize(
        "index", ["{", "[1]", '[{"key": 1}]', '{"a": 1}', "[" * 100_000, '[{"key": "a", "exit_status": "0"}]',
                  '[{"key": "a", "duration_s": "x"}]', '[{"key": "a", "time": "yesterday"}]', '[{"argv": []}]',
                  '[{"key": "a", "exit_status": true}]', '[{"key": "a", "argv": "dmesg"}]',
                  '[{"key": "a", "duration_s": NaN}]', '[{"key": "a", "time": NaN}]']
    )  # fmt: skip
    def test_an_index_that_cannot_be_read_is_said_to_be(self, tmp_path: Path, index: str) -> None:
        (tmp_path / "index.json").write_text(index)
        with pytest.raises(ParseError, match=r"index\.json"):
            read_host(tmp_path, "a", "r")

    def test_keys_that_lead_elsewhere_are_passed_over(self, tmp_path: Path) -> None:
        (tmp_path / "secret.out").write_text("s3cret")
        host = tmp_path / "host"
        host.mkdir()
        rows = [{"key": key, "exit_status": 0} for key in ("../secret", "/etc/passwd", "a/b", "", "ok")]
        (host / "index.json").write_text(json.dumps(rows))
        (host / "ok.out").write_text("")
        found = read_host(host, "a", "r")
        assert list(found.entries) == ["ok"]
        assert found.entries["ok"].stdout == ""

    def test_a_name_that_is_no_text_can_be_shown(self, tmp_path: Path) -> None:
        (tmp_path / os.fsdecode(b"gpu\xff")).mkdir()
        (name,) = open_recording(str(tmp_path)).hosts
        assert name.encode() == "gpu\ufffd".encode()


NAMES = ("gpu1", "gpu2", "gpu10", "web.1", "db")


@pytest.mark.parametrize(
    ("pattern", "chosen"),
    [
        (None, NAMES),
        ("all", NAMES),
        ("gpu*", ("gpu1", "gpu2", "gpu10")),
        ("gpu?", ("gpu1", "gpu2")),
        ("gpu[1-2]", ("gpu1", "gpu2")),
        ("gpu[1,10],db", ("gpu1", "gpu10", "db")),
        ("gpu*:!gpu2", ("gpu1", "gpu10")),
        ("all:&gpu1*", ("gpu1", "gpu10")),
        ("!db", ("gpu1", "gpu2", "gpu10", "web.1")),
        ("~gpu\\d$", ("gpu1", "gpu2")),
        ("web.1", ("web.1",)),
    ],
)
def test_patterns(pattern: str | None, chosen: tuple[str, ...]) -> None:
    assert select(NAMES, pattern) == chosen


@pytest.mark.parametrize("pattern", ["nobody", "gpu[7-9]", "gpu*:!gpu*"])
def test_a_pattern_of_nobody_is_told(pattern: str) -> None:
    with pytest.raises(InventoryError, match="no host of the recording"):
        select(NAMES, pattern)


def test_a_replay_reads_what_is_asked_and_no_more(tmp_path: Path) -> None:
    fleet_of(tmp_path, a__x_dot_out="1", a__y_dot_out="2")
    source = replay_source(open_recording(str(tmp_path)), None)
    assert isinstance(source, ReplaySource)
    ((_, found),) = source.recordings(lambda host: [Command("x", ())])
    assert isinstance(found, Recording)
    assert list(found.entries) == ["x"]


def indexed(folder: Path, *rows: dict[str, Any], **files: str) -> Path:
    (folder / "index.json").write_text(json.dumps(rows))
    for key, text in files.items():
        (folder / f"{key}.out").write_text(text)
    return folder


def test_what_the_index_has_and_the_folder_has_not_is_not_an_empty_output(tmp_path: Path) -> None:
    rows = [
        {"key": "dmesg", "exit_status": 0},
        {"key": "uname", "exit_status": 0},
        {"key": "ibstat", "exit_status": 127},
    ]
    folder = indexed(tmp_path, *rows, uname="")
    (folder / "dmesg.out").symlink_to("/dev/null")
    found = read_host(folder, "a", "r").entries
    assert "dmesg" not in found and found["uname"].stdout == "" and found["ibstat"].exit_status == 127


def test_without_an_exit_status_it_ended_well_and_with_none_it_was_cut(tmp_path: Path) -> None:
    folder = indexed(tmp_path, {"key": "a"}, {"key": "b", "exit_status": None}, a="1", b="2")
    found = read_host(folder, "a", "r").entries
    assert (found["a"].exit_status, found["a"].cut, found["b"].cut) == (0, False, True)


@pytest.mark.parametrize("text", ['{"offset_s": NaN, "error_s": 1}', '{"offset_s": 1, "error_s": Infinity}', "[]", "{"])
def test_a_clock_that_is_no_number_is_not_told(tmp_path: Path, text: str) -> None:
    found = read_host(indexed(tmp_path, clock=text), "a", "r")
    assert (found.clock_offset_s, found.clock_error_s) == (None, None)
