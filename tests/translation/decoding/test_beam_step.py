"""One step of a beam with the best words of compiled loops and of torch: the same, in the same order."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.translation.decoding.beam import Live, advance
from regard.translation.decoding.limits import Limits


def some_live(sentences: int, beginnings: int, steps: int, generator: torch.Generator) -> Live:
    def ids(*shape: int) -> torch.Tensor:
        return torch.randint(4, 9, (sentences, beginnings, *shape), generator=generator)

    # Quarters: many are equal, and of equals the first comes first.
    totals = -torch.randint(0, 5, (sentences, beginnings), generator=generator) / 4.0
    totals = totals.sort(descending=True).values
    totals[0, 1:] = -torch.inf
    history = -torch.rand(sentences, beginnings, steps, generator=generator)
    return Live(torch.arange(sentences), ids(), totals, ids(steps), history)


@given(
    st.integers(0, 10_000),
    st.sampled_from([5, 6, 70]),
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(0, 3),
)
def test_both_ways_grow_alike(seed: int, vocabulary: int, beginnings: int, size: int, steps: int):
    generator = torch.Generator().manual_seed(seed)
    live = some_live(3, beginnings, steps, generator)
    rows = int(live.filled.sum())
    logits = torch.randint(-4, 5, (rows, vocabulary), generator=generator) * 1.0
    limits = Limits(torch.tensor([0, 2, 9]), shortest=1)
    following, rows, ended = advance(live, logits, limits, size, compiled=True)
    next_live, parents, expected = advance(live, logits, limits, size, compiled=False)
    assert torch.equal(ended.sentences, expected.sentences)
    assert torch.equal(ended.beginnings, expected.beginnings)
    torch.testing.assert_close(ended.log_p, expected.log_p)
    going = next_live.totals.isfinite()
    assert torch.equal(following.totals.isfinite(), going)
    torch.testing.assert_close(
        following.totals[going], next_live.totals[going], atol=5e-6, rtol=5e-6
    )
    assert torch.equal(following.words[going], next_live.words[going])
    assert torch.equal(following.tokens[going], next_live.tokens[going])
    torch.testing.assert_close(following.history[going], next_live.history[going])
    assert torch.equal(rows[going], parents[going])
