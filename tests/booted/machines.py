"""Emulated machines with a kernel of their own (QEMU without acceleration): live settings, modules, locked memory."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.booted.image import alone, folder, root_image, say
from tests.booted.journal import Journal, birth, end_process
from tests.booted.kernel import add_kernel, first_root, uncompressed, unpack
from tests.booted.needs import search_path
from tests.booted.system import System
from tests.booted.wire import Switch

BOOT_S = 240.0
_VERSION = 1
_DISK = "4G"
_MEMORY_MIB = 768
# the emulated CPU is slow and nobody attacks it
_KERNEL_LINE = "root=/dev/vda rw console=ttyS0 net.ifnames=0 mitigations=off systemd.show_status=1"


@dataclass(frozen=True, slots=True)
class MachineImage:
    """A disk to copy, and what QEMU starts."""

    disk: Path
    kernel: Path
    first_root: Path


def machine_image() -> MachineImage:
    """Made once a root image, and kept beside it."""
    source = root_image()
    image = folder() / f"machine-{source.name.removeprefix('root-')}-{_VERSION}"
    with alone(folder(), image.name):
        if not image.is_dir():
            say(f"making a disk and a kernel for emulated machines (about 30 s, kept in {image})")
            staged = image.with_name(f"{image.name}.partial")
            shutil.rmtree(staged, ignore_errors=True)
            _make(source, staged)
            staged.rename(image)
    return MachineImage(image / "disk.ext4", image / "vmlinux", image / "first-root.img")


def _make(source: Path, staged: Path) -> None:
    root = staged / "root"
    staged.mkdir()
    subprocess.run(["cp", "-a", str(source), str(root)], check=True)
    release = add_kernel(root)
    unpack(root, "busybox-static")
    (root / "etc/fstab").write_text("/dev/vda / ext4 defaults 0 1\n")
    (staged / "vmlinux").write_bytes(uncompressed((root / "boot" / f"vmlinuz-{release}").read_bytes()))
    (staged / "first-root.img").write_bytes(first_root(root, release))
    disk = str(staged / "disk.ext4")
    make = ["mke2fs", "-q", "-F", "-t", "ext4", "-d", str(root), disk, _DISK]
    subprocess.run(make, check=True, env={**os.environ, "PATH": search_path()})
    shutil.rmtree(root)


class Machine(System):
    """One that is a process of this machine; a reboot from inside is QEMU's own."""

    def __init__(
        self, name: str, index: int, switch: Switch, journal: Journal, home: Path, ssh_config: Path, image: MachineImage
    ) -> None:
        """`home` must hold `disk.ext4`."""
        super().__init__(name, switch.address(index), home, ssh_config)
        self._index, self._switch, self._journal, self._image = index, switch, journal, image
        self._process: subprocess.Popen[bytes] | None = None

    def alive(self) -> bool:
        """QEMU runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Power on."""
        tap, mac = self._switch.plug_machine(self._index), self._switch.mac(self._index)
        argv = ["ip", "netns", "exec", self._switch.name, "qemu-system-x86_64", "-accel", "tcg,thread=multi"]
        argv += ["-M", "q35", "-cpu", "qemu64", "-m", str(_MEMORY_MIB), "-nodefaults", "-no-user-config"]
        argv += ["-display", "none", "-serial", f"file:{self.console}"]
        argv += ["-kernel", str(self._image.kernel), "-initrd", str(self._image.first_root), "-append", _KERNEL_LINE]
        argv += ["-drive", f"if=none,id=d0,format=raw,cache=unsafe,file={self.home / 'disk.ext4'}"]
        argv += ["-device", "virtio-blk-pci,drive=d0", "-device", "virtio-rng-pci"]
        argv += ["-netdev", f"tap,id=n0,ifname={tap},script=no,downscript=no"]
        argv += ["-device", f"virtio-net-pci,netdev=n0,mac={mac}"]
        with (self.home / "qemu.log").open("ab") as log:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PATH": search_path()},
            )
        self._journal.note_process(self._process.pid)

    def stop(self) -> None:
        """Power off, at once."""
        if self._process:
            end_process(str(self._process.pid), birth(self._process.pid))
            self._process.wait(timeout=15)

    def last_lines(self) -> str:
        """The serial console, and what QEMU itself said."""
        log = self.home / "qemu.log"
        return f"{super().last_lines()}\n{log.read_text() if log.exists() else ''}"
