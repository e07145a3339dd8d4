"""Which interpreter a stack gets: the distribution's, apt's, uv's, or a refusal that says what to do."""

from pathlib import Path
from typing import Any

from tests.roles.run_module import run_module


def run(tmp_path: Path, **arguments: Any) -> dict[str, Any]:
    wanted = {"min": "3.8", "max": "3.14", "folder": str(tmp_path / "python"), "uv": "/nonexistent/uv", "state": "look"}
    return run_module("plugins/modules/stack_python.py", {**wanted, **arguments}, folder=tmp_path)


def test_the_distributions_python_is_taken_where_it_serves(tmp_path: Path) -> None:
    answer = run(tmp_path)
    assert answer["path"] == "/usr/bin/python3" and answer["how"] == "present" and not answer["changed"]


def test_uvs_own_folder_is_looked_at(tmp_path: Path) -> None:
    place = tmp_path / "python" / "cpython-3.6.15-linux-x86_64-gnu" / "bin"
    place.mkdir(parents=True)
    (place / "python3.6").write_text("#!/bin/sh\necho 3.6.15\n")
    (place / "python3.6").chmod(0o755)
    answer = run(tmp_path, min="3.5", max="3.6")
    assert (answer["path"], answer["version"]) == (str(place / "python3.6"), "3.6.15")


def test_an_operators_choice_that_does_not_serve_is_refused(tmp_path: Path) -> None:
    answer = run(tmp_path, interpreter="/usr/bin/python3", min="3.5", max="3.6")
    assert answer["failed"] and "the stack's wheels exist for 3.5 to 3.6" in answer["msg"]
    answer = run(tmp_path, interpreter="/nonexistent/python")
    assert answer["failed"] and "does not run" in answer["msg"]


def test_uv_is_asked_for_one_version_into_its_own_folder(tmp_path: Path) -> None:
    uv, asked = tmp_path / "uv", tmp_path / "asked"
    place = tmp_path / "python" / "cpython-3.6.15-linux-x86_64-gnu" / "bin"
    wanted = {"min": "3.5", "max": "3.6", "uv": str(uv), "mirror": str(tmp_path / "mirror")}
    assert run(tmp_path, **wanted)["how"] == "uv"
    uv.write_text("#!/bin/sh\necho no download >&2; exit 2\n")
    uv.chmod(0o755)
    refused = run(tmp_path, **wanted, state="present")
    assert refused["failed"] and "uv says: no download" in refused["msg"]
    assert "Set python_mirror" in refused["msg"] and "choose a stack for Python" in refused["msg"]
    # notes how it was called, and leaves an interpreter as the real one does
    uv.write_text(
        f'#!/bin/sh\necho "$@" > {asked}\nmkdir -p {place}\n'
        f"printf '#!/bin/sh\\necho 3.6.15\\n' > {place}/python3.6\nchmod 755 {place}/python3.6\n"
    )
    answer = run(tmp_path, **wanted, state="present")
    assert answer["changed"] and answer["path"] == str(place / "python3.6") and answer["how"] == "present", answer
    words = asked.read_text().split()
    assert words[:2] == ["python", "install"] and words[-1].startswith("cpython-3.6-linux-")
    assert words[words.index("--install-dir") + 1] == str(tmp_path / "python")
    assert words[words.index("--mirror") + 1] == f"file://{tmp_path}/mirror" and "--no-bin" in words
