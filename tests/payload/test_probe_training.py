"""The training measurement's memory: refused before anything is allocated."""

from argparse import Namespace

import pytest

from nodectl.payload.articles.training import check_memory

GIB = 2**30


@pytest.mark.parametrize(
    ("layers", "d_model", "free_bytes", "refused"),
    [
        (2, 288, 4 * GIB, False),
        # gradients of 3 GiB, with the weights and the optimizer's two 12
        (12, 2368, 25 * GIB, False),
        (12, 2368, 23 * GIB, True),
        (12, 10**6, None, False),
    ],
)
def test_a_rank_gets_half_of_what_is_free(layers: int, d_model: int, free_bytes: int | None, refused: bool) -> None:
    options = Namespace(layers=layers, d_model=d_model)
    if not refused:
        check_memory(options, free_bytes)
        return
    with pytest.raises(MemoryError, match=r"takes 12.0 GiB, and 23.0 GiB are free.*--gradient"):
        check_memory(options, free_bytes)
