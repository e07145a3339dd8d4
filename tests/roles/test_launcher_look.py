"""The deployed launcher is run without a job."""

from pathlib import Path

from tests.roles.run_module import run_module


def test_a_launcher_that_fails_and_one_that_runs(tmp_path: Path) -> None:
    script, venv = tmp_path / "launch", tmp_path / "venv"
    arguments = {"path": str(script), "venv": str(venv)}

    def look() -> list[tuple[str, str]]:
        answer = run_module("plugins/modules/launcher_look.py", arguments, folder=tmp_path)
        return [(found["status"], found["actual"]) for found in answer["findings"]]

    assert look()[0] == ("failed", "no such program, or not executable")
    script.write_text("#!/bin/sh\necho broken >&2\nexit 4\n")
    script.chmod(0o755)
    assert look()[0] == ("failed", "exit status 4: broken")
    script.write_text("#!/bin/sh\n")
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "torchrun").touch(mode=0o755)
    assert [status for status, _ in look()] == ["ok", "ok"]
