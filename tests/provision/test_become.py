"""Why a login could not become root, or a disk is full: the words of programs, as hosts or sources have them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from nodectl.cli import progress
from nodectl.common.access import Access
from nodectl.provision.events import explained, failure_text
from nodectl.provision.run import ProvisionRequest
from tests.conftest import Cli

_PYTHON = "/usr/bin/python3 -c import sys;exec('eJzLS')"
_NO_JSON = "Module result deserialization failed: No start of json char found"


@pytest.mark.parametrize(
    ("said", "why", "remedy"),
    [
        ("Task failed: Missing sudo password", "given none", "-K asks for it, a vault or ANSIBLE_BECOME_PASSWORD_FILE"),
        (f"{_NO_JSON}\nsudo: a password is required", "given none", "--provision nopasswd`"),
        ("Task failed: Incorrect sudo password", "sudo does not take the password", "for su root's"),
        ("Task failed: Incorrect su password", "su does not take the password", "for su root's"),
        ("Task failed: Missing su password", "su wants a password", "-K asks for it"),
        (
            f"{_NO_JSON}\nana is not in the sudoers file.",
            "the login ana do nothing",
            "`nodectl sudoers --user ana --provision nopasswd`",
        ),
        (
            f"{_NO_JSON}\nSorry, user ana is not allowed to execute '{_PYTHON} ana@gpu' as root on node01.",
            "the login ana do some things, and not everything",
            "`nodectl sudoers --user ana --provision nopasswd`",
        ),
        (f"{_NO_JSON}\nsudo: sorry, you must have a tty to run sudo", "requiretty", "!requiretty"),
        (f"{_NO_JSON}\n/bin/sh: 1: sudo: not found", "no sudo there", "install it"),
        (
            f"{_NO_JSON}\nsudo: account validation failure, is your account locked?\r\nsudo: a password is required",
            "has expired",
            "chage -l",
        ),
        (
            "Task failed: Timeout (12s) waiting for privilege escalation prompt: Changing password for ana.",
            "has expired",
            "chage -l",
        ),
        ("Task failed: Timeout (12s) waiting for privilege escalation prompt:", "in time", "sudo -k"),
        (_NO_JSON, "nothing came back", "`sudo -l`"),
    ],
)
def test_why_and_what_to_do_in_one_line(said: str, why: str, remedy: str) -> None:
    text = explained(said)
    assert why in text and remedy in text and text.endswith("(docs/sudoers.md)")
    assert "\n" not in text and _PYTHON not in text and "{" not in text


@pytest.mark.parametrize(
    "said",
    ["No package matching sudo-ldap", "Module result deserialization failed: No start of json char found\nKilled"],
)
def test_what_is_no_refusal_stays(said: str) -> None:
    assert explained(said) == said


@pytest.mark.parametrize(
    "said",
    [
        "Attempt to use undecryptable variable: Attempting to decrypt but no vault secrets found.",
        "Decryption failed (no vault secrets were found that could decrypt).",
    ],
)
def test_a_vault_that_stays_shut_says_how_it_opens(said: str) -> None:
    text = failure_text({"msg": said})
    assert text.startswith(said.rstrip(".") + "; give the password") and "ANSIBLE_VAULT_PASSWORD_FILE" in text


def test_it_is_what_a_task_failed_of() -> None:
    assert failure_text({"msg": "Task failed: Missing sudo password"}).startswith("sudo wants a password")
    two = {"results": [{"item": name, "failed": True, "msg": "Missing sudo password"} for name in "ab"]}
    assert failure_text(two).startswith("sudo wants a password")


def test_the_password_is_asked_for_before_anything_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def ask(prompt: str) -> str:
        order.append(prompt)
        return "secret"

    monkeypatch.setattr(progress, "provision", lambda *_: order.append("playbook"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    progress.play(ProvisionRequest("runs", (), access=Access(ask_become_pass=True, ask=ask)))
    assert order == ["sudo password", "playbook"]


def test_without_a_terminal_the_password_is_a_line_of_standard_input(nodectl: Cli) -> None:
    script = (
        "from nodectl.cli.app import _ask_unseen\n"
        "from nodectl.errors import UsageError\n"
        "print([_ask_unseen('sudo password'), _ask_unseen('SSH password')])\n"
        "try: _ask_unseen('more')\n"
        "except UsageError as error: print(error)\n"
    )
    argv = [sys.executable, "-c", script]
    done = subprocess.run(
        argv,
        input="s1 \nwörd\n",
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **nodectl.env},
        start_new_session=True,
    )
    assert done.stdout.startswith("['s1 ', 'wörd']\nmore: there is no terminal") and done.stderr == ""


@pytest.mark.parametrize(
    ("result", "path"),
    [
        ({"msg": "[Errno 28] No space left on device: '/etc/nodectl/x.tmp'"}, "/etc/nodectl"),
        ({"msg": "E: You don't have enough free space in /var/cache/apt/archives/."}, "/var/cache/apt/archives/"),
        ({"msg": "At least 12MB more space needed on the /boot filesystem."}, "/boot"),
        ({"stderr": "tar: /opt/nodectl/venv/lib: Cannot write: No space left on device"}, "/opt/nodectl/venv/lib"),
    ],
)
def test_the_file_system_that_is_full_is_named(result: dict[str, str], path: str) -> None:
    text = failure_text(result)
    assert f"`df -h {path};" in text and next(iter(result.values())).rstrip(".") in text


def test_what_a_trace_ends_with_is_told() -> None:
    trace = """Traceback (most recent call last):
  File "basic.py", line 1780, in atomic_move
    shutil.copy(b_src, b_dest)
OSError: [Errno 28] No space left on device: b'/root/.ansible/tmp/x' -> b'/etc/security/limits.d/.x.tmp'
"""
    text = failure_text({"msg": "No start of json char found", "module_stderr": trace})
    assert text.startswith("No space left") and "`df -h /etc/security/limits.d;" in text and "\n" not in text


def test_other_failures_stay_as_they_are() -> None:
    assert failure_text({"msg": "No such file or directory: '/etc/x'"}) == "No such file or directory: '/etc/x'"
