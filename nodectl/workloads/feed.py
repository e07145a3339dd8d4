"""How samples come to the device: micro-batch by micro-batch, by this process itself or by others beside it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset

if TYPE_CHECKING:
    from nodectl.workloads.settings import Settings
    from nodectl.workloads.workload import Batch, Data


class Wanted(NamedTuple):
    """A micro-batch: its samples, and the epoch for which they are wanted."""

    epoch: int
    indices: Sequence[int]


class _Batches(Dataset):  # type: ignore[misc]  # torch is not there where mypy runs
    def __init__(self, data: Data) -> None:
        self.data = data

    def __getitem__(self, wanted: Wanted) -> Batch:
        return self.data.batch(wanted.indices, wanted.epoch)


def _as_it_is(batch: Batch) -> Batch:
    return batch


class Feed:
    """Brings what `plan` names, in its order; `waited_s` grows by the time in which nothing had come yet."""

    def __init__(self, data: Data, settings: Settings, device: torch.device) -> None:
        self._data, self._settings, self._device = data, settings, device
        self.waited_s = 0.0

    def steps(self, plan: Iterable[Sequence[Wanted]]) -> Iterator[tuple[int, list[Batch]]]:
        """For each step of the plan how many samples it has here, and its micro-batches on the device.

        With loader processes the plan is read ahead of what is trained.
        """
        sizes: list[list[int]] = []  # of the steps that were asked for and have not come

        def wanted() -> Iterator[Wanted]:
            for parts in plan:
                sizes.append([len(part.indices) for part in parts])
                yield from parts

        batches = iter(self._loaded(wanted()))
        while True:
            began_s = time.perf_counter()
            first = next(batches, None)
            if first is None:
                return
            here = sizes.pop(0)
            parts = [first, *(next(batches) for _ in here[1:])]
            placed = [self._place(part) for part in parts]
            self.waited_s += time.perf_counter() - began_s
            yield sum(here), placed

    def _loaded(self, wanted: Iterator[Wanted]) -> Iterable[Batch]:
        workers = self._settings.workers
        if not workers:
            return (self._data.batch(request.indices, request.epoch) for request in wanted)
        loader: Any = DataLoader(
            _Batches(self._data),
            batch_size=None,
            sampler=wanted,
            num_workers=workers,
            prefetch_factor=self._settings.prefetch,
            pin_memory=self._pins,
            collate_fn=_as_it_is,
        )
        return loader  # type: ignore[no-any-return]

    @property
    def _pins(self) -> bool:
        return self._settings.pin_memory and self._device.type == "cuda"

    def _place(self, batch: Batch) -> Batch:
        if self._device.type == "cpu":
            return batch
        if self._pins and not batch[0].is_pinned():
            batch = tuple(tensor.pin_memory() for tensor in batch)
        return tuple(tensor.to(self._device, non_blocking=self._pins) for tensor in batch)
