"""Whether the launcher that nodectl deployed runs, and has the torchrun that it starts."""

from dataclasses import dataclass

from nodectl.common import node_paths
from nodectl.facts.base import Fact, output
from nodectl.facts.versions import venv_of
from nodectl.model.recording import Command, Recording

# it reads NCCL's files and prints what a job would get
_SHOW = f"""\
[ -d {node_paths.ROOT} ] || exit 3
if [ -x "$1" ]; then
  said=$("$1" --print-env 2>&1 >/dev/null)
  printf 'launcher %s %s\\n' "$?" "$(printf '%s' "$said" | tail -n 1)"
else
  echo 'launcher 127 no such program, or not executable'
fi
[ -x "$2" ] && echo 'torchrun 0 executable' || echo 'torchrun 127 not there, or not executable'
"""


@dataclass(frozen=True, slots=True)
class Launcher:
    """Why the launcher does not run, and why torchrun cannot be started; empty where they do."""

    error: str
    torchrun_error: str


def _read(recording: Recording) -> Launcher:
    text = output(recording, "launcher", f"no {node_paths.ROOT} there")
    answers = {}
    for line in text.splitlines():
        name, status, message = (line + "  ").split(" ", 2)
        reason = message.strip() if status == "127" else f"exit status {status}: {message.strip()}"
        answers[name] = "" if status == "0" else reason
    return Launcher(answers["launcher"], answers["torchrun"])


def _words(launcher: Launcher) -> str:
    return launcher.error or launcher.torchrun_error or "runs"


FACT = Fact(
    "launcher",
    lambda host: (
        Command("launcher", ("sh", "-c", _SHOW, "sh", node_paths.LAUNCHER, f"{venv_of(host)}/bin/torchrun")),
    ),
    _read,
    _words,
    row=507,
    occasion="live",
)
