"""Up, twice, down: and nothing is left, whatever happened in between."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.lab.state import LabFolder
from tests.conftest import Cli

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("lab_machine")]


@pytest.fixture
def own(cli_env: dict[str, str], tmp_path: Path) -> Iterator[Cli]:
    """The command line with a state folder of its own, so that what is left can be seen."""
    cli = Cli({**cli_env, "XDG_STATE_HOME": str(tmp_path / "state home"), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    yield cli
    cli("lab", "down")


def traces(folder: Path) -> dict[str, list[str]]:
    """All that a lab whose state lies in `folder` may leave on a machine."""
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if folder.name in line]
    processes = []
    for entry in Path("/proc").glob("[1-9]*"):
        try:
            seen = (entry / "mountinfo").read_text().replace("\\040", " ")
            opened = [str(path.readlink()) for path in (entry / "fd").iterdir()]
        except OSError:
            continue
        if f"upperdir={folder}" in seen or any(str(folder) in target for target in opened):
            processes.append(entry.name)
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    loops = subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=False).stdout
    return {
        "mounts": mounts,
        "processes": processes,
        "files": files,
        "loops": [line for line in loops.splitlines() if folder.name in line],
    }


def machine(tmp_path: Path) -> dict[str, object]:
    """What the lab may leave outside its folder; the interfaces of others come and go."""
    own_lab = LabFolder(tmp_path / "state home/nodectl/lab/lab")
    return {
        "links": [path.name for path in Path("/sys/class/net").iterdir() if path.name == own_lab.uplink],
        "groups": [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/{own_lab.cgroup}")],
    }


NOTHING: dict[str, list[str]] = {"mounts": [], "processes": [], "files": [], "loops": []}


def test_up_twice_down_twice_leaves_nothing(own: Cli, tmp_path: Path) -> None:
    before = machine(tmp_path)
    first = own("lab", "up", "-n", "2", "--disk", "256M")
    assert first.stdout == f"{tmp_path}/state home/nodectl/lab/lab/inventory.yml\n"
    assert own("lab", "up", "-n", "2", "--disk", "256M").stdout == first.stdout
    other = own("lab", "up", "-n", "3", check=False)
    assert (other.returncode, other.stdout) == (2, "") and "lab down" in other.stderr
    assert traces(tmp_path)["processes"]
    own("lab", "down")
    own("lab", "down")
    assert traces(tmp_path) == NOTHING
    assert machine(tmp_path) == before


POINTS = ("lab.json", "switch.net", "base/etc/hosts", "hosts/node09/disk/upper0", "known_hosts")
SHAPES = ("--rate 1gbit", "--delay 5ms", "--disk 128M")
# a disk is there from early on, a cable's shape once the cable is: the other points see it only in `make test-all`
QUICK = {("hosts/node09/disk/upper0", "--disk 128M"), ("known_hosts", "--delay 5ms"), ("switch.net", "--rate 1gbit")}
KILLED = [
    pytest.param(point, shape.split(), id=f"{point}-{shape}", marks=() if (point, shape) in QUICK else pytest.mark.slow)
    for point in POINTS
    for shape in SHAPES
]


@pytest.mark.parametrize(("point", "shape"), KILLED)
def test_an_up_that_is_killed_half_way_can_be_taken_down(
    own: Cli, tmp_path: Path, shape: list[str], point: str
) -> None:
    before = machine(tmp_path)
    end_up_at(own, tmp_path, shape, point, signal.SIGKILL)
    own("lab", "down")
    assert traces(tmp_path) == NOTHING
    assert machine(tmp_path) == before


@pytest.mark.parametrize(
    "point",
    ["hosts/node09/root", *(pytest.param(at, marks=pytest.mark.slow) for at in ("switch.net", "inventory.yml"))],
)
def test_an_interrupted_up_cleans_up_by_itself(own: Cli, tmp_path: Path, point: str) -> None:
    before = machine(tmp_path)
    status = end_up_at(own, tmp_path, [], point, signal.SIGINT)
    if status == 0:  # it was faster
        assert point == "inventory.yml"
    else:
        assert status == 130
        assert traces(tmp_path) == NOTHING
        assert machine(tmp_path) == before


def end_up_at(own: Cli, tmp_path: Path, shape: list[str], point: str, how: signal.Signals) -> int:
    """Start `lab up` of 9 hosts and end it as soon as it has made `point`; its exit status."""
    argv = [sys.executable, "-m", "nodectl", "lab", "up", "-n", "9", *shape]
    launcher = subprocess.Popen(argv, env=own.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    awaited = tmp_path / "state home/nodectl/lab/lab" / point
    while not awaited.exists() and launcher.poll() is None:
        time.sleep(0.0005)
    launcher.send_signal(how)
    return launcher.wait()


def test_up_makes_a_whole_lab_of_a_half_made_one(own: Cli, tmp_path: Path) -> None:
    before = machine(tmp_path)
    own("lab", "up", "-n", "2")
    journal = tmp_path / "state home/nodectl/lab/lab/lab.json"
    journal.write_text(json.dumps({**json.loads(journal.read_text()), "complete": False}))
    own("lab", "up", "-n", "3")
    states = [host["state"] for host in json.loads(own("lab", "status", "--output", "json").stdout)["hosts"]]
    assert states == ["up", "up", "up"]
    own("lab", "down")
    assert machine(tmp_path) == before


@pytest.mark.parametrize("damage", [pytest.param("no journal", marks=pytest.mark.slow), "damaged journal", "no files"])
@pytest.mark.parametrize("shape", [pytest.param([], marks=pytest.mark.slow), ["--delay", "5ms"]], ids=["veth", "delay"])
def test_down_finds_what_the_journal_has_lost(own: Cli, tmp_path: Path, damage: str, shape: list[str]) -> None:
    before = machine(tmp_path)
    own("lab", "up", "-n", "2", *shape)
    folder = tmp_path / "state home/nodectl/lab/lab"
    if damage == "no journal":
        (folder / "lab.json").unlink()
    elif damage == "damaged journal":
        (folder / "lab.json").write_text("{")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    own("lab", "down")
    assert traces(tmp_path) == NOTHING
    assert machine(tmp_path) == before


def test_nothing_of_the_caller_is_kept_open(own: Cli) -> None:
    """`out=$(nodectl lab up)` would hang if a host held the pipe."""
    started = time.monotonic()
    done = subprocess.run(
        ["sh", "-c", f'out=$({sys.executable} -m nodectl lab up -n 2 --delay 1ms); echo "[$out]"'],
        env={**own.env, "SECRET": "not-for-hosts"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith("[/") and time.monotonic() - started < 20
    for host in json.loads(own("lab", "status", "--output", "json").stdout)["hosts"]:
        assert "SECRET" not in Path(f"/proc/{host['pid']}/environ").read_text()
        targets = {os.readlink(path) for path in Path(f"/proc/{host['pid']}/fd").iterdir()}  # noqa: PTH115
        assert not [target for target in targets if "pipe" in target]


def test_status_without_a_lab_and_with_a_dead_host(own: Cli) -> None:
    empty = json.loads(own("--output", "json", "lab", "status").stdout)
    assert (empty["schema"], empty["inventory"], empty["hosts"]) == ("nodectl.lab-status/1", None, [])
    own("lab", "up", "-n", "2")
    hosts = json.loads(own("lab", "status", "--output", "json").stdout)["hosts"]
    os.kill(hosts[1]["pid"], signal.SIGKILL)
    time.sleep(0.2)
    after = json.loads(own("lab", "status", "--output", "json").stdout)["hosts"]
    assert [host["state"] for host in after] == ["up", "down"]
    assert after[1]["pid"] is None


def loops() -> dict[int, bool]:
    """Numbers of the loop devices, and whether somebody uses each; other labs may come and go meanwhile."""
    found = Path("/sys/block").glob("loop*")
    return {int(path.name[4:]): (path / "loop" / "backing_file").exists() for path in found}


@pytest.fixture
def taken(tmp_path: Path) -> Iterator[None]:
    """The loop devices that others left idle are in use, so that a lab must add its own."""
    backing = tmp_path / "taken"
    backing.write_bytes(bytes(1 << 20))
    idle = [f"/dev/loop{number}" for number, used in loops().items() if not used]
    taken = [path for path in idle if subprocess.run(["losetup", path, backing], check=False).returncode == 0]
    yield
    if taken:
        subprocess.run(["losetup", "-d", *taken], check=True)


def test_loop_devices_that_the_lab_added_are_removed(own: Cli, taken: None) -> None:
    # a lab of another test that goes down meanwhile leaves its devices to this one, which then adds none
    for more in (2, 2, 10, 10, 20):
        before = loops()
        own("lab", "up", "-n", str(list(before.values()).count(False) + more), "--disk", "64M")
        added = loops().keys() - before.keys()
        own("lab", "down")
        if added:
            break
    assert added
    assert [number for number, used in loops().items() if number in added and not used] == []


def test_two_labs_do_not_touch_each_other(own: Cli) -> None:
    own("lab", "up", "-n", "1", "--name", "a")
    own("lab", "up", "-n", "1", "--name", "b")
    subnets = {json.loads(own("lab", "status", "--name", name, "--output", "json").stdout)["subnet"] for name in "ab"}
    assert len(subnets) == 2
    own("lab", "down", "--name", "a")
    assert json.loads(own("lab", "status", "--name", "b", "--output", "json").stdout)["hosts"][0]["state"] == "up"
    own("lab", "down", "--name", "b")


@pytest.mark.parametrize("shape", [pytest.param((), marks=pytest.mark.slow), ("--delay", "1ms")])
def test_two_at_once_in_different_folders_take_different_addresses(
    cli_env: dict[str, str], tmp_path: Path, shape: tuple[str, ...]
) -> None:
    folders = [tmp_path / "one", tmp_path / "other"]
    argv = [sys.executable, "-m", "nodectl", "lab", "up", "-n", "2", "--disk", "none", *shape]
    envs = [{**os.environ, **cli_env, "XDG_STATE_HOME": str(folder)} for folder in folders]
    up = [subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for env in envs]
    try:
        assert [(each.communicate(timeout=60)[1], each.returncode)[1] for each in up] == [0, 0]
        subnets = {json.loads((folder / "nodectl/lab/lab/lab.json").read_text())["subnet"] for folder in folders}
        assert len(subnets) == 2
        for env in envs:
            assert Cli(env)("lab", "status").returncode == 0
    finally:
        for env in envs:
            Cli(env)("lab", "down", check=False)
