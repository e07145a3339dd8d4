"""Files of a host: machine-id, names, and the variables of logins, read by the real command in a root of its own."""

import os
import subprocess
from pathlib import Path

from nodectl.facts.host_files import HOST_FILES_FACT, HostFiles, Variable
from nodectl.model.host import Host
from tests.facts.recorded import fact

PRIVATE = "hunter2"
BASHRC = f"""\
# export NCCL_ALGO=Ring
export TOKEN={PRIVATE} NCCL_DEBUG=INFO; LD_PRELOAD='/opt/a b.so'
if [ -t 1 ]; then CUDA_HOME="/opt/cuda 12"; fi
MY_NCCL_NET=IB
  export LD_LIBRARY_PATH=/opt/lib:$LD_LIBRARY_PATH
"""


def test_only_assignments_of_the_named_variables_leave_the_host(tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text(BASHRC)
    (tmp_path / ".nccl.conf").write_text(f"NCCL_TOPO_FILE={tmp_path}/.bashrc\nNCCL_TOPO_FILE=/no/topo.xml\n")
    (tmp_path / ".profile").write_text("NCCL_NET=Socket\n")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    argv = HOST_FILES_FACT.commands_on(Host("gpu01", "gpu01"))[0].argv
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=env, stdin=subprocess.DEVNULL)
    assert PRIVATE not in done.stdout and done.stderr == ""
    assert fact("host_files", host_files=done.stdout).missing == ("/no/topo.xml",)
    own = [each for each in fact("host_files", host_files=done.stdout).variables if each.file.startswith("~")]
    assert own == [
        Variable("~/.profile", "NCCL_NET", "Socket"),
        Variable("~/.bashrc", "NCCL_DEBUG", "INFO"),
        Variable("~/.bashrc", "LD_PRELOAD", "/opt/a b.so"),
        Variable("~/.bashrc", "CUDA_HOME", "/opt/cuda 12"),
        Variable("~/.bashrc", "LD_LIBRARY_PATH", "/opt/lib:$LD_LIBRARY_PATH"),
    ]


def test_every_part() -> None:
    text = (
        "/etc/machine-id\t0123456789abcdef0123456789abcdef\n"
        "/etc/hosts\t127.0.0.1 localhost # here\n/etc/hosts\t# no\n/etc/hosts\t\n"
        "/etc/hosts\t10.0.0.2 n2 n2.site\n/etc/hosts\tfd00::2\tn2\n"
        "/etc/environment\tCUDA_VISIBLE_DEVICES=\n"
    )
    names = {"localhost": ("127.0.0.1",), "n2": ("10.0.0.2", "fd00::2"), "n2.site": ("10.0.0.2",)}
    variables = (Variable("/etc/environment", "CUDA_VISIBLE_DEVICES", ""),)
    expected = HostFiles("0123456789abcdef0123456789abcdef", names, variables)
    assert fact("host_files", host_files=text) == expected
    assert HOST_FILES_FACT.words(expected) == "3 names in /etc/hosts; CUDA_VISIBLE_DEVICES= (/etc/environment)"
    assert fact("host_files", host_files="") == HostFiles(None, {}, ())
    assert fact("host_files", host_files=2).kind == "unknown"
