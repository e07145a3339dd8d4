"""A machine's own kernel and a small first root for it, taken out of the distribution's packages."""

from __future__ import annotations

import io
import lzma
import shutil
import stat
import subprocess
import zlib
from collections.abc import Iterable
from pathlib import Path

from tests.booted.pool import POOL

# what a machine needs to reach its disk and its cable; udev would find the rest
_EARLY = ("virtio_pci", "virtio_blk", "virtio_net", "virtio_rng", "crc32c_generic", "ext4")
# no such hardware is emulated, and they are most of the package
_LEFT_OUT = (
    "drivers/gpu", "drivers/media", "drivers/iio", "drivers/staging", "drivers/usb", "drivers/hid", "drivers/isdn",
    "drivers/net/wireless", "drivers/net/ethernet", "drivers/net/usb", "drivers/net/wwan", "sound",
)  # fmt: skip
_ELF = b"\x7fELF"
_INIT = """\
#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev; $b mount -t proc proc /proc; $b mount -t sysfs sys /sys
for m in {modules}; do $b insmod /m/$m || echo "first root: $m does not load"; done
n=0; while [ ! -e /dev/vda ] && [ $n -lt 200 ]; do $b sleep 0.05; n=$((n+1)); done
$b mount -t ext4 -o rw /dev/vda /mnt || {{ echo "first root: no disk"; $b poweroff -f; }}
$b mount -o move /dev /mnt/dev; $b umount /proc /sys
exec $b switch_root /mnt /lib/systemd/systemd
"""


def unpack(root: Path, name: str) -> None:
    """A package of the pool's files into `root`, as far as they are needed to boot."""
    found = sorted((root / POOL.lstrip("/")).glob(f"{name}_*.deb"))
    if not found:
        raise RuntimeError(f"no package {name} in {root}{POOL}")
    files = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(found[-1])], check=True, capture_output=True).stdout
    # /lib is a link to /usr/lib, and must stay one
    subprocess.run(["tar", "-x", "--keep-directory-symlink", "-C", str(root)], input=files, check=True)


def add_kernel(root: Path) -> str:
    """Unpack the newest kernel of the pool into `root`, without what is not emulated; its release."""
    pool = root / POOL.lstrip("/")
    names = sorted(path.name.partition("_")[0] for path in pool.glob("linux-image-[0-9]*_*.deb"))
    unpack(root, names[-1])
    release = names[-1].removeprefix("linux-image-")
    for part in _LEFT_OUT:
        shutil.rmtree(root / "lib/modules" / release / "kernel" / part, ignore_errors=True)
    subprocess.run(["chroot", str(root), "depmod", release], check=True)
    return release


def uncompressed(image: bytes) -> bytes:
    """The ELF kernel inside a bzImage; QEMU starts it directly, and emulated decompression takes seconds."""
    if image.startswith(_ELF):
        return image
    for mark, kind in ((b"\xfd7zXZ\x00", "xz"), (b"\x1f\x8b\x08", "gzip")):
        start = image.find(mark)
        while start >= 0:
            try:
                unpacker = lzma.LZMADecompressor() if kind == "xz" else zlib.decompressobj(zlib.MAX_WBITS | 16)
                kernel = unpacker.decompress(image[start:])
            except (lzma.LZMAError, zlib.error):
                kernel = b""
            if kernel.startswith(_ELF):
                return bytes(kernel)
            start = image.find(mark, start + 1)
    raise RuntimeError("the kernel is compressed with neither xz nor gzip: teach `uncompressed` the other one")


def load_order(root: Path, release: str, wanted: Iterable[str]) -> list[Path]:
    """The files of `wanted` modules and of all that they need, each after what it needs; built-in ones have none."""
    folder = root / "lib/modules" / release
    needs: dict[str, list[str]] = {}
    for line in (folder / "modules.dep").read_text().splitlines():
        path, _, others = line.partition(":")
        needs[path] = others.split()
    by_name = {Path(path).name.partition(".")[0].replace("-", "_"): path for path in needs}
    order: list[str] = []
    for path in (by_name[name] for name in wanted if name in by_name):
        # modules.dep names the direct ones first, so the last goes in first
        for part in [*reversed(needs[path]), path]:
            if part not in order:
                order.append(part)
    return [folder / path for path in order]


def first_root(root: Path, release: str) -> bytes:
    """An initramfs: busybox, the early modules, and a script that mounts the disk and goes on with systemd."""
    modules = load_order(root, release, _EARLY)
    archive = io.BytesIO()
    for folder in ("bin", "dev", "proc", "sys", "mnt", "m"):
        _put(archive, folder, stat.S_IFDIR | 0o755)
    for path in modules:
        _put(archive, f"m/{path.name}", stat.S_IFREG | 0o644, path.read_bytes())
    _put(archive, "bin/busybox", stat.S_IFREG | 0o755, (root / "bin/busybox").read_bytes())
    script = _INIT.format(modules=" ".join(path.name for path in modules))
    _put(archive, "init", stat.S_IFREG | 0o755, script.encode())
    _put(archive, "TRAILER!!!", 0)
    return archive.getvalue()


def _put(archive: io.BytesIO, name: str, mode: int, data: bytes = b"") -> None:
    """One entry in cpio's `newc` form."""
    title = name.encode() + b"\0"
    inode = archive.tell() + 1
    fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(title), 0)
    archive.write(b"070701" + b"".join(b"%08X" % value for value in fields) + title)
    archive.write(b"\0" * (-archive.tell() % 4) + data)
    archive.write(b"\0" * (-archive.tell() % 4))
