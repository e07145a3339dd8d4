"""A oneshot service of ours: its files, each put there in one step, and whether systemd runs it at boot."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # nodes run this from Python 3.8 on, which cannot evaluate these
    from collections.abc import Callable, Mapping

    from ansible.module_utils.basic import AnsibleModule

    Change = dict[str, str]
    Run = Callable[[list[str]], tuple[int, str, str]]


def systemd_runs() -> bool:
    """systemd is process 1 here."""
    return Path("/run/systemd/system").is_dir()


def runner(module: AnsibleModule) -> Run:
    """Runs a program; one that is not installed is status 127, not the end of the module."""

    def run(argv: list[str]) -> tuple[int, str, str]:
        try:
            status, out, err = module.run_command(argv, handle_exceptions=False)
        except OSError as error:
            return 127, "", f"{argv[0]}: {error.strerror}"
        return status, out, err

    return run


def read_text(path: str) -> str:
    """The file's text; empty where there is none."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def converge(module: AnsibleModule, unit: str, files: Mapping[str, tuple[str, int]]) -> list[Change]:
    """Put each file (text and mode; empty text: no file) and enable the unit, or take all away; what changed.

    In check mode it only says so. Where the unit's text is empty it is disabled before its file goes.
    """
    unit_path = next(path for path in files if Path(path).name == unit)
    wanted, changes = bool(files[unit_path][0]), []
    if not wanted and Path(unit_path).exists():
        changes += _enable(module, unit, False)
    for path, (text, mode) in files.items():
        changes += _put(module, path, text, mode)
    if any(change["before_header"] == unit_path for change in changes) and not module.check_mode:
        module.run_command(["systemctl", "daemon-reload"], check_rc=True)
    if wanted:
        changes += _enable(module, unit, True)
    return changes


def _put(module: AnsibleModule, path: str, text: str, mode: int) -> list[Change]:
    before = read_text(path)
    right = bool(text) == Path(path).exists() and before == text
    if right and (not text or Path(path).stat().st_mode & 0o7777 == mode):
        return []
    if not module.check_mode:
        if text:
            Path(path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            handle, staged = tempfile.mkstemp(dir=module.tmpdir)
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
            Path(staged).chmod(mode)
            module.atomic_move(staged, path)
            Path(path).chmod(mode)
        else:
            Path(path).unlink()
    return [{"before_header": path, "after_header": path, "before": before, "after": text}]


def _enable(module: AnsibleModule, unit: str, wanted: bool) -> list[Change]:
    status, out, _ = module.run_command(["systemctl", "is-enabled", unit])
    enabled = status == 0 and out.strip() == "enabled"
    if enabled == wanted:
        return []
    if not module.check_mode:
        # a timer counts from its start; a oneshot service of ours has just been done by the module itself
        now = ["--now"] if unit.endswith(".timer") else []
        module.run_command(["systemctl", "enable" if wanted else "disable", "--quiet", *now, unit], check_rc=True)
    words = {True: "enabled\n", False: "disabled\n"}
    return [{"before_header": unit, "after_header": unit, "before": words[enabled], "after": words[wanted]}]
