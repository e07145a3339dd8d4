"""CIFAR-10 as its authors published it, in small: pictures by a rule, pickled as Python 2 did."""

import pickle
import struct
from pathlib import Path

PICTURE = 3072
COUNT = 4


def picture(number: int) -> bytes:
    """Every byte says which picture it is of and where."""
    return bytes((number * 31 + place * 7) % 256 for place in range(PICTURE))


def label(number: int) -> int:
    return number * 3 % 10


def as_pickle(numbers: range) -> bytes:
    """Protocol 2 as Python 2 wrote it: its texts are byte strings, which no Python 3 writes."""

    def text(data: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(data)) + data

    labels = b"](" + b"".join(b"K" + bytes([label(number)]) for number in numbers) + b"e"
    shape = struct.pack("<cHcH", b"M", len(numbers), b"M", PICTURE) + b"\x86"
    unused = b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    kind = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R(K\x03" + text(b"|") + unused
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    pixels = empty + b"(K\x01" + shape + kind + b"\x89" + text(b"".join(map(picture, numbers))) + b"tb"
    entries = text(b"batch_label") + text(b"training batch 1 of 5") + text(b"labels") + labels + text(b"data") + pixels
    return b"\x80\x02}(" + entries + b"u."


def unpacked(place: Path) -> Path:
    """The folder with five batches of `COUNT` and a test batch."""
    folder = place / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for batch in range(6):
        name = f"data_batch_{batch + 1}" if batch < 5 else "test_batch"
        (folder / name).write_bytes(as_pickle(range(batch * COUNT, (batch + 1) * COUNT)))
    names = {"label_names": [str(number) for number in range(10)]}
    (folder / "batches.meta").write_bytes(pickle.dumps(names))
    return folder
