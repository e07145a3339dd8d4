"""nccl-tests are built by their own make, against the environment's NCCL, and judged by what they really load.

The source here is a stand-in of a few lines with the real one's variables and target names: it asks NCCL for its
version and measures nothing. With nvcc and NVIDIA's NCCL wheel it is compiled and run for real (slow); else by g++
against a small libnccl.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nodectl.checks.check import Subject
from nodectl.checks.stack.provisioned import nccl_tests
from nodectl.common.resources import share_dir
from nodectl.facts.catalogue import commands_for, facts_named
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.profiles.resolve import resolve
from tests.facts.recorded import fact
from tests.playbooks import ansible_playbook

MAKEFILE = """\
CUDA_HOME ?= /usr/local/cuda
BUILDDIR ?= build
NVCC = $(CUDA_HOME)/bin/nvcc
NVCC_GENCODE ?= -gencode=arch=compute_80,code=sm_80
NVCUFLAGS := $(NVCC_GENCODE) -I$(NCCL_HOME)/include/
NVLDFLAGS := -L$(NCCL_HOME)/lib -lnccl
build: $(BUILDDIR)/all_reduce_perf
$(BUILDDIR)/all_reduce_perf: all_reduce.cu
\t@mkdir -p $(BUILDDIR)
\t$(NVCC) -o $@ $(NVCUFLAGS) $< $(NVLDFLAGS)
"""
SOURCE = """\
#include <nccl.h>
#include <cstdio>
int main() {
  int version = 0;
  ncclGetVersion(&version);
  std::printf("# nccl-headers=%d nccl-library=%d\\n", NCCL_VERSION_CODE, version);
}
"""
HEADER = """\
#define NCCL_MAJOR 2
#define NCCL_MINOR 18
#define NCCL_PATCH {patch}
#define NCCL_VERSION_CODE 2180{patch}
extern "C" int ncclGetVersion(int *version);
"""
# takes nvcc's words and hands to g++ what that knows
NVCC = """#!/bin/sh
[ "$1" = --version ] && {{ echo 'Cuda compilation tools, release {release}, V{release}.89'; exit 0; }}
out=
for word; do case $word in -gencode=*) ;; *.cu) out="$out -x c++ $word -x none" ;; *) out="$out $word" ;; esac; done
exec g++ $out
"""


def source(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / "all_reduce.cu").write_text(SOURCE)
    return folder


def standin_nccl(venv: Path, patch: int) -> Path:
    """A libnccl of a few lines, laid out like NVIDIA's wheel: the library under its version's name only."""
    home = venv / "lib" / "python3.11" / "site-packages" / "nvidia" / "nccl"
    for name in ("include", "lib"):
        (home / name).mkdir(parents=True, exist_ok=True)
    (home / "include" / "nccl.h").write_text(HEADER.format(patch=patch))
    code = f'extern "C" int ncclGetVersion(int *v) {{ *v = 2180{patch}; return 0; }}'
    words = ["g++", "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "-x", "c++", "-", "-o"]
    subprocess.run([*words, str(home / "lib" / "libnccl.so.2")], input=code, text=True, check=True)
    return home


def standin_toolkit(folder: Path, release: str) -> Path:
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "bin" / "nvcc").write_text(NVCC.format(release=release))
    (folder / "bin" / "nvcc").chmod(0o755)
    return folder


def run(tmp_path: Path, *, cuda_home: Path, check: bool = False) -> str:
    """What ansible-playbook prints of the role's own tasks here, with the source where the role has put it."""
    variables = {
        "nccl_tests_version": "v2.13.9",
        "nccl_tests_folder": str(tmp_path / "nccl-tests"),
        "nccl_tests_venv": str(tmp_path / "venv"),
        "nccl_tests_cuda_home": str(cuda_home),
        "nccl_tests_capability": "8.0",
        "nccl_tests_jobs": 1,
    }
    tasks = [
        {"ansible.builtin.include_role": {"name": "nodectl.fleet.nccl_tests", "tasks_from": name}}
        for name in ("look", "configure", "look")
    ]
    tasks.append({"ansible.builtin.debug": {"msg": "BUILT {{ nccl_tests_host.built }}"}})
    play = tmp_path / "play.yml"
    play.write_text(
        json.dumps([{"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": tasks}]), encoding="utf-8"
    )
    words = ["-i", "localhost,", "-c", "local", str(play), "-e", f"ansible_python_interpreter={sys.executable}"]
    env = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(share_dir()), "ANSIBLE_NOCOLOR": "1"}
    done = ansible_playbook(*words, *(["--check"] if check else []), env=env, cwd=tmp_path)
    return done.stdout + done.stderr


def note_of(tmp_path: Path) -> dict[str, str]:
    note: dict[str, str] = json.loads((tmp_path / "nccl-tests/v2.13.9/nodectl-build.json").read_text())
    return note


def verified(tmp_path: Path, cuda_home: Path) -> list[Finding]:
    """What health's check says of the host, by the fact's own script run here on these folders."""
    (command,) = commands_for(Host("a", "a"), facts_named("nccl_tests"))
    script = command.argv[2].replace("/usr/local/cuda-*", "/nonexistent")
    argv = ["sh", "-c", script, "sh", str(tmp_path / "nccl-tests"), str(tmp_path / "venv"), str(cuda_home)]
    text = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    wanted = resolve("dgx-a100", "cu128", "stock", overrides={"stack": {"nccl_tests": "v2.13.9"}})
    return list(nccl_tests(Subject("a", {"nccl_tests": fact("nccl_tests", nccl_tests=text)}, wanted)))


@pytest.mark.skipif(not shutil.which("g++") or not shutil.which("make"), reason="no g++ and make here")
@pytest.mark.slow
def test_built_against_the_environments_nccl_and_again_when_that_is_another(tmp_path: Path) -> None:
    toolkit = standin_toolkit(tmp_path / "cuda", "11.8")
    before = run(tmp_path, cuda_home=toolkit, check=True)
    assert "changed=1 " in before and "failed=0 " in before, "a first --check has a toolkit, and no NCCL yet"
    standin_nccl(tmp_path / "venv", 1)
    target = tmp_path / "nccl-tests" / "v2.13.9"
    source(tmp_path / "nccl-tests" / ".partial-source")
    said = run(tmp_path, cuda_home=toolkit)
    assert target.is_dir() and "BUILT True" in said, said
    note = note_of(tmp_path)
    assert (note["nccl"], note["cuda"], note["capability"]) == ("2.18.1", "11.8", "8.0")
    assert sorted(path.name for path in target.parent.iterdir()) == ["v2.13.9"], (
        "nothing half-made and no source is left"
    )
    clean = {name: text for name, text in os.environ.items() if name != "LD_LIBRARY_PATH"}
    shown = subprocess.run([target / "all_reduce_perf"], capture_output=True, text=True, env=clean, check=True).stdout
    assert shown == "# nccl-headers=21801 nccl-library=21801\n", "found without a search path"
    assert [(found.subject, found.status) for found in verified(tmp_path, toolkit)] == [("library", Status.OK)]

    standin_nccl(tmp_path / "venv", 3)
    (stale,) = verified(tmp_path, toolkit)
    assert stale.status is Status.FAILED and stale.actual == "built from something else"
    source(tmp_path / "nccl-tests" / ".partial-source")
    run(tmp_path, cuda_home=toolkit)
    assert note_of(tmp_path)["nccl"] == "2.18.3"


def test_without_a_compiler_nothing_is_built_and_verify_says_so(tmp_path: Path) -> None:
    (found,) = verified(tmp_path, tmp_path / "none")
    assert found.status is Status.WARNING and found.actual == "not built: no nvcc"


@pytest.mark.slow
def test_a_source_that_does_not_build_is_told_with_its_last_lines(tmp_path: Path) -> None:
    toolkit = standin_toolkit(tmp_path / "cuda", "11.8")
    if not shutil.which("g++"):
        pytest.skip("no g++ here")
    standin_nccl(tmp_path / "venv", 1)
    (source(tmp_path / "nccl-tests" / ".partial-source") / "all_reduce.cu").write_text(
        "int main() { return nonsense; }\n"
    )
    target = tmp_path / "nccl-tests" / "v2.13.9"
    target.mkdir()
    (target / "all_reduce_perf").touch(0o755)
    (target / "nodectl-build.json").touch()  # as a power cut leaves it: nothing says of what it was built
    said = run(tmp_path, cuda_home=toolkit)
    assert "nccl-tests could not be built" in said and "nonsense" in said
    assert target.exists(), "what was there stays until another is complete"
