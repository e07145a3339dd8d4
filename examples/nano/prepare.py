"""Write train.bin, text as bytes in uint16, into the folder that is named: python prepare.py FOLDER [TEXT]."""

import array
import sys
from pathlib import Path

folder = Path(sys.argv[1])
text = Path(sys.argv[2]).read_bytes() if len(sys.argv) > 2 else b"the quick brown fox jumps over the lazy dog. " * 400
folder.mkdir(parents=True, exist_ok=True)
(folder / "train.bin").write_bytes(array.array("H", list(text)).tobytes())
print(f"{folder}/train.bin: {len(text)} tokens")
