"""NVIDIA's nvidia-smi on top of the simulated NVML, run here: its state, its calls, and the recording of them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from nodectl.lab.dress import hardware_commands
from nodectl.lab.nvml import programs, smi_folder
from nodectl.model.recording import Entry, Recording

COMMANDS = tuple(command for command in hardware_commands() if command.argv[0] == "nvidia-smi")
needs_nvidia_smi = pytest.mark.skipif(not programs(), reason=f"{smi_folder()} is empty: run `make nvidia-smi`")
each_version = pytest.mark.parametrize("program", programs(), ids=lambda path: path.parent.name)


@dataclass(frozen=True)
class Simulated:
    """One version of nvidia-smi, and the state file under it."""

    program: Path
    state: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"LD_LIBRARY_PATH": str(self.program.parents[1]), "NODECTL_NVML_STATE": str(self.state)}
        return subprocess.run([self.program, *words], capture_output=True, text=True, env=env, check=False, timeout=60)

    def recorded(self, base: Recording) -> Recording:
        """The recording with what this nvidia-smi prints."""
        entries: dict[str, Entry] = {}
        for command in COMMANDS:
            done = self.run(*command.argv[1:])
            said = {"exit_status": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
            entries[command.key] = replace(base.entries[command.key], **said)  # type: ignore[arg-type]
        return replace(base, entries={**base.entries, **entries})

    def values(self, gpu: int) -> dict[str, str]:
        rows = (line.split(" ", 2) for line in self.state.read_text().splitlines())
        return {key: value for index, key, value in rows if index == str(gpu)}

    def write(self, *lines: str) -> None:
        """Put lines in front: the first of a key counts."""
        self.state.write_text("".join(f"{line}\n" for line in lines) + self.state.read_text())
