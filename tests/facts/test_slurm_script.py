"""What makes a host Slurm's: slurmd, or a configuration that names it; a client that is installed does not."""

import os
import subprocess
from pathlib import Path

import pytest

from nodectl.facts.base import read_fact
from nodectl.facts.services import SLURM_FACT, SlurmNode
from nodectl.model.facts import Unread
from nodectl.model.host import Host
from nodectl.model.recording import Entry, Recording
from tests.facts.parsers.tool_outputs import recorded_text

NODE = "NodeName=here State=MIXED CPUTot=4"
# as Slurm 22.05 and 19.05 print it without a configuration, and each with one whose controller does not answer
NO_FILE = (
    "scontrol: error: fetch_config: DNS SRV lookup failed\nscontrol: fatal: Could not establish a configuration source"
)
OLD_NO_FILE = "scontrol: error: s_p_parse_file: unable to status file /etc/slurm-llnl/slurm.conf: No such file"
NO_ANSWER = "slurm_load_node error: Unable to contact slurm controller (connect failure)"
NAMED = "ClusterName=c\nNodeName=here,node[01-03] CPUs=4\nNodeName=DEFAULT RealMemory=1\n"
OTHERS = "ClusterName=c\nnodename=there CPUs=4\nNodeName=DEFAULT RealMemory=1\n"

SCONTROL = recorded_text("slurm-script-scontrol.txt")


def look(folder: Path, node: str = "", complaint: str = "", configuration: str = "", *, slurmd: bool = False) -> object:
    """The fact of a host whose scontrol says so, read by the real script."""
    (folder / "scontrol").write_text(SCONTROL)
    (folder / "scontrol").chmod(0o755)
    (folder / "slurm.conf").write_text(configuration)
    told = {"NODE": node, "COMPLAINT": complaint, "SLURMD_NODENAME": "here", "SLURM_CONF": f"{folder}/slurm.conf"}
    (command,) = SLURM_FACT.commands_on(Host("here", "192.0.2.1"))
    daemon = subprocess.Popen(["sleep", "60"], executable=_named_slurmd(folder)) if slurmd else None
    try:
        env = {**os.environ, **told, "PATH": f"{folder}:{os.environ['PATH']}"}
        # another test's slurmd on this machine is none of this host's
        alone = [] if slurmd or os.geteuid() else ["unshare", "--pid", "--fork", "--mount-proc"]
        done = subprocess.run([*alone, *command.argv], env=env, capture_output=True, text=True, check=False, timeout=30)
    finally:
        if daemon is not None:
            daemon.kill()
            daemon.wait()
    key = command.key
    return read_fact(
        SLURM_FACT, Recording("here", {key: Entry(key, command.argv, done.returncode, done.stdout, done.stderr, 0.1)})
    )


def _named_slurmd(folder: Path) -> str:
    """A program that the kernel lists by this name."""
    program = folder / "slurmd"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("complaint", "configuration"),
    [(NO_FILE, ""), (OLD_NO_FILE, ""), (f"{OLD_NO_FILE}, retrying in 1sec up to 60sec", ""), (NO_ANSWER, OTHERS)],
)
def test_a_client_alone_makes_no_node(tmp_path: Path, complaint: str, configuration: str) -> None:
    found = look(tmp_path, complaint=complaint, configuration=configuration)
    assert isinstance(found, Unread) and (found.kind, "no slurmd runs" in found.reason) == ("absent", True), found


@pytest.mark.parametrize("configuration", [NAMED, "ClusterName=c\nInclude nodes.conf\n", f"Include a\n{OTHERS}", ""])
def test_a_node_whose_controller_is_silent_is_unknown(tmp_path: Path, configuration: str) -> None:
    found = look(tmp_path, complaint=NO_ANSWER, configuration=configuration)
    assert isinstance(found, Unread) and (found.kind, "Unable to contact" in found.reason) == ("unknown", True), found


def test_where_slurmd_runs_a_missing_configuration_is_unknown(tmp_path: Path) -> None:
    found = look(tmp_path, complaint=NO_FILE, slurmd=True)
    assert isinstance(found, Unread) and found.kind == "unknown", found


@pytest.mark.parametrize("slurmd", [True, False])
def test_a_node_that_the_controller_knows(tmp_path: Path, slurmd: bool) -> None:
    assert look(tmp_path, node=NODE, slurmd=slurmd) == SlurmNode("here", ("MIXED",), True, cpus=4)
