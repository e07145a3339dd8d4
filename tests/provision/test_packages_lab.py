"""Packages there and back with a lab host's real apt and dpkg; they are this test's own and hold next to nothing.

None of them is NVIDIA's: one bears a name of the driver family, because the name is what rollback goes by.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodectl.common.resources import share_dir
from tests.node_snapshot import compare
from tests.provision.conftest import EXCEPTIONS, Fleet

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(300)]

HOST = "node01"
DRIVER = "nvidia-driver-999"
PACKAGES = [
    ("tool", "1.0", ""),
    ("tool", "2.0", ""),
    ("libnew", "1.0", ""),
    ("appnew", "1.0", "libnew (>= 1.0)"),
    ("helpernew", "1.0", ""),
    (DRIVER, "999.10", "helpernew"),
    ("theirs", "1.0", "libnew"),
]
# run on the host: build the packages and a repository of them
BUILD = """
set -e; mkdir -p /tmp/debs; cd /tmp/debs
build() { # name version depends
  rm -rf tree; mkdir -p "tree/DEBIAN" "tree/etc/$1.d"; echo "$2" > "tree/etc/$1.d/conf"
  echo "/etc/$1.d/conf" > tree/DEBIAN/conffiles
  { echo "Package: $1"; echo "Version: $2"; echo "Architecture: all"; echo "Maintainer: nobody <n@example.org>"
    [ -z "$3" ] || echo "Depends: $3"; echo "Description: a test's own"; } > tree/DEBIAN/control
  dpkg-deb --build --root-owner-group -Znone tree "$1_$2.deb" > /dev/null
  { cat tree/DEBIAN/control; echo "Filename: ./$1_$2.deb"; echo "Size: $(stat -c %s "$1_$2.deb")"
    echo "SHA256: $(sha256sum "$1_$2.deb" | cut -d' ' -f1)"; echo; } >> Packages
}
rm -f Packages
"""
APT = "DEBIAN_FRONTEND=noninteractive apt-get -y -q -o Dpkg::Options::=--force-confold"
LIST = "/etc/apt/sources.list.d/of-a-test.list"
ONLY = f"-o Dir::Etc::sourcelist={LIST} -o Dir::Etc::sourceparts=/nonexistent"


@pytest.fixture
def host(fleet: Callable[..., Fleet]) -> Fleet:
    """A host whose apt knows the packages, with the older tool installed and held."""
    made = fleet(HOST)
    builds = "".join(f"build '{name}' '{version}' '{depends}'\n" for name, version, depends in PACKAGES)
    source = f"echo 'deb [trusted=yes] file:/tmp/debs ./' > {LIST}; {APT} {ONLY} update"
    script = f"{BUILD}{builds}{source}\n{APT} install tool=1.0\napt-mark hold tool\necho done"
    said = made.lab.ssh(HOST, script)
    assert "\ndone" in said, said
    return made


def module(fleet: Fleet, name: str, fails: bool = False, **arguments: Any) -> dict[str, Any]:
    """A module of nodectl's playbooks, run on the host by Ansible."""
    argv = [str(Path(sys.executable).with_name("ansible")), "-i", fleet.inventory, HOST, "-m", f"nodectl.fleet.{name}"]
    argv += ["-a", json.dumps(arguments)]
    env = dict(fleet.cli.env)
    done = subprocess.run(argv, cwd=share_dir(), env=env, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.partition("=> ")[2])
    return answer


def test_packages_versions_holds_and_marks_come_back_and_the_driver_by_name_only(host: Fleet) -> None:
    before = host.snapshot()[HOST]
    assert before["hold tool"] and before["package tool"] == "hi 1.0"
    module(host, "node_record", state="begin", run="r1", touches={"a_touches": {"packages": True}})
    changes = f"{APT} --allow-change-held-packages install tool=2.0 appnew {DRIVER} && apt-mark unhold tool"
    said = host.lab.ssh(HOST, f"{changes} && apt-mark hold appnew && apt-mark auto tool && echo done")
    assert "\ndone" in said, said
    assert module(host, "node_record", state="settle", run="r1")["kept"]
    said = host.lab.ssh(HOST, f"{APT} install theirs && echo done")
    assert "\ndone" in said, said

    done = host.run("rollback")
    plan = done["rollback"][HOST]
    now = host.snapshot()[HOST]
    assert sorted(plan["kept"]) == ["helpernew", "libnew", DRIVER]
    assert f"packages of the GPU driver stay (--packages takes them back): {DRIVER}" in done["said"]
    assert "package libnew stays, needed by theirs" in done["said"]
    assert "package helpernew stays, needed by nvidia-driver-999" in done["said"]
    assert now["package tool"] == "hi 1.0" and now["manual tool"] and "package appnew" not in now
    assert now[f"package {DRIVER}"] == "ii 999.10"
    assert host.changed("rollback") == {0}, "what had to stay waits for --packages"

    host.lab.ssh(HOST, f"{APT} purge theirs")
    listed = host.run("rollback", "--list")["runs"][HOST]
    assert [(entry["run"], entry["left"]) for entry in listed] == [("r1", True)]
    host.run("rollback", "--packages")
    assert compare(before, host.snapshot()[HOST], EXCEPTIONS) == []
    assert host.run("rollback", "--list")["runs"][HOST] == []


def test_what_apt_no_longer_has_is_named_and_another_run_finishes(host: Fleet) -> None:
    before = host.snapshot()[HOST]
    module(host, "node_record", state="begin", run="r1", touches={"a_touches": {"packages": True}})
    host.lab.ssh(HOST, f"{APT} --allow-change-held-packages install tool=2.0 appnew")
    module(host, "node_record", state="settle", run="r1")
    gone = "cp /tmp/debs/Packages /tmp/all; : > /tmp/debs/Packages"
    host.lab.ssh(HOST, f"{gone}; {APT} {ONLY} update")
    failed = host.run("rollback", status=1)
    assert "tool=1.0: apt no longer has it; add its repository, then roll back again" in failed["said"]
    host.lab.ssh(HOST, f"cp /tmp/all /tmp/debs/Packages; {APT} {ONLY} update")
    host.run("rollback")
    assert compare(before, host.snapshot()[HOST], EXCEPTIONS) == []


def test_a_list_that_names_what_the_repository_replaced_is_read_again_once(host: Fleet) -> None:
    wanted: dict[str, Any] = {"check": "stale", "packages": [{"names": ["helpernew"], "version": "1.*"}], "hold": False}
    newer = f"{BUILD}mv helpernew_1.0.deb /tmp; build helpernew 1.1 ''; echo done"
    assert "done" in host.lab.ssh(HOST, newer)
    assert module(host, "pinned_packages", **wanted)["installed"] == {"helpernew": "1.1"}
    host.lab.ssh(HOST, f"{APT} purge helpernew; rm /tmp/debs/helpernew_1.1.deb")
    refused = module(host, "pinned_packages", fails=True, **wanted)
    assert "apt could not install helpernew" in refused["msg"] and "helpernew_1.1.deb" in refused["msg"]
