"""Runs a family for a time: by atheris, guided by coverage, or by mutation alone where atheris cannot be had."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nodectl.facts.parsers.catalogue import parser_of
from tests.fuzz.families import FAMILIES, check, seeds
from tests.fuzz.mutate import LONGEST, mutated

_OWN_CHANGES = 0.7  # the rest is libFuzzer's


@dataclass(slots=True)
class Tally:
    """What a run did; `crashes` are the promises that were broken, with the name of the kept input."""

    family: str
    engine: str
    inputs: int = 0
    slowest_s: float = 0.0
    crashes: list[str] = field(default_factory=list)


class Feeder:
    """Gives texts to a family's parsers until the time is over or one of them breaks its promise."""

    def __init__(self, family: str, engine: str, seconds: float, folder: Path) -> None:
        self.tally = Tally(family, engine)
        self._until = time.monotonic() + seconds
        self._folder = folder

    @property
    def is_over(self) -> bool:
        return bool(self.tally.crashes) or time.monotonic() >= self._until

    def feed(self, tool: str, text: str) -> None:
        """One input; a broken promise is kept as a file that `nodectl parse` can be given."""
        self.tally.inputs += 1
        try:
            self.tally.slowest_s = max(self.tally.slowest_s, check(tool, text))
        except Exception as error:
            self._folder.mkdir(parents=True, exist_ok=True)
            data = text.encode("utf-8", errors="replace")
            name = f"{tool}-{hashlib.sha256(data).hexdigest()[:12]}.txt"
            (self._folder / name).write_bytes(data)
            self.tally.crashes.append(f"{tool}: {type(error).__name__}: {str(error)[:300]} ({self._folder / name})")


def has_atheris() -> bool:
    """Its wheels are for Linux on x86-64 and the Pythons of the day."""
    return importlib.util.find_spec("atheris") is not None


def by_mutation(feeder: Feeder, seed: int) -> None:
    """Without coverage: random changes, one after another."""
    tools = FAMILIES[feeder.tally.family]
    rng = random.Random(seed)
    while not feeder.is_over:
        tool = rng.choice(tools)
        feeder.feed(tool, mutated(rng, seeds(tool)))


def by_atheris(feeder: Feeder, seed: int, finish: Callable[[], None]) -> None:
    """Ends by `finish`, which must end the process: libFuzzer's loop has no other way out.

    An input is one byte that names the tool, and the text.
    """
    atheris: Any = importlib.import_module("atheris")
    tools = FAMILIES[feeder.tally.family]
    with atheris.instrument_imports(include=["nodectl.facts.parsers"]):
        for tool in tools:
            parser_of(tool)

    corpus = TemporaryDirectory(prefix="nodectl-fuzz-")

    def test_one_input(data: bytes) -> None:
        if feeder.is_over:
            corpus.cleanup()
            finish()
        if data:
            feeder.feed(tools[data[0] % len(tools)], data[1:].decode("utf-8", errors="replace"))

    def change(data: bytes, max_size: int, change_seed: int) -> bytes:
        rng = random.Random(change_seed)
        if not data or rng.random() > _OWN_CHANGES:
            return bytes(atheris.Mutate(data, max_size))
        tool = tools[data[0] % len(tools)]
        text = mutated(rng, (data[1:].decode("utf-8", errors="replace"), *seeds(tool)))
        return (data[:1] + text.encode("utf-8", errors="replace"))[:max_size]

    for index, tool in enumerate(tools):
        for number, text in enumerate(seeds(tool)):
            (Path(corpus.name) / f"{tool}-{number}").write_bytes(bytes([index]) + text.encode())
    options = [f"-seed={seed}", f"-max_len={LONGEST}", "-verbosity=0", "-print_final_stats=0", "-rss_limit_mb=2048"]
    atheris.Setup(["nodectl-fuzz", *options, corpus.name], test_one_input, custom_mutator=change)
    atheris.Fuzz()
