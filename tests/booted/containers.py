"""Containers with systemd as process 1 (systemd-nspawn): units, apt, timers, files and reboots are real in them."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.booted.journal import Journal, birth, end_process
from tests.booted.needs import search_path
from tests.booted.system import System
from tests.booted.wire import Switch

# systemd-nspawn's exit status after `systemctl reboot` inside
_REBOOTED = 133
_GROUPS = ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup")
BOOT_S = 60.0

# folder of this machine → where a container sees it
Shown = Mapping[Path, str]


class Container(System):
    """One that boots, reboots by itself, and loses at each what a machine's power-on loses."""

    def __init__(
        self, name: str, index: int, switch: Switch, journal: Journal, home: Path, ssh_config: Path, shown: Shown
    ) -> None:
        """`home/root` must be its mounted root; folders that are `shown` are read-only there."""
        super().__init__(name, switch.address(index), home, ssh_config)
        self._index, self._switch, self._journal, self._shown = index, switch, journal, shown
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted = False
        self._watcher: threading.Thread | None = None

    def alive(self) -> bool:
        """Or between two boots."""
        return self._watcher is not None and self._watcher.is_alive()

    def start(self) -> None:
        """Power on; a reboot from inside is followed."""
        self._wanted = True
        self._process = self._boot()
        self._watcher = threading.Thread(target=self._follow, name=self.name, daemon=True)
        self._watcher.start()

    def stop(self) -> None:
        """Power off, at once."""
        self._wanted = False
        if self._process:
            end_process(str(self._process.pid), birth(self._process.pid))
            self._process.wait(timeout=15)
        if self._watcher:
            self._watcher.join(timeout=15)

    def last_lines(self) -> str:
        """The console is silent in a container; its journal lies in its root and can be read from here."""
        journal = ["journalctl", f"--directory={self.home / 'root/var/log/journal'}", "--no-pager", "--lines=20"]
        done = subprocess.run(journal, capture_output=True, text=True, check=False)
        return f"{super().last_lines()}\n--- journal of {self.name}\n{done.stdout}{done.stderr}"

    def _follow(self) -> None:
        while self._process and self._process.wait() == _REBOOTED and self._wanted:
            self._process = self._boot()

    def _boot(self) -> subprocess.Popen[bytes]:
        """A new kernel has a new network: the namespace is made anew, so that no live value survives by itself."""
        namespace = self._switch.plug_container(self._index)
        argv = ["systemd-nspawn", "--quiet", f"--directory={self.home / 'root'}", "--boot", f"--machine={self.name}"]
        argv += [f"--hostname={self.name}", f"--network-namespace-path=/run/netns/{namespace}", "--console=pipe"]
        argv += [
            "--register=no",
            "--keep-unit",
            "--capability=CAP_NET_ADMIN",
            "--resolv-conf=off",
            "--timezone=off",
            "--link-journal=no",
        ]
        argv += [f"--bind-ro={folder}:{place}" for folder, place in self._shown.items()]
        group = f"nodectl-{namespace}"
        places = [Path(place, group) for place in _GROUPS if Path(place, "cgroup.procs").exists()]
        for place in places:
            self._journal.note("cgroup", str(place))
            place.mkdir(exist_ok=True)
        with self.console.open("ab") as console:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
                # /proc/sys/net is the namespace's own; without this it is shown read-only beside a given namespace
                env={**os.environ, "PATH": search_path(), "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network"},
                preexec_fn=lambda: _join(places),  # or all systems would share one control group
            )
        self._journal.note_process(process.pid)
        return process


def _join(places: list[Path]) -> None:
    for place in places:
        (place / "cgroup.procs").write_text("0")
