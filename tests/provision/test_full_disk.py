"""What programs say of a full disk, as their sources have it: which file system it is, and what to do."""

import pytest

from nodectl.provision.events import failure_text


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
