"""Text as tokens: the bytes of a folder of files, or of words that are made up and can be learnt."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from nodectl.workloads import ranks
    from nodectl.workloads.workload import Batch, Data
else:  # on a node these files lie in one folder, without the package
    import ranks
    from pytorch import torch
    from workload import Data

# every byte, and what stands between two files
VOCABULARY = 257
BETWEEN = 256
LARGEST_BYTES = 1 << 30
_WORDS = 64
_FOLLOWERS = 4
_LETTERS = b"abcdefghijklmnopqrstuvwxyz"
_MADE_UP_WORDS = 50_000


class Text(Data):
    """Pieces of `length` tokens and, as targets, the token after each; `samples` pieces, over and over if need be."""

    def __init__(self, description: str, tokens: torch.Tensor, length: int, samples: int | None = None) -> None:
        self.words = description
        self._tokens, self._length = tokens, length
        self._pieces = (len(tokens) - 1) // length
        self._samples = samples or self._pieces
        if not self._pieces:
            raise SystemExit(
                f"{description}: {len(tokens)} tokens make no sample of {length} and one more: take a shorter --seq"
            )

    def __len__(self) -> int:
        return self._samples

    def batch(self, indices: Sequence[int], epoch: int) -> Batch:
        """Tokens and targets, (len(indices), length) each."""
        begins = torch.tensor([index % self._pieces * self._length for index in indices])
        tokens = self._tokens[begins[:, None] + torch.arange(self._length + 1)].long()
        return tokens[:, :-1], tokens[:, 1:]


def read(folder: Path | None, length: int, samples: int, seed: int) -> Text:
    """Return the text below `folder`, or `samples` pieces of a made-up text; SystemExit if there is none."""
    if folder is None:
        return Text("synthetic text", made_up(seed), length, samples)
    tokens, files = _of_folder(folder)
    return Text(f"text of {files} file{'s' if files > 1 else ''} in {folder}", tokens, length)


def _of_folder(folder: Path) -> tuple[torch.Tensor, int]:
    paths = sorted(Path(place) / name for place, _, names in os.walk(folder) for name in names)
    parts: list[torch.Tensor] = []
    total = 0
    for path in paths:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise SystemExit(f"--text {folder}: cannot read {path}: {error}") from error
        total += len(data)
        if total > LARGEST_BYTES:
            raise SystemExit(
                f"--text {folder}: over {LARGEST_BYTES} bytes: name a folder with less, it is held in memory"
            )
        if data:
            parts += [ranks.to_tensor(data).to(torch.int16), torch.tensor([BETWEEN], dtype=torch.int16)]
    if not parts:
        what = "no file with text below it" if folder.is_dir() else "no folder of this host"
        raise SystemExit(f"--text {folder}: {what}: name a folder of files that is on every host")
    return torch.cat(parts), len(parts) // 2


def made_up(seed: int) -> torch.Tensor:
    """Return a row of made-up words, each followed by one of four: the same everywhere, and a model can learn it.

    Not by chance alone: what a model that knows the rules still cannot know is 2 bits a word.
    """
    random = torch.Generator().manual_seed(seed)
    sizes = torch.randint(2, 9, (_WORDS,), generator=random).tolist()
    letters = [torch.randint(len(_LETTERS), (size,), generator=random).tolist() for size in sizes]
    vocabulary = [bytes(_LETTERS[letter] for letter in word) + b" " for word in letters]
    followers = torch.randint(_WORDS, (_WORDS, _FOLLOWERS), generator=random).tolist()
    word, row = 0, []
    for choice in torch.randint(_FOLLOWERS, (_MADE_UP_WORDS,), generator=random).tolist():
        row.append(vocabulary[word])
        word = followers[word][choice]
    return ranks.to_tensor(b"".join(row)).to(torch.int16)
