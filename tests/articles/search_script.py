"""Run by test_retrieval_search.py under a Python that has torch."""

import argparse
import importlib
import sys

import torch

sys.path.insert(0, sys.argv[1])
front = importlib.import_module("payload.articles.retrieval.host")

SEED, ROWS, DIM, K = 5, 9000, 48, 6
options = argparse.Namespace(seed=SEED, dim=DIM, k=K)


def whole() -> None:
    """Any part is the same rows, wherever it is made."""
    table = front.make_table(torch, SEED, range(ROWS), DIM, torch.device("cpu"))
    part = front.make_table(torch, SEED, range(4000, 8500), DIM, torch.device("cpu"))
    assert torch.equal(part, table[4000:8500])
    assert not torch.equal(table[:4096], table[4096:8192])
    asked = front.queries(torch, SEED, 0, 3, DIM)
    scores, places = front.search(torch, table, asked, K)
    scores = scores.to(torch.int64)
    exact = (asked.to(torch.int64) @ table.to(torch.int64).T).topk(K, dim=1)
    assert torch.equal(scores, exact.values)
    best, own = front.brute(torch, options, range(ROWS), asked, places)
    assert front.agrees(torch, best, own, places, scores)
    wrong_answers(asked, scores, places)


def wrong_answers(asked: torch.Tensor, scores: torch.Tensor, places: torch.Tensor) -> None:
    """One bit of a score, another row, a row twice, a row of another shard: each is seen."""
    another = places.clone()
    another[1, 2] = (another[1, 2] + 1) % ROWS
    twice = places.clone()
    twice[0, 1] = twice[0, 0]
    outside = places.clone()
    outside[2, 0] = ROWS + 1
    flipped = scores.clone()
    flipped[0, 0] += 1
    for told_places, told_scores in ((another, scores), (twice, scores), (outside, scores), (places, flipped)):
        best, own = front.brute(torch, options, range(ROWS), asked, told_places)
        assert not front.agrees(torch, best, own, told_places, told_scores)


def fewer_rows_than_k() -> None:
    """A shard of three rows has three best rows, and the rest of its answer is empty."""
    own = argparse.Namespace(seed=SEED, dim=DIM, k=K, rows=3, rank_base=0, world_size=1, device="cpu", batches=[2])
    asked = front.queries(torch, SEED, 0, 2, DIM)
    _, [(places, scores)] = front.Shard(own, torch).ask(asked)
    assert (places[:, 3:] == front.NONE).all() and (places[:, :3] != front.NONE).all()
    best, named = front.brute(torch, own, range(3), asked, places)
    assert front.agrees(torch, best, named, places, scores)


def memory() -> None:
    """Half of what is free, and no more."""
    vars(front)["available_bytes"] = lambda: 8 * DIM * 100
    front.check_memory(torch, 90, DIM, 1, torch.device("cpu"))
    try:
        front.check_memory(torch, 101, DIM, 1, torch.device("cpu"))
    except MemoryError:
        return
    raise AssertionError("a shard of more than half of the memory was let through")


whole()
fewer_rows_than_k()
memory()
sys.stdout.write("all held\n")
