"""Batches: every row once, within budget, little padding, one seed."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.translation.text.batches import collate, plan, sources, targets
from regard.translation.text.subwords import Ragged

lengths = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=60)


def planned(pairs, budget, seed=0, pool=3):
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    random = np.random.default_rng(seed)
    return plan(table[:, 0], table[:, 1], batch_tokens=budget, random=random, pool=pool)


@given(lengths, st.integers(1, 200))
def test_every_row_comes_once_and_within_the_budget(pairs, budget):
    batches = planned(pairs, budget)
    assert sorted(row for batch in batches for row in batch) == list(range(len(pairs)))
    for batch in batches:
        longest = max(max(pairs[row]) for row in batch) + 1
        assert len(batch) == 1 or len(batch) * longest <= budget


def test_one_seed_decides_the_order():
    pairs = [(n % 13, n % 7) for n in range(500)]
    first_plan, repeated_plan, other_plan = (
        planned(pairs, 60, 1),
        planned(pairs, 60, 1),
        planned(pairs, 60, 2),
    )
    assert [b.tolist() for b in first_plan] == [b.tolist() for b in repeated_plan]
    assert [b.tolist() for b in first_plan] != [b.tolist() for b in other_plan]


def test_batches_are_shuffled_and_mostly_words():
    random = np.random.default_rng(3)
    source = random.lognormal(2.0, 0.5, 20_000).astype(np.int64) + 1
    target = np.maximum(1, source + random.integers(-1, 2, 20_000))
    batches = plan(source, target, batch_tokens=1024, random=random)
    longer = np.maximum(source, target) + 1
    held_total = sum(len(rows) * int(longer[rows].max()) for rows in batches)
    assert int(longer.sum()) / held_total >= 0.9
    assert held_total / len(batches) > 0.8 * 1024  # and they fill their budget
    means = [longer[rows].mean() for rows in batches]
    assert means != sorted(means)


def test_a_batch_is_padded_begun_and_ended():
    source, target = Ragged.of([[5, 6, 7], [8], [9]]), Ragged.of([[4], [5, 6], [7]])
    batch = collate(source, target, np.array([1, 0]))
    assert batch.source.tolist() == [[8, 3, 0, 0], [5, 6, 7, 3]]
    assert batch.source_lengths.tolist() == [2, 4]
    assert batch.target_in.tolist() == [[2, 5, 6], [2, 4, 0]]
    assert batch.target_out.tolist() == [[5, 6, 3], [4, 3, 0]]
    assert batch.target_lengths.tolist() == [3, 2]
    assert batch.target_tokens == 5
    assert batch.rows.tolist() == [1, 0]
    assert batch.source.dtype == batch.source_lengths.dtype == torch.int64
    moved = batch.to(torch.device("cpu"))
    assert moved.target_out.equal(batch.target_out)


def test_sentences_and_translations_as_tensors():
    padded, counts = sources([[5, 6], []])
    assert (padded.tolist(), counts.tolist()) == ([[5, 6, 3], [3, 0, 0]], [3, 1])
    padded, counts = targets([[], [5]])
    assert (padded.tolist(), counts.tolist()) == ([[2, 0], [2, 5]], [1, 2])
    assert sources([])[0].shape[0] == 0
