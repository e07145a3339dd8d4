"""What tests of several components share: the command line as a process, and one lab for all tests that need hosts."""

import atexit
import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import settings

from nodectl.lab.down import down
from nodectl.lab.state import LabFolder
from tests import warm_cli

# a real sshd on a loopback port, for what needs a server and no lab
pytest_plugins = ["tests.transport.sshd_server"]

# an example may take as long as a busy machine makes it
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

# collecting makes a million objects that all live on: looks for garbage among them are a fifth of its CPU time
gc.disable()

# a shell lets its background jobs ignore Ctrl-C, and what the tests interrupt would inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)

_ROOT = Path(__file__).resolve().parent.parent
_STATE = _ROOT / ".state" / "tests"
# other tests, in other processes, measure this machine too
os.environ["NODECTL_LOCK_FOLDER"] = tempfile.mkdtemp(prefix="nodectl-locks-")
atexit.register(shutil.rmtree, os.environ["NODECTL_LOCK_FOLDER"], ignore_errors=True)
# those that wait stand between those that compute
_LONGEST = (
    "test_provision.py",
    "recordings/test_collect.py",
    "release/test_release.py",
    "collection/test_collection.py",
    "jobs/test_jobs_lab.py",
    "jobs/test_preflight_run.py",
    "workloads/test_transformer.py",
    "payload/test_job_supervisor.py",
    "payload/test_job_attempts.py",
    "cli/test_health_hung.py",
)
# make's --basetemp lies in it, and pytest makes no parents: `make test-booted` may be the first thing in a clone
(_ROOT / ".state").mkdir(exist_ok=True)


@pytest.fixture(autouse=True)
def plain_imports() -> Iterator[None]:
    """Reading an inventory installs Ansible's finder of collections: the next test imports ours as Python does."""
    yield
    finder = sys.modules.get("ansible.utils.collection_loader._collection_finder")
    if finder is None or finder.AnsibleCollectionConfig.collection_finder is None:
        return
    finder._AnsibleCollectionFinder._remove()
    for name, module in list(sys.modules.items()):
        if name.startswith("ansible_collections") and type(module.__loader__).__module__ == finder.__name__:
            del sys.modules[name]


@dataclass(frozen=True, slots=True)
class Cli:
    """Runs nodectl as an operator's shell does."""

    env: Mapping[str, str]

    def __call__(
        self,
        *args: str,
        check: bool = True,
        timeout: float = 120,
        input: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """The finished process; with `check` an exit status other than 0 fails the test and shows what was said."""
        whole = {**self.env, **(env or {})}
        start = _forked if warm_cli.can_run(whole) else _started
        done = start(args, whole, input, timeout)
        if check and done.returncode != 0:
            pytest.fail(f"nodectl {' '.join(args)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    @contextmanager
    def lab(self, name: str, hosts: int, *options: str) -> Iterator["LabUnderTest"]:
        """A lab of its own, which goes with the block."""
        inventory = self("lab", "up", "-n", str(hosts), "--name", name, *options).stdout.strip()
        try:
            status = json.loads(self("lab", "status", "--name", name, "--output", "json").stdout)
            names = tuple(host["name"] for host in status["hosts"])
            yield LabUnderTest(inventory, status, names, status["ssh_config"])
        finally:
            self("lab", "down", "--name", name)


def _started(
    args: Sequence[str], env: Mapping[str, str], given: str | None, timeout: float
) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "nodectl", *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, input=given, env=env, check=False)


def _forked(
    args: Sequence[str], env: Mapping[str, str], given: str | None, timeout: float
) -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess(["nodectl", *args], *warm_cli.run(args, env, given, timeout))


@dataclass(frozen=True, slots=True)
class LabUnderTest:
    """A lab that is up; `status` is `lab status --output json`."""

    inventory: str
    status: Mapping[str, Any]
    hosts: tuple[str, ...]
    ssh_config: str

    def ssh(self, host: str, command: str) -> str:
        """Standard output and error of a shell command on a host, whatever its exit status."""
        argv = ["ssh", "-F", self.ssh_config, host, command]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        return (done.stdout + done.stderr).strip()

    def part(self, count: int, folder: Path) -> "LabUnderTest":
        """Its first hosts alone, by an inventory in the folder: each host more takes its share of the CPU."""
        document = yaml.safe_load(Path(self.inventory).read_text())
        group = document["all"]["children"]["lab"]
        group["hosts"] = {name: group["hosts"][name] for name in self.hosts[:count]}
        inventory = folder / "part.yml"
        inventory.write_text(yaml.safe_dump(document))
        return replace(self, inventory=str(inventory), hosts=self.hosts[:count])


def pytest_configure(config: pytest.Config) -> None:
    """Labs that a session which was killed has left go down before pytest removes what their hosts stand on."""
    if hasattr(config, "workerinput") or os.geteuid() != 0:
        return
    left = {path for path in (_STATE / "state/nodectl/lab").glob("*-*") if _has_ended(path.name.rpartition("-")[2])}
    if config.option.basetemp:
        left |= _labs_below(Path(config.option.basetemp).resolve())
    for path in left:
        down(LabFolder(path))


def _has_ended(pid: str) -> bool:
    return pid.isdecimal() and not Path("/proc", pid).exists()


def _labs_below(folder: Path) -> set[Path]:
    """The folders of labs that run, by what their processes have mounted."""
    lab = re.compile(rf"upperdir=({re.escape(str(folder))}/[^,]*/nodectl/lab/[^/,]+)/")
    found: set[Path] = set()
    for mounts in Path("/proc").glob("[1-9]*/mountinfo"):
        with suppress(OSError):
            found |= {Path(each) for each in lab.findall(mounts.read_text().replace("\\040", " "))}
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes a minute of one process comes first, then what has hosts: none is left alone at the end."""
    on_hosts = {item.path for item in items if "lab_machine" in getattr(item, "fixturenames", ())}
    longest = {_ROOT / "tests" / name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: (longest.get(item.path, len(longest)), item.path not in on_hosts))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def cli_env() -> dict[str, str]:
    """The environment of every nodectl process in the tests; it writes below the checkout's ignored folders only."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("NODECTL_", "ANSIBLE_"))}
    env |= {
        "XDG_STATE_HOME": str(_STATE / "state"),
        "XDG_CONFIG_HOME": str(_STATE / "config"),
        "XDG_CACHE_HOME": str(_ROOT / ".cache"),
        "ANSIBLE_HOME": str(_STATE / "ansible"),
        "NODECTL_LOCK_FOLDER": os.environ["NODECTL_LOCK_FOLDER"],
        "PYTHONPATH": str(_ROOT),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    return env


@pytest.fixture(scope="session")
def nodectl(cli_env: dict[str, str]) -> Cli:
    """`nodectl(*args)` runs the command line."""
    return Cli(cli_env)


@pytest.fixture(scope="session")
def lab_machine() -> None:
    """Skip, with the reason, where no lab can be."""
    if os.geteuid() != 0:
        pytest.skip("a lab needs root")
    missing = [name for name in ("ssh", "ip", "tc") if not shutil.which(name)]
    if missing or not Path("/usr/sbin/sshd").exists():
        pytest.skip(f"a lab needs sshd, ssh, ip and tc; missing here: {' '.join(missing) or 'sshd'}")


@pytest.fixture(scope="session")
def lab4(nodectl: Cli, lab_machine: None) -> Iterator[LabUnderTest]:
    """Four hosts for the whole session; tests leave them as they found them."""
    with nodectl.lab(f"tests-{os.getpid()}", 4) as lab:
        yield lab
