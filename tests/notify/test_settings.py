"""`[[notify]]` of nodectl.toml: what is refused, in words that hold no secret; where secrets come from."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from nodectl.errors import UsageError
from nodectl.notify.settings import Receiver, documents, read_receivers

SECRET = "s3cr3t-0123456789"  # noqa: S105 - planted
HOOK = f"https://hooks.slack.com/services/{SECRET}"


def read(text: str, folder: Path = Path()) -> tuple[Receiver, ...]:
    return read_receivers(tomllib.loads(text).get("notify"), folder / "nodectl.toml")


def one(**keys: Any) -> str:
    return "[[notify]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in {"name": "a", **keys}.items())


def secret_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "secret"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_form_is_json_and_all_is_told_where_nothing_else_is_said() -> None:
    forms = [read(one(**keys))[0].form for keys in ({"url": "https://x"}, {"form": "mail", "to": ["a@b.example"]})]
    assert forms == ["json", "mail"]
    assert read("") == ()
    assert len(read(one(url="https://x"))[0].on) == 6


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("notify = 3\n", "[[notify]]"),
        (one(), "url"),
        (one(url="https://x", url_file="f"), "once"),
        (one(url="ftp://x"), "https://"),
        (one(url=f"https://u:{SECRET}@x"), "token_file"),
        (one(url="http://x.example", token_file="t"), "unencrypted"),  # noqa: S106
        (one(url="https://ntfy.sh/", form="ntfy"), "topic"),
        (one(url=HOOK, form="slack"), "url_file"),
        (one(url="https://x", form="matrix", token_file="t"), "room"),  # noqa: S106
        (one(form="command", argv=[]), "argv"),
        (one(form="command", argv=["x"], url="https://x"), "url"),
        (one(form="mail", to=["a@b.example\nBcc: c@d.example"]), "to.0"),
        (one(url="https://x", on=["job-edn"]), "on.0"),
        (one(url="https://x", tokenfile="t"), "tokenfile"),
        (one(url="https://x", name="../x"), "name"),
        (one(url="https://x") + one(url="https://y"), "twice"),
        (one(form="command", argv=["x", "a\0"]), "argv.1"),
        (one(url="https://x", certificate_days=10**400), "certificate_days"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(text: str, word: str) -> None:
    with pytest.raises(UsageError) as raised:
        read(text)
    said = raised.value.message + raised.value.remedy
    assert "nodectl.toml" in raised.value.message and word in said and raised.value.remedy
    assert SECRET not in said


def test_secrets_travel_by_what_their_files_hold(tmp_path: Path) -> None:
    path = secret_file(tmp_path, SECRET + "\n")
    receivers = read(one(url="https://x", token_file="secret"), tmp_path)  # noqa: S106
    (row,) = documents(receivers, travel=True)
    assert row["token"] == SECRET and "token_file" not in row
    (row,) = documents(receivers, travel=False)
    assert row["token_file"] == str(path) and "token" not in row
    (row,) = documents(read(one(url="https://x", token_file="/there", on_node=True)), travel=True)  # noqa: S106
    assert row["token_file"] == "/there"  # noqa: S105


@pytest.mark.parametrize(
    ("text", "mode", "word"),
    [
        ("", 0o600, "one word"),
        ("a b", 0o600, "one word"),
        (SECRET, 0o640, "others"),
        (f"http://x/{SECRET}", 0o600, "https"),
    ],
)
def test_a_secret_s_file_is_held_against_what_it_must_be(tmp_path: Path, text: str, mode: int, word: str) -> None:
    secret_file(tmp_path, text, mode)
    with pytest.raises(UsageError, match=word) as raised:
        documents(read(one(url_file="secret", form="slack"), tmp_path), travel=True)
    assert SECRET not in raised.value.message + raised.value.remedy


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"receiver a: .*gone: No such file"):
        documents(read(one(url_file="gone"), tmp_path), travel=True)


@pytest.mark.timeout(10)
def test_a_pipe_is_no_secret_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "secret", 0o600)
    with pytest.raises(UsageError, match="one word"):
        documents(read(one(url="https://x", token_file="secret"), tmp_path), travel=True)  # noqa: S106


def test_the_home_of_nobody_is_a_place_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        documents(read(one(url="https://x", token_file="~no-such-login/t"), tmp_path), travel=True)  # noqa: S106


def test_a_program_for_mail_may_have_blanks_in_its_path() -> None:
    assert read(one(form="mail", to=["a@b.example"], sendmail="/opt/my mail/send"))[0].sendmail == "/opt/my mail/send"
