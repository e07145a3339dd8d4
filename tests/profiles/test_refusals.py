"""Impossible combinations through validate.yml on real hosts: refused with their reason, and nothing changed."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import LabUnderTest
from tests.playbooks import ansible_playbook
from tests.profiles.combinations import LOOK, REFUSED, Combination

pytestmark = pytest.mark.lab
# test_compat.py has the words of all without hosts, each of which takes half a second of a CPU
SOME = REFUSED[::16]
ROOT = Path(__file__).resolve().parents[2]
# what a provisioning could change, with times and modes; not where Ansible puts its own modules
SNAPSHOT = (
    "find /etc /opt /usr/local /usr/lib/systemd /var/lib -xdev -printf '%p %y %m %U %G %s %T@ %l\\n' | sort "
    "| sha256sum; dpkg -l | sha256sum; apt-mark showhold"
)
ALLOWED = {
    "nodectl_hardware": "h100-pcie-8",
    "nodectl_stack": "cu116",
    "nodectl_allow_unsupported": ["an old build is measured as it stands"],
    "nodectl_recorded_look": {
        **LOOK,
        "os": {"id": "ubuntu", "version": "20.04", "key": "ubuntu-20.04"},
        "gpus": [],
        "nvswitch": False,
    },
}


@dataclass(frozen=True, slots=True)
class Run:
    """What Ansible said: one message a failed host, all of its output, and the hosts before and after."""

    messages: Mapping[str, str]
    output: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@pytest.fixture(scope="module")
def play(
    lab4: LabUnderTest, cli_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Sequence[Combination]], Run]:
    """Runs with a host for each combination; each is one of two real lab hosts under another name."""
    return lambda combinations: played(lab4, combinations, cli_env, tmp_path_factory.mktemp("refusals"))


@pytest.fixture(scope="module")
def run(play: Callable[[Sequence[Combination]], Run]) -> Run:
    return play(SOME)


def played(lab4: LabUnderTest, combinations: Sequence[Combination], cli_env: dict[str, str], folder: Path) -> Run:
    lab, inventory = lab4.part(2, folder), folder / "hosts.yml"
    inventory.write_text(json.dumps(derived_inventory(lab, combinations)))
    before = tuple(lab.ssh(host, SNAPSHOT) for host in lab.hosts)
    words = ("-i", str(inventory), "playbooks/validate.yml", "--tags", "always", "--forks", "8")
    done = ansible_playbook(*words, cwd=ROOT, env={**cli_env, "ANSIBLE_NOCOLOR": "1", "LC_ALL": "C.UTF-8"})
    output = done.stdout + done.stderr
    found = re.findall(r"^fatal: \[([^\]]+)\]: FAILED! => (\{.*\})$", output, re.MULTILINE)
    messages = {host: str(json.loads(result)["msg"]) for host, result in found}
    return Run(messages, output, before, tuple(lab.ssh(host, SNAPSHOT) for host in lab.hosts))


def derived_inventory(lab: LabUnderTest, combinations: Sequence[Combination]) -> dict[str, Any]:
    group = yaml.safe_load(Path(lab.inventory).read_text())["all"]["children"]["lab"]
    addresses = [host["ansible_host"] for host in group["hosts"].values()]
    cases: dict[str, Any] = {case.host: case.variables for case in combinations}
    cases["allowed"] = ALLOWED
    hosts = {
        name: {"ansible_host": addresses[number % len(addresses)], **variables}
        for number, (name, variables) in enumerate(cases.items())
    }
    shared = {name: value for name, value in group["vars"].items() if not name.startswith("nodectl_")}
    return {"all": {"hosts": hosts, "vars": shared}}


@pytest.mark.parametrize("case", SOME, ids=lambda case: case.code)
def test_an_impossible_combination_is_refused_with_the_nearest_choice(run: Run, case: Combination) -> None:
    assert_refused(run, case)


def assert_refused(run: Run, case: Combination) -> None:
    assert case.host in run.messages, run.output[-3000:]
    message = run.messages[case.host]
    assert case.reason in message
    assert re.search(rf"nearest working choice: [^;]*{re.escape(case.nearest)}", message), message
    # one way out, and not two
    assert "(source: " in message and ("nodectl_allow_unsupported" in message) != ("nodectl_misfit: allow" in message)


def test_nothing_on_the_nodes_changed(run: Run) -> None:
    assert all(len(text.splitlines()) >= 2 for text in run.before)
    assert run.after == run.before


def test_a_reason_lets_the_article_be_measured_with_a_warning(run: Run) -> None:
    task = run.output.partition("TASK [What this host cannot be is refused]")[2].partition("TASK [")[0]
    assert "skipping: [allowed]" in task and "fatal: [allowed]" not in task
    assert re.search(
        r"unsupported, and allowed because: an old build is measured as it stands\. .*needs CUDA 11\.8", run.output
    )


def test_gpus_that_are_not_seen_are_a_warning(run: Run) -> None:
    assert "the profile says 8 GPUs, none seen here: nothing of the driver can be verified (recorded: " in run.output
