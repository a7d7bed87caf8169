"""Shares of a batch: every sentence once, and as much work for each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.translation.tiny import configuration, trainer

from regard.translation.training.data import read_data
from regard.translation.training.epochs import Epochs, share

costs = st.lists(st.integers(1, 300), max_size=60).map(
    lambda lengths: np.array(lengths, dtype=np.int64)
)


@given(costs, st.integers(1, 9))
def test_all_shares_together_are_the_batch(costs, size):
    shares = [share(costs, rank, size).tolist() for rank in range(size)]
    assert sorted(place for taken in shares for place in taken) == list(range(len(costs)))
    assert all(taken == sorted(taken) for taken in shares)


@given(costs, st.integers(2, 9))
def test_no_two_differ_by_more_than_the_longest_sentence(costs, size):
    loads = [int(costs[share(costs, rank, size)].sum()) for rank in range(size)]
    assert max(loads) - min(loads) <= costs.max(initial=0)


def epochs(trainer, data, rank: int, size: int) -> Epochs:
    return Epochs(data.train, trainer.run.tokenizers(), trainer.configuration, rank, size)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_a_step_has_the_same_sentences_whatever_the_number_of_processes(tmp_path, size):
    new_trainer = trainer(tmp_path, "training.batch_tokens=60")
    data = read_data(configuration(tmp_path).data, None, 1)
    alone, ranks = (
        epochs(new_trainer, data, 0, 1),
        [epochs(new_trainer, data, r, size) for r in range(size)],
    )
    idle = 0
    for epoch in range(2):
        counts = {each.batches(epoch) for each in (alone, *ranks)}
        assert len(counts) == 1
        for number in range(counts.pop()):
            batch, shares = alone.part(epoch, number), [r.part(epoch, number) for r in ranks]
            busy = [part for part in shares if not part.idle]
            idle += len(shares) - len(busy)
            rows = sorted(int(row) for part in busy for row in part.batch.rows)
            assert rows == sorted(int(row) for row in batch.batch.rows)
            tokens = sum(part.batch.target_tokens for part in busy)
            assert tokens == batch.batch.target_tokens == batch.target_tokens
            assert {part.target_tokens for part in shares} == {tokens}
    assert (idle > 0) == (size == 7)  # a batch here has 4 to 6 sentences
