"""CIFAR-10 as it is published: which forms a folder may hold it in, and how they are read without numpy."""

from __future__ import annotations

import io
import pickle
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch
else:  # on a node these files lie in one folder, without the package
    from pytorch import torch

CLASSES = 10
SIDE = 32
COLOURS = 3
_PICTURE_BYTES = COLOURS * SIDE * SIDE
_TRAINING = tuple(f"data_batch_{number}" for number in range(1, 6))
_TEST = "test_batch"


class Pictures(NamedTuple):
    """`pixels` are uint8 (count, 3, 32, 32), `labels` int64 (count)."""

    pixels: torch.Tensor
    labels: torch.Tensor


class Published(NamedTuple):
    """The pictures to train on and those to test with."""

    training: Pictures
    test: Pictures


def read(folder: Path) -> Published | None:
    """CIFAR-10 out of a folder, None where it holds none; ValueError, with the file, for what is there and broken.

    It is taken unpacked or packed, in the form for Python (pickles) or the binary one, from the folder itself or from
    the one that its archive unpacks to.
    """
    for name, suffix, parse in (("py", "", from_pickle), ("bin", ".bin", from_records)):
        for place in (folder, folder / f"cifar-10-batches-{name}"):
            if (place / f"{_TRAINING[0]}{suffix}").is_file():
                return _published(_Files(place).read, place, suffix, parse)
    for name, suffix, parse in (("python", "", from_pickle), ("binary", ".bin", from_records)):
        path = folder / f"cifar-10-{name}.tar.gz"
        if path.is_file():
            return _published(_unpacked(path).__getitem__, path, suffix, parse)
    return None


class _Files(NamedTuple):
    folder: Path

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()


def _unpacked(path: Path) -> dict[str, bytes]:
    """Return the files of an archive by their names, without folders."""
    try:
        with tarfile.open(path) as archive:
            members = [(member, archive.extractfile(member)) for member in archive if member.isfile()]
            return {Path(member.name).name: file.read() for member, file in members if file}
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from error


def _published(get: Callable[[str], bytes], place: Path, suffix: str, parse: Callable[[bytes], Pictures]) -> Published:
    def batch(name: str) -> Pictures:
        try:
            return parse(get(f"{name}{suffix}"))
        except (OSError, KeyError) as error:
            raise ValueError(f"{place}: {name}{suffix} is missing or cannot be read ({error})") from error
        except ValueError as error:
            raise ValueError(f"{place}: {name}{suffix}: {error}") from error

    return Published(_joined([batch(name) for name in _TRAINING]), batch(_TEST))


def _joined(batches: Sequence[Pictures]) -> Pictures:
    return Pictures(torch.cat([batch.pixels for batch in batches]), torch.cat([batch.labels for batch in batches]))


def from_records(data: bytes) -> Pictures:
    """Read the binary form: for each picture its label in a byte, then its red, green and blue plane."""
    size = 1 + _PICTURE_BYTES
    if not data or len(data) % size:
        raise ValueError(f"{len(data)} bytes are no whole number of records of {size}")
    records = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(-1, size)
    return _checked(records[:, 1:].reshape(-1, COLOURS, SIDE, SIDE), records[:, 0].to(torch.int64))


def from_pickle(data: bytes) -> Pictures:
    """Read the form for Python: a mapping pickled by Python 2, of a numpy array of pictures and a list of labels.

    Nothing that a pickle names is called but what such an array is made of.
    """
    try:
        document = _Reader(io.BytesIO(data), encoding="bytes").load()
    except Exception as error:  # a pickle can fail in any way
        raise ValueError(f"no pickle of CIFAR-10: {error}") from error
    pixels, labels = _field(document, "data"), _field(document, "labels")
    if not isinstance(pixels, _Array) or not isinstance(labels, list):
        raise ValueError("no pickle of CIFAR-10: it holds no array 'data' and list 'labels'")
    block = torch.frombuffer(bytearray(pixels.raw), dtype=torch.uint8)
    if pixels.shape != (len(labels), _PICTURE_BYTES) or block.numel() != len(labels) * _PICTURE_BYTES:
        raise ValueError(f"its array is {pixels.shape}, not ({len(labels)}, {_PICTURE_BYTES})")
    return _checked(block.view(-1, COLOURS, SIDE, SIDE), torch.tensor(labels, dtype=torch.int64))


def _field(document: Any, name: str) -> Any:
    """Names are bytes where Python 2 wrote them."""
    return document.get(name.encode(), document.get(name)) if isinstance(document, dict) else None


def _checked(pixels: torch.Tensor, labels: torch.Tensor) -> Pictures:
    if int(labels.min()) < 0 or int(labels.max()) >= CLASSES:
        raise ValueError(f"a label is {int(labels.max())}: CIFAR-10 has 0 to {CLASSES - 1}")
    return Pictures(pixels, labels)


class _Array:
    """A stand-in for numpy's array: its shape and its bytes."""

    shape: tuple[int, ...] = ()
    raw = b""

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, by_columns, raw = state
        if kind.name not in ("u1", b"u1") or by_columns or not isinstance(raw, bytes):
            raise ValueError(f"its array is of {kind.name!r}, not of bytes in rows")
        self.shape, self.raw = tuple(shape), raw


class _Kind:
    """A stand-in for numpy's dtype."""

    def __init__(self, name: Any, *_: Any) -> None:
        self.name = name

    def __setstate__(self, state: Any) -> None:
        """Byte order and fields, which bytes have not."""


def _made(*_: Any) -> _Array:
    return _Array()


def _encoded(text: str, *_: Any) -> bytes:
    """How Python 3 writes bytes into a pickle that Python 2 can read."""
    return text.encode("latin1")


_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _made,
    ("numpy._core.multiarray", "_reconstruct"): _made,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Kind,
    ("_codecs", "encode"): _encoded,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Only what is allowed; the rest of a pickle's power is refused."""
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which CIFAR-10 does not need")
        return _ALLOWED[module, name]
