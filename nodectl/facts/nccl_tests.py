"""The programs of nccl-tests on the host: from what they were built, which NCCL they load, and whether they run."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from nodectl.common import bounded_json, node_paths
from nodectl.common.counting import counted
from nodectl.errors import ParseError
from nodectl.facts.base import Fact, output, variable
from nodectl.facts.versions import venv_of
from nodectl.model.host import Host
from nodectl.model.recording import Command, Recording

# FOLDER VENV CUDA_HOME: one build for each version of the source; the one that `nodectl provision` made last counts
_SHOW = r"""for each in "$3" /usr/local/cuda-*; do
  [ -x "$each/bin/nvcc" ] || continue
  printf 'cuda %s\n' "$("$each/bin/nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')"
done
own=
for each in "$2"/lib/python3*/site-packages/nvidia/nccl; do [ ! -e "$each/lib/libnccl.so.2" ] || own=$each; done
[ -z "$own" ] || printf 'own %s\n' "$(readlink -f "$own/lib/libnccl.so.2")"
sed -n 's/^#define NCCL_\(MAJOR\|MINOR\|PATCH\) *\([0-9]*\).*/\2/p' "${own:-/usr}/include/nccl.h" 2>/dev/null |
  tr '\n' '.' | sed 's/^/headers /; s/\.$//'
echo
for note in "$1"/v*/nodectl-build.json; do
  [ -e "$note" ] || continue
  program=${note%/*}/all_reduce_perf
  [ -x "$program" ] || continue
  printf 'program %s\nnote %s\n' "$program" "$(tr -d '\n' <"$note")"
  printf 'library %s\n' "$(readlink -f "$(ldd "$program" | sed -n 's/.*libnccl\.so[^ ]* => \(\/[^ ]*\).*/\1/p')")"
  [ -e /dev/nvidia0 ] || continue
  said=$("$program" -b 8 -e 8 -g 1 -n 1 -w 1 2>&1)
  printf 'run %s %s\n' "$?" "$(printf '%s' "$said" | tr '\n' ' ')"
done
"""


@dataclass(frozen=True, slots=True)
class NcclTestsBuild:
    """One build: from what it was made (`note`), the libnccl that it loads, and how a run of it ended where it could.

    `run_error` is empty where the run ended well, None where there was no GPU to run on.
    """

    program: str
    note: Mapping[str, str]
    library: str
    run_error: str | None = None


@dataclass(frozen=True, slots=True)
class NcclTests:
    """`cuda` are the releases of nvcc, `headers` the NCCL that a build would take, `own_library` the environment's."""

    cuda: frozenset[str]
    headers: str
    own_library: str
    builds: tuple[NcclTestsBuild, ...]


def _commands(host: Host) -> tuple[Command, ...]:
    cuda = variable(host, "nccl_tests_cuda_home", "/usr/local/cuda")
    argv = ("sh", "-c", _SHOW, "sh", node_paths.NCCL_TESTS, venv_of(host), cuda)
    return (Command("nccl-tests", argv, deadline_s=60),)


def _read(recording: Recording) -> NcclTests:
    single: dict[str, str] = {}
    builds: list[dict[str, str]] = []
    cuda: set[str] = set()
    for line in output(recording, "nccl-tests").splitlines():
        name, _, text = line.partition(" ")
        if name == "cuda" and text:
            cuda.add(text)
        if name == "program":
            builds.append({})
        (builds[-1] if builds else single)[name] = text.strip()
    headers, own = single.get("headers", ""), single.get("own", "")
    return NcclTests(frozenset(cuda), headers, own, tuple(map(_build, builds)))


def _build(lines: Mapping[str, str]) -> NcclTestsBuild:
    try:
        note = {str(key): str(value) for key, value in bounded_json.loads(lines["note"]).items()}
    except (ValueError, KeyError, AttributeError) as error:
        raise ParseError(f"nccl-tests: {lines}") from error
    run = lines.get("run")
    return NcclTestsBuild(
        lines["program"], note, lines.get("library", ""), None if run is None else _run_error(*run.partition(" ")[::2])
    )


def _run_error(status: str, text: str) -> str:
    """It ended well, without a wrong value, and headers and library are of one version."""
    wrong = re.search(r"Out of bounds values\s*:\s*(\d+)", text)
    words = [re.search(rf"nccl-{name}=\s*(\d+)", text) for name in ("headers", "library")]
    versions = {word[1] for word in words if word}
    if status != "0":
        return f"ended with {status}: {text[-200:].strip()}"
    if wrong and wrong[1] != "0":
        return counted(int(wrong[1]), "wrong value")
    return "headers and library are of two versions" if len(versions) > 1 else ""


def _words(tests: NcclTests) -> str:
    return ", ".join(build.program for build in tests.builds) or "not built"


FACT = Fact("nccl_tests", _commands, _read, _words, row=509, occasion="verify")
