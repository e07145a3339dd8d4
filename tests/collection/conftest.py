"""The collection as somebody else has it: built, installed into an empty folder, run by an Ansible without nodectl."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodectl import __version__
from scripts.dist import collection
from tests.conftest import Cli, LabUnderTest
from tests.pythons import pythons_of

_ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, slots=True)
class End:
    """One end of the promise in pyproject.toml: an ansible-core, and the Pythons that it runs on."""

    core: str
    pythons: tuple[str, ...]


# the largest of nodectl's packages; only figures of measurements are judged with it
_NOT_BY_PLAYBOOKS = ("scipy",)

ENDS = {"oldest": End("2.16", ("3.11", "3.12")), "newest": End("2.21", ("3.12", "3.13", "3.14"))}


@dataclass(frozen=True, slots=True)
class Controller:
    """Another machine's Ansible: its programs, the folder that the collection was installed into, its environment."""

    bin: Path
    collections: Path
    env: Mapping[str, str]

    def run(self, folder: Path, *argv: str, package: bool = False) -> str:
        """What the program says, in a folder of its own; the test fails where it ends with an error."""
        done = self.attempt(folder, *argv, package=package)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def attempt(self, folder: Path, *argv: str, package: bool = False) -> subprocess.CompletedProcess[str]:
        """`package`: nodectl is in this Ansible's Python, too."""
        more = {"PYTHONPATH": str(self.collections.parent / "package")} if package else {}
        return subprocess.run(
            [str(self.bin / argv[0]), *argv[1:]],
            cwd=folder,
            env={**self.env, **more},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection as it is published."""
    return collection(tmp_path_factory.mktemp("artifact"), __version__)


@pytest.fixture(scope="session", params=sorted(ENDS, reverse=True))
def controller(
    request: pytest.FixtureRequest, artifact: Path, cli_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Controller:
    """Both ends of the promise, one after the other."""
    folder = tmp_path_factory.mktemp(request.param)
    env = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "ANSIBLE_PIPELINING": "1"}
    env |= {"ANSIBLE_COLLECTIONS_PATH": str(folder / "collections"), "XDG_STATE_HOME": str(folder / "state")}
    (folder / "package").mkdir()
    # the package without the collection that lies beside it
    (folder / "package" / "nodectl").symlink_to(_ROOT / "nodectl")
    programs = environment_of(ENDS[request.param], Path(cli_env["XDG_CACHE_HOME"]) / "nodectl") / "bin"
    made = Controller(programs, folder / "collections", env)
    made.run(folder, "ansible-galaxy", "collection", "install", "-p", str(made.collections), str(artifact))
    return made


def environment_of(end: End, cache: Path) -> Path:
    """A Python with that ansible-core and what nodectl needs, but without nodectl; made once, and kept in the cache."""
    pythons = [python for version in end.pythons for python in pythons_of(version)]
    if not pythons:
        pytest.skip(f"ansible-core {end.core} needs Python {' or '.join(end.pythons)}, and none of them is here")
    needed = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    wanted = [f"ansible-core=={end.core}.*", *(each for each in needed if not each.startswith(_NOT_BY_PLAYBOOKS))]
    folder = cache / f"ansible-core-{end.core}"
    stamp = folder / "nodectl-requires.json"
    if not stamp.is_file() or json.loads(stamp.read_text()) != wanted:
        subprocess.run([pythons[0], "-m", "venv", "--clear", "--without-pip", folder], check=True)
        done = _installed(wanted, folder / "bin" / "python")
        if done.returncode != 0:
            pytest.skip(f"no index gives ansible-core {end.core} and what nodectl needs: {done.stderr.strip()[-300:]}")
        stamp.write_text(json.dumps(wanted))
    return folder


def _installed(wanted: Sequence[str], python: Path) -> subprocess.CompletedProcess[str]:
    """The end of what installs these for another Python: uv, or pip where uv fails, which takes ten times the CPU."""
    settings = '. scripts/pip_settings.sh && pip_settings "$0" && exec "$@"'
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--python", str(python)]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install", "--quiet"]
    for installer in (["bash", "-c", settings, sys.executable, *uv], [*pip, "--no-compile"]):
        argv = [*installer, *wanted]
        done = subprocess.run(argv, cwd=_ROOT, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            break
    return done


@pytest.fixture(scope="session")
def one_host(nodectl: Cli, lab_machine: None) -> Iterator[LabUnderTest]:
    """A lab of one host: what roles set there goes with it."""
    with nodectl.lab(f"collection-{os.getpid()}", 1) as lab:
        yield lab


@pytest.fixture
def on_host(one_host: LabUnderTest) -> Callable[[str], str]:
    """`on_host("cat /etc/nccl.conf")` → what the shell there prints."""

    def run(command: str) -> str:
        argv = ["ssh", "-F", one_host.ssh_config, one_host.hosts[0], command]
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout

    return run
