"""No key, token or password leaves the operator's machine with a job: by script, module or folder, in any home."""

from __future__ import annotations

import gzip
import hashlib
import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from nodectl.errors import JobError, UsageError
from nodectl.jobs.code import Code, find_code, find_folder, find_module
from nodectl.jobs.package import pack
from nodectl.jobs.plan import Plan, PlanHost

MARK = "never-to-leave-this-machine"
# what a home holds, and a careless project, too: keys and settings, their copies, and files without a dot
KEPT = (
    *(".ssh/id_ed25519", ".ssh/config", ".aws/credentials", ".azure/msal.json", ".kube/config", ".gnupg/keys/A"),
    *(".docker/config.json", ".config/gcloud/credentials.db", ".config/gh/hosts.yml", ".config/rclone/rclone.conf"),
    *(".ngc/config", ".netrc", ".pgpass", ".git-credentials", ".npmrc", ".pypirc", ".vault-token", ".bash_history"),
    *(".zsh_history", ".python_history", ".cache/huggingface/token", ".huggingface/token", "stored_tokens", ".env"),
    *(".env.local", "prod.env", ".envrc", "server.pem", "TLS.KEY", "id_rsa", "id_work", "id_rsa.pub", "d/id_ecdsa"),
    *("hf_token", "token.txt", "wandb_token.json", "client_secret.json", "credentials.json", "secrets/db.yml"),
    *("store.p12", "vpn.ovpn", "krb5cc_1000", "kubeconfig.yaml", "mirror.git/config", "tokens", "server.key.old"),
    *(".bash_history.old", "id_rsa.1", ".ssh.bak/id_x", ".env-prod", ".terraformrc", ".codex/auth.json", "wg0.conf"),
    *("credentials.csv", "secrets.bak/x", "Credentials", "sub/.newtool/login", "TLS.KEY~", "id_rsa.gz", "tls.key.enc"),
    *("secring.gpg", "pgpass", "envrc", "api_tokens.yaml", "HF_TOKEN.md", "psql_history", "logins.json", "secret/x"),
    *("a\nb.key", "c\n.env", "server.key ", "secrets /x", "netrc", "server.key.b64", "prod.env~1"),
)
# their names are no proof: they stay unless the command line names them, and what they hold decides then
NO_PROOF = {
    *("server.pem", "id_work", "id_rsa.pub", "token.txt", "wandb_token.json", "mirror.git/config"),
    *("tokens", "api_tokens.yaml", "HF_TOKEN.md", "credentials.csv", "sub/.newtool/login"),
}
BY_CONTENT = {
    "deploy_key": "-----BEGIN OPENSSH PRIVATE KEY-----\n",
    "settings.yaml": "hub: hf_" + "aB3" * 11 + "\n",
    "ci.json": '{"t": "ghp_' + "a1B2" * 9 + '"}',
    "requirements.txt": "--extra-index-url https://me:pa55@pypi.example.org/simple\n",
    "login": "machine api.wandb.ai login user password x\n",
    "hosts.yml": "all:\n  vars:\n    ansible_become_password: hunter2\n",
    "cloud.ini": "aws_secret_access_key = " + "aB3/" * 10 + "\n",
}
TRAVEL = (
    *("tokenizer.json", "tokenization.py", "tokens.txt", "secrets.py", "id_map.json", "models/keys.py", "vault.py"),
    *("password_model.py", ".env.example", ".gitkeep", ".python-version", "pkg/.gitignore", "train_history"),
    *("data.tar.gz", "token_counts.csv", "special_tokens_map.json", "cls_token.npy", "monkey.csv"),
)


def fill(folder: Path, *places: str) -> Path:
    for place in places:
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(f"{MARK}\n")
    return folder


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = fill(tmp_path / "home" / "me", *KEPT, "Documents/salaries.ods", "other/code.py")
    repository(folder / "other")
    for name, text in {"train.py": "import helper, os\n", "helper.py": MARK}.items():
        fill(folder, name).joinpath(name).write_text(text)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(folder)
    return folder


def carried(code: Code) -> bytes:
    """All bytes that go to a host of a job."""
    plan = Plan("1", 0.0, "me", (PlanHost("a", "::1"),), 1, "x", (), (), 1, 2, 8.0, "l", "v", stayed=code.stayed)
    return gzip.decompress(pack(plan, code))


def alone(code: Code, *places: str) -> None:
    assert sorted(place for _, place in code.files) == sorted(places)
    assert MARK.encode() not in carried(code)
    assert "and nothing beside" in code.describe()


def plain(home: Path) -> Path:
    return home


def of_somebody_else(home: Path) -> Path:
    os.environ["HOME"] = str(home.parent / "root")
    return home


def linked(home: Path) -> Path:
    (home.parent / "link").symlink_to(home)
    os.environ["HOME"] = str(home.parent / "link")
    return home.parent / "link"


def versioned(home: Path) -> Path:
    repository(home)
    (home / ".gitignore").write_text("*\n!.bashrc\n!.ssh/\n!.ssh/**\n!*.py\n")
    return home


KINDS = [plain, of_somebody_else, linked, versioned]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest, home: Path) -> Iterator[Path]:
    before = os.environ["HOME"]
    yield request.param(home)
    os.environ["HOME"] = before


def test_a_script_in_a_home_travels_alone(kind: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(kind)
    for code in (find_code("train.py"), find_code(str(kind / "train.py"))):
        alone(code, "train.py")
    alone(find_module("train"), "train.py")


def test_what_a_lone_script_imports_from_beside_is_said(home: Path) -> None:
    code = find_code("train.py")
    assert code.shown == ("helper.py is imported and stays here: --code DIR takes both",)
    assert [place for place, _ in code.stayed] == ["helper.py"]


@pytest.mark.parametrize("named", [".", "..", "/", "/tmp", "~"])
def test_a_home_is_not_copied_though_it_is_named(home: Path, named: str) -> None:
    folder = home if named == "~" else Path(named)
    script = "/tmp/x.py" if named == "/tmp" else "train.py"
    with pytest.raises(UsageError, match="would be copied whole"):
        find_folder(["sh"], folder)
    with pytest.raises(UsageError, match="would be copied whole"):
        find_module("train", folder)
    if named != "/tmp":
        with pytest.raises(UsageError, match="would be copied whole"):
            find_code(script, folder)
    alone(find_folder(["sh", "train.py"]), "train.py")


@pytest.mark.parametrize("place", [".config/app", ".ssh/tools", ".mozilla/x/y"])
def test_a_project_in_a_folder_of_keys_is_not_copied_whole(home: Path, place: str) -> None:
    script = fill(repository(home / place), "cookies") / "train.py"
    script.write_text("")
    with pytest.raises(UsageError, match="in a folder of keys"):
        find_code(str(script), home / place)
    alone(find_code(str(script)), "train.py")


@pytest.fixture
def project(home: Path) -> Path:
    folder = fill(repository(home / "work" / "project"), *KEPT, *TRAVEL)
    for place in (*TRAVEL, "train.py"):
        (folder / place).write_text("")
    for place, text in BY_CONTENT.items():
        (folder / place).write_text(f"{text}{MARK}\n")
    return folder


def test_a_projects_secrets_stay_and_are_counted(project: Path) -> None:
    code = find_code(str(project / "train.py"))
    assert sorted(place for _, place in code.files) == sorted([*TRAVEL, "train.py"])
    assert MARK.encode() not in carried(code)
    assert {"id_rsa", "deploy_key", ".ssh/", "TLS.KEY"} <= set(code.secrets)
    assert {place.split("/")[0] for place in (*KEPT, *BY_CONTENT)} == {place.split("/")[0] for place in code.secrets}
    assert len(code.secrets) == len([line for line in code.left_out() if "rule for secrets" in line])
    assert f"without {len(code.secrets)} secret or hidden places (" in code.describe()


def test_no_ignore_file_takes_a_secret_back(project: Path) -> None:
    patterns = ("!*", "!*/", "!secrets/", "!**", "!/**", "!.ssh/config", "!server.pem\n!.env\n!settings.yaml")
    for name in (".gitignore", ".nodectlignore"):
        for pattern in patterns:
            (project / name).write_text(f"*.log\n{pattern}\n")
            code = find_code(str(project / "train.py"))
            assert MARK.encode() not in carried(code), pattern
            assert {place for _, place in code.files} - {".gitignore", ".nodectlignore"} == {*TRAVEL, "train.py"}


def test_no_option_takes_a_secret_along(project: Path) -> None:
    script = str(project / "train.py")
    for name in filter(lambda name: (project / name).exists(), (*KEPT, *BY_CONTENT)):
        if name in NO_PROOF:
            assert name in {place for _, place in find_code(script, include=[project / name]).files}
            (project / name).write_text("-----BEGIN RSA " + "PRIVATE KEY-----")
        for include in {project / name, (project / name).parent} - {project}:
            with pytest.raises(UsageError, match="never travels with a job"):
                find_code(script, include=[include])


def test_only_the_command_line_includes(nodectl: Any, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(project, "inventory/nodectl.toml")
    (project / "inventory/nodectl.toml").write_text('[launch]\ninclude = ["id_work"]\n')
    monkeypatch.chdir(project)
    done = nodectl("launch", "train.py", check=False)
    assert (done.returncode, "--include is taken from the command line alone" in done.stderr) == (2, True)


# a cloned project's links (to `{home}` and elsewhere), its ignore files, and what it has itself
ATTACKS = {
    "home": ({"h": "{home}"}, {".nodectlignore": "!h/.ssh/id_rsa"}),
    "relative": ({"h": "../.."}, {".nodectlignore": "!h/.ssh/id_rsa\n!h/**"}),
    "etc": ({"etc": "/etc", "sub/etc": "/etc/"}, {".nodectlignore": "!etc/passwd\n!etc/**"}),
    "environment": ({"env.txt": "/proc/self/environ", "p": "/proc/self"}, {".nodectlignore": "!env.txt\n!p/environ"}),
    "file": ({"n": "{home}/Documents/salaries.ods", "n.py": "../../helper.py"}, {".nodectlignore": "!n.py\n!n"}),
    "key": ({"key": "../../.ssh/id_ed25519", "k.py": "{home}/.ssh/id_ed25519"}, {".nodectlignore": "!key\n!k.py"}),
    "nested": ({"a/b": "../c", "c/d": "{home}", "e": "a/b/d/other"}, {".nodectlignore": "!a/b/d/.ssh/**\n!e/"}),
    "dots": ({"sub/up": "../../..", "up": "sub/../../../other"}, {".nodectlignore": "!sub/up/**\n!up/"}),
    "vendored": ({"vendor/lib/h": "{home}"}, {"vendor/lib/.nodectlignore": "!h/.ssh/id_rsa\n!**"}),
    "case": ({".SSH": "{home}/.ssh", "Id_Rsa": "{home}/.ssh/config"}, {".nodectlignore": "!.SSH/**\n!Id_Rsa"}),
    "own": ({"notes": ".Ssh/ID_RSA", "k": "ID_ED25519.BAK", "d": ".Ssh"}, {".nodectlignore": "!**", ".Ssh/ID_RSA": MARK,
            "ID_ED25519.BAK": MARK, ".Env": MARK, "s/.Bash_History": MARK, "x.KEY": MARK}),
}  # fmt: skip


@pytest.fixture
def cloned(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of somebody else, in which the operator stands."""
    folder = repository(home / "work" / "cloned")
    (folder / "train.py").write_text("")
    monkeypatch.chdir(folder)
    return folder


def lay(folder: Path, home: Path, links: Mapping[str, str], files: Mapping[str, str]) -> None:
    for place, text in {**links, **files}.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        if place in files:
            (folder / place).write_text(text)
        else:
            (folder / place).symlink_to(text.format(home=home))


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_from_outside_travels_by_a_projects_files(home: Path, cloned: Path, attack: str) -> None:
    links, files = ATTACKS[attack]
    lay(cloned, home, links, files)
    (home.parent / "way").symlink_to(cloned)
    for code in (find_code("train.py"), find_code(str(home.parent / "way" / "train.py")), find_module("train"),
                 find_folder(["sh"]), find_code("train.py", cloned)):  # fmt: skip
        own = {place for place in files if place.endswith("ignore")}
        assert {place for _, place in code.files} == {"train.py", *own}
        assert MARK.encode() not in carried(code)
        stay = {place.rstrip("/") for place, _ in code.stayed}
        assert all(link in stay or link.split("/")[0] in stay for link in links if link != "a/b")
        assert code.describe().startswith(f"code: {1 + len(own)} file")


@pytest.mark.parametrize(
    ("include", "reason"),
    [
        *(("h", "does not lie in"), ("h/.ssh/id_rsa", "does not lie in"), ("h/other/code.py", "does not lie in")),
        *(("..", "does not lie in"), (".", "does not lie in"), ("../../helper.py", "does not lie in")),
        *(("notes", "does not lie in"), ("sub/../h/helper.py", "does not lie in"), ("loop", "does not lie in")),
        *((".env", "one of keys"), (".SSH", "one of keys"), ("sub", "sub/ID_RSA.bak never .* one of keys")),
        ("keys", "keys/deploy.txt never .* a private key"),
        *(("mine", "one of keys"), ("pipe", "no file"), ("keyin.py", "a private key")),
    ],
)
def test_a_name_of_the_command_line_takes_nothing_along_that_must_stay(
    home: Path, cloned: Path, include: str, reason: str
) -> None:
    lay(
        cloned,
        home,
        {"h": "{home}", "notes": "../../Documents/salaries.ods", "loop": "../cloned/..", "mine": "sub/ID_RSA.bak"},
        {".gitignore": "*\n!train.py\n", ".env": MARK, ".SSH/x": MARK, "sub/ID_RSA.bak": MARK,
         "keys/deploy.txt": "-----BEGIN OPENSSH " + "PRIVATE KEY-----",
         "keyin.py": "KEY = '-----BEGIN OPENSSH " + "PRIVATE KEY-----'"},
    )  # fmt: skip
    os.mkfifo(cloned / "pipe")
    with pytest.raises(UsageError, match=reason):
        find_code("train.py", include=[Path(include)])


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        *(("s.py", "is a link out of"), ("deep/s.py", "is a link out of"), ("h/helper.py", "is a link out of")),
        *(("h/other/code.py", "is a link out of"), ("ID_RSA", "one of keys"), ("deploy", "a private key")),
        *((".aws/credentials", "one of keys"), ("sub/.config/tool/settings", "one of keys")),
    ],
)
def test_a_script_that_is_a_link_out_of_its_project_or_a_secret_is_refused(
    home: Path, cloned: Path, typed: str, reason: str
) -> None:
    links = {"s.py": "../../helper.py", "deep/s.py": "{home}/.ssh/id_ed25519", "h": "../.."}
    files = dict.fromkeys(("ID_RSA", ".aws/credentials", "sub/.config/tool/settings"), MARK)
    lay(cloned, home, links, {**files, "deploy": "-----BEGIN RSA " + "PRIVATE KEY-----"})
    with pytest.raises(UsageError, match=reason):
        find_code(typed)
    if typed.endswith(".py") and not typed.startswith("h/other"):
        with pytest.raises(UsageError, match=reason):
            find_module(typed.removesuffix(".py").replace("/", "."))
    (cloned / "s.py").unlink()
    (cloned / "s.py").symlink_to("train.py")
    assert "train.py" in {place for _, place in find_code("s.py").files}


def _as_a_link(place: Path, target: Path) -> None:
    place.rename(place.with_name("moved"))
    place.symlink_to(target)


def _as_a_pipe(place: Path, target: Path) -> None:
    place.unlink()
    os.mkfifo(place)


@pytest.mark.parametrize(
    ("change", "place", "target"),
    [
        *((_as_a_link, "train.py", ".netrc"), (_as_a_link, "sub/config.json", ".docker/config.json")),
        *((_as_a_link, "sub", ".docker"), (_as_a_link, "sub/deep", ".docker"), (_as_a_link, "", ".docker")),
        (_as_a_pipe, "sub/config.json", ""),
    ],
)
def test_a_link_that_is_made_between_the_look_and_the_copy_sends_nothing(
    home: Path, cloned: Path, change: Callable[[Path, Path], None], place: str, target: str
) -> None:
    for name in ("sub/config.json", "sub/deep/config.json"):
        fill(cloned, name).joinpath(name).write_text("")
    code = find_code("train.py")
    assert MARK.encode() not in carried(code)
    change(cloned / place, home / target)
    with pytest.raises(JobError, match="the code cannot be read"):
        carried(code)


def test_what_is_no_file_and_hard_links_to_others_files_stay(tmp_path: Path) -> None:
    folder = fill(repository(tmp_path / "p"), "train.py")
    (folder / "train.py").write_text("")
    other = fill(tmp_path, "other") / "other"
    os.chown(other, 4711, 4711)
    os.link(other, folder / "mine.txt")
    os.link(fill(tmp_path, "own") / "own", folder / "own.txt")
    os.mkfifo(folder / "pipe")
    socket.socket(socket.AF_UNIX).bind(str(folder / "socket"))
    code = find_code(str(folder / "train.py"))
    assert [place for _, place in code.files] == ["own.txt", "train.py"]
    assert {place for place, rule in code.stayed if "what is no file" in rule} == {"mine.txt"}


CONFIGURED = (
    *("[core]\n\tworktree = {home}\n", "[core]\n\tworktree = ../..\n", "[core]\n\tfsmonitor = touch {home}/ran\n"),
    *("[core]\n\thooksPath = {home}/hooks\n", "[include]\n\tpath = {home}/.gitconfig\n"),
)


@pytest.mark.parametrize("text", CONFIGURED)
def test_a_repositorys_own_configuration_changes_nothing(home: Path, cloned: Path, text: str) -> None:
    with (cloned / ".git/config").open("a") as config:
        config.write(text.format(home=home))
    code = find_code("train.py")
    assert (code.folder, [place for _, place in code.files]) == (cloned, ["train.py"])
    assert not (home / "ran").exists()


def test_a_repository_that_wants_to_fetch_or_is_anothers_runs_nothing(home: Path, cloned: Path) -> None:
    def git(*words: str) -> str:
        own = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        return subprocess.run(["git", *own, *words], check=True, capture_output=True, text=True).stdout

    for name in ("in", "out"):
        (cloned / name).mkdir()
        (cloned / name / "a").touch()
    git("add", "-A")
    git("commit", "-q", "-m", "first")
    git("sparse-checkout", "init", "--cone", "--sparse-index")
    git("sparse-checkout", "set", "in")
    tree = git("rev-parse", "HEAD:out").strip()
    (cloned / ".git/objects" / tree[:2] / tree[2:]).unlink()
    with (cloned / ".git/config").open("a") as config:
        config.write("[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = origin\n")
        config.write(f'[core]\n\tsshCommand = "touch {home}/ran; false"\n')
        config.write(f'[remote "origin"]\n\tpromisor = true\n\tuploadpack = touch {home}/ran\n')
    for url in ("ssh://host.invalid/x", f"file://{home}/x", f"ext::touch {home}/ran"):
        git("config", "remote.origin.url", url)
        assert {place for _, place in find_code("train.py").files} == {"train.py", "in/a"}
        assert not (home / "ran").exists()
    for path in (cloned, *cloned.rglob("*")):
        os.chown(path, 4711, 4711)
    with pytest.raises(UsageError, match="dubious ownership"):
        find_code("train.py")
    assert not (home / "ran").exists()


def test_an_index_that_names_places_outside_takes_nothing_along(home: Path, cloned: Path) -> None:
    blob = subprocess.check_output(["git", "hash-object", "-w", "train.py"], text=True).strip()
    for place in ("zz/zz/helper.py", "zz/zz/.netrc"):
        subprocess.run(["git", "update-index", "--add", "--cacheinfo", f"100644,{blob},{place}"], check=True)
    index = cloned / ".git/index"
    data = index.read_bytes().replace(b"zz/zz/", b"../../")[:-20]
    index.write_bytes(data + hashlib.sha1(data).digest())  # noqa: S324 - git's own sum
    assert MARK.encode() not in carried(find_code("train.py", cloned))


def test_a_secret_in_a_program_is_said(project: Path) -> None:
    (project / "train.py").write_text("login('hf_" + "Z9" * 17 + "')\n")
    assert find_code(str(project / "train.py")).shown == (
        "train.py holds a token, and travels with it: give it by --env or --env-file instead",
    )


def test_a_key_that_comes_after_the_look_does_not_travel(project: Path) -> None:
    code = find_code(str(project / "train.py"))
    (project / "tokens.txt").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n")
    with pytest.raises(JobError, match="by now it holds a private key"):
        carried(code)
