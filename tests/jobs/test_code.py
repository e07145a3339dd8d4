"""What of the operator's code travels: his project, without what is ignored, run from where he stands."""

import subprocess
from pathlib import Path

import pytest

from nodectl.errors import UsageError
from nodectl.jobs.code import Code, find_code, left_behind


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a script in a folder of its own."""
    folder = tmp_path / "project"
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    for place in ("scripts/train.py", "mine/__init__.py", "pyproject.toml"):
        write(folder / place)
    monkeypatch.chdir(tmp_path)
    return folder


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def git(folder: Path, *words: str) -> None:
    folder.mkdir(exist_ok=True)
    own = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "advice.addEmbeddedRepo=false"]
    subprocess.run(["git", "-C", str(folder), *own, *words], check=True, capture_output=True)


def places(code: Code) -> list[str]:
    return sorted(place for _, place in code.files)


def test_the_project_around_the_script_travels(project: Path) -> None:
    code = find_code(str(project / "scripts" / "train.py"))
    assert code.folder == project
    assert places(code) == ["mine/__init__.py", "pyproject.toml", "scripts/train.py"]
    assert (code.workdir, code.script) == ("scripts", "train.py")


def test_it_runs_where_the_operator_stands(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    code = find_code("scripts/train.py")
    assert (code.workdir, code.script) == ("", "scripts/train.py")
    monkeypatch.chdir(project / "mine")
    code = find_code("../scripts/train.py")
    assert (code.workdir, code.script) == ("mine", "../scripts/train.py")
    (project / "empty").mkdir()
    monkeypatch.chdir(project / "empty")
    assert find_code("../scripts/train.py").workdir == "scripts"


def test_files_of_the_command_line_beside_the_scripts_folder_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("scripts/run.py", "scripts/own.json", "configs/a.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    args = ["configs/a.json", "--more=configs/a.json", "scripts/own.json", "out", f"{tmp_path}/configs/a.json"]
    code = find_code("scripts/run.py")
    assert left_behind(code, args) == ["configs/a.json", "configs/a.json", "scripts/own.json"]
    assert left_behind(find_code("scripts/run.py", tmp_path), args) == []


def test_the_folder_may_be_named(project: Path) -> None:
    script = str(project / "scripts" / "train.py")
    assert places(find_code(script, project / "scripts")) == ["train.py"]
    with pytest.raises(UsageError, match="does not hold"):
        find_code(script, project / "mine")


def test_ignore_files_are_read_as_git_reads_them(project: Path) -> None:
    write(project / ".gitignore", "data/\n*.bin\n!keep.bin\n/out\n")
    write(project / "mine/.gitignore", "!small.bin\nlocal.py\n")
    for place in ("data/a", "x.bin", "keep.bin", "out/a", "mine/out/a", "mine/small.bin", "mine/local.py", "local.py"):
        write(project / place)
    code = find_code(str(project / "scripts" / "train.py"))
    taken = {"keep.bin", "mine/out/a", "mine/small.bin", "local.py"}
    always = {".gitignore", "mine/.gitignore", "mine/__init__.py", "pyproject.toml", "scripts/train.py"}
    assert set(places(code)) == taken | always
    assert dict(code.stayed) == dict.fromkeys(("data/", "out/", "mine/local.py", "x.bin"), "git's ignore rules")
    assert "without data/, out/, mine/local.py, x.bin" in code.describe()
    write(project / ".nodectlignore", "!data/\n!*\nkeep.bin\n")
    always |= {".nodectlignore"}
    assert set(places(find_code(str(project / "scripts" / "train.py")))) == always | taken - {"keep.bin"}


def test_submodules_travel_and_other_repositories_stay(project: Path) -> None:
    for name in ("lib", "other"):
        git(project / name, "init", "-q")
        write(project / name / "code.py")
        git(project / name, "add", "code.py")
        git(project / name, "commit", "-q", "-m", "first")
    git(project, "add", "lib")
    write(project / "lib" / "new.py")
    git(project, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},deep/empty")
    (project / "deep" / "empty").mkdir(parents=True)
    code = find_code(str(project / "scripts" / "train.py"))
    assert [line.partition(" (")[0] for line in code.left_out()] == ["  stays here: deep/", "  stays here: other/"]
    assert places(code) == ["lib/code.py", "lib/new.py", "mine/__init__.py", "pyproject.toml", "scripts/train.py"]


def test_a_folder_outside_git_travels_by_its_own_ignore_files(tmp_path: Path) -> None:
    for place in ("train.py", "data/a", "venv/bin/python", "pkg/__pycache__/x.pyc", "pkg/x.py", "big.bin"):
        write(tmp_path / place)
    write(tmp_path / ".gitignore", "data/\n")
    write(tmp_path / ".nodectlignore", "*.bin\n")
    code = find_code(str(tmp_path / "train.py"), tmp_path)
    assert places(code) == [".gitignore", ".nodectlignore", "pkg/x.py", "train.py"]
    assert code.stayed == (("data/", ".gitignore"), ("big.bin", ".nodectlignore"))
    assert places(find_code(str(tmp_path / "train.py"))) == ["train.py"]


def test_what_is_left_out_travels_if_the_command_line_names_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project / ".gitignore", "data/\n*.bin\n")
    for place in ("a", ".b", "deep/c.bin", "deep/d", "../x.bin", "../.hydra/config.yaml", "../env/pyvenv.cfg"):
        write(project / "data" / place)
    (project / "link").symlink_to("data")
    monkeypatch.chdir(project / "scripts")
    always = {".gitignore", "mine/__init__.py", "pyproject.toml", "scripts/train.py"}
    for names, taken, left_out in (
        ([], set(), ".hydra/, data/, env/, link, x.bin"),
        (["../data"], {"data/a", "data/deep/c.bin", "data/deep/d"}, ".hydra/, env/, link, x.bin"),
        (["../data/deep/d", str(project / "x.bin")], {"data/deep/d", "x.bin"}, ".hydra/, env/, link"),
        (["../.hydra", "../env"], {".hydra/config.yaml", "env/pyvenv.cfg"}, "data/, link, x.bin"),
    ):  # fmt: skip
        code = find_code("train.py", include=[Path(name) for name in names])
        assert set(places(code)) == always | taken
        assert ", ".join(place for place, _ in code.stayed) == left_out


def test_linked_folders_travel_as_they_do_without_the_link_and_circles_end(project: Path, tmp_path: Path) -> None:
    write(project / "shared" / "tokens.txt")
    write(project / ".gitignore", "/shared/local/\n")
    (project / "shared" / "local").mkdir()
    write(project / "shared" / "local" / "x.txt")
    (project / "linked").symlink_to("shared")
    (project / "deep").symlink_to("linked/local")
    (project / "mine" / "again").symlink_to(project)
    (project / "dangling").symlink_to(tmp_path / "nowhere")
    assert places(find_code(str(project / "scripts" / "train.py"))) == [
        *(".gitignore", "linked/tokens.txt", "mine/__init__.py", "pyproject.toml", "scripts/train.py"),
        "shared/tokens.txt",
    ]


def test_a_scratch_folder_is_none_of_the_project(project: Path) -> None:
    write(project / ".gitignore", "scratch/\n")
    write(project / "scratch" / "try" / "train.py")
    code = find_code(str(project / "scratch" / "try" / "train.py"))
    assert (code.folder, places(code), code.alone != "") == (project / "scratch" / "try", ["train.py"], True)
    whole = find_code(str(project / "scratch" / "try" / "train.py"), project)
    assert {"mine/__init__.py", "scratch/try/train.py"} <= set(places(whole)) and whole.stayed == ()


def test_a_project_that_is_too_big_names_its_largest_parts(project: Path) -> None:
    for number in range(3):
        with (project / "mine" / f"weights{number}.bin").open("wb") as file:
            file.truncate(30 << 20)
    with pytest.raises(UsageError, match=r"holds 90 MiB, more than --code-limit 64: mine \(90 MiB\)") as caught:
        find_code(str(project / "scripts" / "train.py"))
    assert ".nodectlignore" in caught.value.remedy
    assert find_code(str(project / "scripts" / "train.py"), limit_mib=100).size_bytes == 90 << 20


@pytest.mark.parametrize("mark", ["pyvenv.cfg", "conda-meta/history"])
def test_an_environment_of_any_name_stays_here_and_is_said(project: Path, mark: str) -> None:
    for place in (mark, "bin/python"):
        write(project / "env311" / place)
    code = find_code(str(project / "scripts/train.py"))
    assert not any(place.startswith("env311") for place in places(code))
    assert code.stayed == (("env311/", "nodectl's own rule for environments and caches"),)
    code = find_code(str(project / "scripts/train.py"), include=[project / "env311"])
    assert "env311/bin/python" in places(code)


def test_files_whose_secrets_nodectl_was_given_stay_here(project: Path) -> None:
    write(project / "train.py")
    write(project / "deep" / "my hook", "one-word")
    write(project / "data.txt")
    (project / "link").symlink_to("deep/my hook")
    code = find_code(str(project / "train.py")).without([project / "deep" / "my hook"])
    assert {"train.py", "data.txt"} <= set(places(code)) and not {"deep/my hook", "link"} & set(places(code))
    assert "deep/my hook" in code.describe() and "deep/my hook" in dict(code.stayed)
    assert code.size_bytes == 0
