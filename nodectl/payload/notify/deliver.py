"""One try to deliver an event in its receiver's form, bounded in time and in what is read of the answer."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import time
import urllib.error
import urllib.request
from email.utils import mktime_tz, parsedate_tz
from http.client import HTTPException, responses
from typing import Any, Dict, Iterator, List, NamedTuple, Union
from urllib.parse import quote

TRY_S = 30.0
_SECRET_BYTES = 8192
_AGAIN = frozenset((408, 425, 429))
_SENDMAIL_PLACES = "/usr/sbin:/usr/lib"
Row = Dict[str, Any]


class Outcome(NamedTuple):
    """How a try ended; `why` holds nothing of a secret, `again` says whether another may help, `after_s` not before."""

    delivered: bool
    why: str = ""
    again: bool = True
    after_s: float = 0.0


def try_each(receivers: List[Row], event: Row) -> List[Row]:
    """Try each receiver once; return a row a receiver, as `pending` has them: without `why` it was delivered."""
    rows = []
    for one in receivers:
        why = deliver(one, event).why
        told = {"receiver": one["name"], "event": event["event"], "id": event["id"]}
        rows.append({"job": "", **told, "tries": 1, "why": why, "waits": False})
    return rows


def deliver(receiver: Row, event: Row) -> Outcome:
    """Try once, for at most TRY_S seconds."""
    try:
        files = {key[: -len("_file")]: path for key, path in receiver.items() if key in ("url_file", "token_file")}
        receiver = {**receiver, **{key: read_secret(path) for key, path in files.items()}}
    except (OSError, ValueError) as error:
        return Outcome(False, f"{type(error).__name__}: its token or address cannot be read on this machine")
    try:
        asked = compose(receiver, event)
        return _run(asked) if isinstance(asked, Command) else _post(asked)
    except Exception as error:  # whatever settings or an answer make of a library: the next message has its turn
        return Outcome(False, f"it cannot be sent so ({type(error).__name__})", again=isinstance(error, OSError))


class Request(NamedTuple):
    """An HTTP request."""

    method: str
    url: str
    headers: Dict[str, str]
    body: bytes


class Command(NamedTuple):
    """A command without a shell, and its standard input."""

    argv: List[str]
    stdin: bytes


def compose(receiver: Row, event: Row) -> Union[Request, Command]:
    """Return what tells this receiver of the event; secrets stand in its `url` and `token`."""
    if receiver["form"] == "command":
        return Command(list(receiver["argv"]), json.dumps(event).encode())
    if receiver["form"] == "mail":
        return _mail(receiver, event)
    method, url, body = "POST", receiver["url"], event
    if receiver["form"] == "ntfy":  # as JSON it goes to the server's root; of several with one id the last is shown
        url, _, topic = url.rstrip("/").rpartition("/")
        body = {"topic": topic, "title": event["title"], "message": event["text"], "sequence_id": event["id"]}
    elif receiver["form"] == "slack":
        body = {"text": f"*{_escaped(event['title'])}*\n{_escaped(event['text'])}"}
    elif receiver["form"] == "matrix":  # its last part is the transaction, which the server takes once
        room = f"/_matrix/client/v3/rooms/{quote(receiver['room'], safe='')}/send/m.room.message/{quote(event['id'])}"
        method, url = "PUT", url.rstrip("/") + room
        body = {"msgtype": "m.text", "body": f"{event['title']}\n{event['text']}"}
    headers = {"Content-Type": "application/json", "User-Agent": "nodectl", "Idempotency-Key": event["id"]}
    if receiver.get("token"):
        headers["Authorization"] = f"Bearer {receiver['token']}"
    return Request(method, url, headers, json.dumps(body).encode())


def _escaped(text: str) -> str:
    """Return the text as Slack wants it: &, < and > are its own signs, as in <!channel>."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _mail(receiver: Row, event: Row) -> Command:
    """Return sendmail's call; `email` encodes the headers, and refuses one with a line's end in it."""
    from email.message import EmailMessage  # of use to this form alone
    from email.utils import formatdate

    mail = EmailMessage()
    mail["To"] = ", ".join(receiver["to"])
    if receiver.get("from"):
        mail["From"] = receiver["from"]
    mail["Subject"], mail["Date"], mail["Message-ID"] = event["title"], formatdate(), f"<{event['id']}@nodectl.invalid>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(event["text"] + "\n", cte="quoted-printable")
    return Command([receiver.get("sendmail") or "sendmail", "-t", "-i"], mail.as_bytes())


def read_secret(path: str) -> str:
    """Return the one line of a file; ValueError where it holds none, or more."""
    path = os.path.expanduser(path)
    if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe may never be written to
        raise ValueError("it is no file")
    with open(path, encoding="ascii") as file:
        lines = file.read(_SECRET_BYTES).split()
    if len(lines) != 1 or not lines[0].isprintable():
        raise ValueError("it must hold one word: the secret")
    return lines[0]


class _OverdueError(OSError):
    pass


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Raise _OverdueError inside the block after TRY_S seconds, however slowly the other side sends."""

    def end(*_: object) -> None:
        raise _OverdueError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, TRY_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _opener() -> urllib.request.OpenerDirector:
    """Return what knows HTTP, HTTPS and proxies alone, and follows no redirection: a token is for one address."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        *(urllib.request.ProxyHandler, urllib.request.HTTPHandler, urllib.request.HTTPSHandler),
        *(urllib.request.HTTPErrorProcessor, urllib.request.HTTPDefaultErrorHandler, urllib.request.UnknownHandler),
    ):
        opener.add_handler(handler())
    return opener


def _post(asked: Request) -> Outcome:
    try:
        request = urllib.request.Request(  # noqa: S310 - the opener knows no other scheme
            asked.url, asked.body, asked.headers, method=asked.method
        )
        with _limited(), _opener().open(request, timeout=TRY_S):
            return Outcome(True)  # its status tells that it was taken, whatever comes of the rest
    except urllib.error.HTTPError as error:
        return _refused(error)
    except (OSError, HTTPException, ValueError) as error:
        return Outcome(False, _reason(error), again=not isinstance(error, ValueError))


def _refused(error: urllib.error.HTTPError) -> Outcome:
    if 300 <= error.code < 400:
        return Outcome(False, f"{error.code}: it is elsewhere; name the address where it is now", again=False)
    why, asked = f"{error.code} {responses.get(error.code, '')}".strip(), str(error.headers.get("Retry-After"))
    return Outcome(False, why, again=error.code >= 500 or error.code in _AGAIN, after_s=_after_s(asked))


def _after_s(asked: str) -> float:
    """Return the seconds that a Retry-After asks for, as a number or a date; 0 where it is neither."""
    with contextlib.suppress(ValueError, OverflowError):
        return float(asked) if (date := parsedate_tz(asked)) is None else mktime_tz(date) - time.time()
    return 0.0


def _reason(error: Exception) -> str:
    """Return why in words that cannot hold an address or a token."""
    inner: object = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(inner, (_OverdueError, TimeoutError)):
        return f"no answer within {TRY_S:g} s"
    words = getattr(inner, "verify_message", None) or getattr(inner, "strerror", None)
    return str(words or f"the connection ended without an answer ({type(inner).__name__})")


def _run(asked: Command) -> Outcome:
    """Run the command in a group of its own; what it prints is not kept, since it may hold a secret."""
    places = f"{os.environ.get('PATH', os.defpath)}:{_SENDMAIL_PLACES}"
    program = shutil.which(asked.argv[0], path=places)
    if program is None:
        return Outcome(False, f"{asked.argv[0]}: no such program", again=False)
    quiet = subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            [program, *asked.argv[1:]], stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True
        )
    except OSError as error:
        return Outcome(False, f"{asked.argv[0]}: {error.strerror}")
    try:
        process.communicate(asked.stdin, timeout=TRY_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return Outcome(False, f"{asked.argv[0]} did not end within {TRY_S:g} s")
    status = process.returncode
    return Outcome(status == 0, "" if status == 0 else f"{asked.argv[0]} ended with {status}")
