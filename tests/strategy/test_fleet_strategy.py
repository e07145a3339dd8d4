"""The strategy `fleet`: mitogen where it can be used, linear where not, the same results from both."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from ansible.errors import AnsibleError

from nodectl.common.resources import share_dir
from tests.conftest import LabUnderTest

_ROOT = Path(__file__).resolve().parent.parent.parent
_STRATEGIES = share_dir() / "plugins" / "strategy"
_COMPARISON = importlib.util.spec_from_file_location(
    "provision_results_under_test", _ROOT / "benchmarks" / "provision_results.py"
)
assert _COMPARISON is not None and _COMPARISON.loader is not None
comparison = importlib.util.module_from_spec(_COMPARISON)
_COMPARISON.loader.exec_module(comparison)
_NOT_USED = "mitogen is not used"

Play = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def fleet() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fleet_strategy", _STRATEGIES / "fleet.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def environment(cli_env: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Of an ansible-playbook that writes below `tmp_path`, with the settings of the checkout's ansible.cfg."""
    return {
        **cli_env,
        "ANSIBLE_CONFIG": str(_ROOT / "ansible.cfg"),
        "ANSIBLE_HOME": str(tmp_path / "ansible"),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(tmp_path / "cp"),
        "ANSIBLE_CALLBACK_PLUGINS": str(_ROOT / "benchmarks" / "callback_plugins"),
        "ANSIBLE_CALLBACKS_ENABLED": "task_results",
        "TASK_RESULTS": str(tmp_path / "results"),
    }


@pytest.fixture
def play(environment: Mapping[str, str], tmp_path: Path) -> Iterator[Play]:
    """`play(choice, tasks, *options)` runs the tasks on all hosts; ssh's own connections end with the test."""

    def run(choice: str, plays: list[object], *options: str, **more: str) -> subprocess.CompletedProcess[str]:
        book = tmp_path / "play.yml"
        book.write_text(yaml.safe_dump(plays))
        return subprocess.run(
            [str(Path(sys.executable).with_name("ansible-playbook")), *options, str(book)],
            env={**environment, "NODECTL_STRATEGY": choice, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    yield run
    for socket in (tmp_path / "cp").glob("*"):
        subprocess.run(["ssh", "-o", f"ControlPath={socket}", "-O", "exit", "x"], capture_output=True, check=False)


def _local(*tasks: object) -> list[object]:
    python = {"ansible_python_interpreter": sys.executable}
    return [{"hosts": "all", "connection": "local", "gather_facts": False, "vars": python, "tasks": list(tasks)}]


def test_an_unknown_choice_is_refused_by_name(fleet: ModuleType) -> None:
    assert fleet.chosen({}) == fleet.chosen({"NODECTL_STRATEGY": ""}) == "auto"
    with pytest.raises(AnsibleError, match="NODECTL_STRATEGY is 'mitogenn': set it to one of auto, mitogen, linear"):
        fleet.chosen({"NODECTL_STRATEGY": "mitogenn"})


@pytest.mark.parametrize(
    ("core", "mitogen", "reason"),
    [
        ("2.19.14", (0, 3, 54), ""),
        ("2.19.0", (0, 4, 0), ""),
        ("2.21.5", (0, 3, 54), ""),
        ("2.18.1", (0, 3, 54), "ansible-core 2.18.1 was not tested with it"),
        ("2.19.14", (0, 3, 9), "mitogen 0.3.9 is older than 0.3.54"),
    ],
)
def test_only_versions_that_were_run_together_are_used(
    fleet: ModuleType, core: str, mitogen: tuple[int, ...], reason: str
) -> None:
    found = fleet.not_together(core, mitogen)
    assert found.startswith(reason) and bool(found) == bool(reason)


def test_a_become_method_that_mitogen_lacks_is_named_with_a_host(fleet: ModuleType) -> None:
    assert fleet.cannot_become({"a": "sudo", "b": "su", "c": "doas"}) == ""
    assert fleet.cannot_become({"a": "sudo", "b": "pbrun"}) == "it knows no become method pbrun (b has it)"


def test_without_mitogen_it_is_linear_and_says_so_once(play: Play, tmp_path: Path, environment: dict[str, str]) -> None:
    absent = tmp_path / "absent" / "ansible_mitogen"
    absent.mkdir(parents=True)
    (absent / "__init__.py").write_text("raise ImportError('No module named ansible_mitogen')\n")
    path = f"{absent.parent}:{environment['PYTHONPATH']}"
    two = _local({"command": "true", "changed_when": False}) * 2
    done = play("auto", two, "-i", "here,", PYTHONPATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(_NOT_USED) == 1 and "pip install mitogen" in done.stdout
    forced = play("mitogen", two, "-i", "here,", PYTHONPATH=path)
    assert forced.returncode != 0 and "NODECTL_STRATEGY is mitogen: No module named" in forced.stdout + forced.stderr


@pytest.mark.slow
def test_a_host_with_a_become_method_of_its_own_makes_the_play_linear(play: Play) -> None:
    done = play("auto", _local({"command": "true"}), "-i", "here,", "-e", "ansible_become_method=runas")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{_NOT_USED}: it knows no become method runas (here has it)" in done.stdout


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: nothing to be pinned to")
@pytest.mark.slow
def test_no_process_is_pinned_to_a_cpu(play: Play, tmp_path: Path) -> None:
    said = {}
    for choice in ("linear", "mitogen"):
        (tmp_path / "results").unlink(missing_ok=True)
        assert play(choice, _local({"name": "cpus", "command": "nproc"}), "-i", "here,").returncode == 0
        said[choice] = [found["values"]["stdout"] for found in comparison.read_results(tmp_path / "results").values()]
    assert said["mitogen"] == said["linear"] == [str(len(os.sched_getaffinity(0)))]


def _tasks() -> list[object]:
    """Each kind of outcome: changed, ok, skipped, failed and rescued, ignored; a handler, another user, a loop."""
    return [
        {
            "hosts": "all",
            "gather_facts": False,
            "become": True,
            "handlers": [{"name": "Handled", "command": "id -un"}],
            "tasks": [
                {
                    "name": "File",
                    "copy": {"content": "x\n", "dest": "/run/fleet-strategy", "mode": "0640"},
                    "notify": "Handled",
                },
                {"meta": "flush_handlers"},
                {"name": "Same", "copy": {"content": "x\n", "dest": "/run/fleet-strategy", "mode": "0640"}},
                {"name": "Seen", "stat": {"path": "/etc/hostname", "get_checksum": False}, "register": "seen"},
                {"name": "Mode", "debug": {"msg": "{{ seen.stat.mode }}"}},
                {"name": "Other", "command": "id -un", "become_user": "nobody", "changed_when": False},
                {"name": "One host", "command": "hostname", "when": "inventory_hostname == groups.all[0]"},
                {"name": "Loop", "command": "echo {{ item }}", "loop": [1, 2], "changed_when": False},
                {"name": "Ignored", "command": "sh -c 'echo why >&2; exit 7'", "ignore_errors": True},
                {
                    "name": "Block",
                    "block": [{"name": "Fails", "command": "/no/such/program"}],
                    "rescue": [{"name": "Rescued", "debug": {"msg": "rescued"}}],
                },
                {"name": "Gone", "file": {"path": "/run/fleet-strategy", "state": "absent"}},
                {"name": "Told", "fail": {"msg": "this one"}, "when": "inventory_hostname == groups.all[1]"},
                {"name": "Last", "command": "true", "changed_when": False},
            ],
        }
    ]


@pytest.mark.slow
@pytest.mark.lab
@pytest.mark.parametrize("options", [(), ("--check", "--diff")])
def test_both_give_the_same_results_on_every_task(
    play: Play, lab4: LabUnderTest, tmp_path: Path, options: tuple[str, ...]
) -> None:
    nobody = tmp_path / "gone.yml"
    nobody.write_text(yaml.safe_dump({"all": {"hosts": {"gone": {"ansible_host": "127.0.0.1", "ansible_port": 1}}}}))
    results = {}
    for choice in ("linear", "mitogen"):
        (tmp_path / "results").unlink(missing_ok=True)
        hosts = ["-i", lab4.inventory, "-i", str(nobody), "-l", f"{lab4.hosts[0]},{lab4.hosts[1]},gone"]
        done = play(choice, _tasks(), *hosts, *options)
        said = done.stdout + done.stderr
        assert _NOT_USED not in said and "deprecat" not in said.lower()
        results[choice] = comparison.read_results(tmp_path / "results")
    # how a lost connection is worded, and where a user without a home has temporary files, is each one's own
    worded = {(key, "values.msg") for key, found in results["linear"].items() if found["outcome"] == "unreachable"}
    worded |= {(key, "values.warnings[0]") for key in results["linear"] if key[2] == "Other"}
    worded |= {(key, "values.stat.atime") for key in results["linear"] if key[2] == "Seen"}  # others read it, too
    assert list(comparison.differences(results["linear"], results["mitogen"], worded)) == []
    outcomes = {found["outcome"] for found in results["linear"].values()}
    assert outcomes >= {"ok", "changed", "skipped", "failed", "unreachable"}


@pytest.mark.lab
@pytest.mark.slow
def test_sudo_with_a_password_works_and_a_wrong_one_fails(play: Play, lab4: LabUnderTest, tmp_path: Path) -> None:
    host, secret = lab4.hosts[2], "fleet strategy's 1"
    lab4.ssh(host, "useradd -m -s /bin/sh fleet-ops && install -d -o fleet-ops -m 700 ~fleet-ops/.ssh")
    lab4.ssh(host, "install -o fleet-ops -m 600 ~/.ssh/authorized_keys ~fleet-ops/.ssh/ || true")
    lab4.ssh(host, f'echo "fleet-ops:{secret}" | chpasswd; echo "fleet-ops ALL=(ALL) ALL" > /etc/sudoers.d/fleet-ops')
    login = {"ansible_user": "fleet-ops", "ansible_become_password": secret}
    who = [{"hosts": "all", "gather_facts": False, "become": True, "tasks": [{"command": "id -un", "name": "Who"}]}]
    try:
        for given, status, word in ((secret, 0, "root"), ("wrong", 2, "sudo password")):
            (tmp_path / "results").unlink(missing_ok=True)
            passed = json.dumps({**login, "ansible_become_password": given})
            done = play("mitogen", who, "-i", lab4.inventory, "-l", host, "-e", passed)
            found = next(iter(comparison.read_results(tmp_path / "results").values()))
            assert done.returncode == status, done.stdout + done.stderr
            assert word in found["values"].get("stdout", "") + found["values"].get("msg", "")
            assert given not in done.stdout + done.stderr
    finally:
        lab4.ssh(host, "userdel -r fleet-ops; rm -f /etc/sudoers.d/fleet-ops")


@pytest.mark.lab
@pytest.mark.slow
def test_nothing_is_left_after_an_interrupt(environment: Mapping[str, str], lab4: LabUnderTest, tmp_path: Path) -> None:
    book, host = tmp_path / "sleep.yml", lab4.hosts[3]
    book.write_text(yaml.safe_dump([{"hosts": host, "gather_facts": False, "tasks": [{"command": "sleep 3.1415"}]}]))
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", lab4.inventory, str(book)],
        env={**environment, "NODECTL_STRATEGY": "mitogen"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    looking = "ps -eo args | grep -c '[s]leep 3.1415'"
    _until(lambda: lab4.ssh(host, looking) == "1")
    os.killpg(process.pid, 2)
    assert process.wait(timeout=20) != 0
    left = subprocess.run(["ps", "-s", str(process.pid), "-o", "args="], capture_output=True, text=True, check=False)
    assert left.stdout == ""
    _until(lambda: lab4.ssh(host, "ps -eo args | grep -c -e '[m]itogen' -e '[s]leep 3.1415'") == "0")


def _until(true: Callable[[], bool], within_s: float = 20) -> None:
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.2)
