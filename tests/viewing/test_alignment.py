"""Alignments: how subwords become words, how colours get their scale."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.attention.looks import StoredLook
from regard.attention.shapes import ShapeError
from regard.viewing.alignment import Alignment, by_head, mean

piece = st.sampled_from(["▁", "▁a", "b", "▁c", "d", "<0xE2>", "<0x82>", "<0xAC>", "</s>", "▁的"])


def test_a_tensor_of_any_precision_with_a_gradient_is_taken() -> None:
    weights = torch.full((2, 4), 0.25, dtype=torch.bfloat16, requires_grad=True)
    alignment = Alignment(weights, ["a", "b"], ["w", "x", "y", "z"])
    assert alignment.weights.dtype == np.float64
    assert alignment.weights.tolist() == [[0.25] * 4] * 2


def test_a_weight_that_is_no_number_is_named() -> None:
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match=rf"weight \[0, 1\] is {value}"):
            Alignment([[1.0, value]], ["a"], ["x", "y"])


def test_words_sum_over_keys_and_average_over_queries() -> None:
    weights = [[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0.0, 0.0, 0.5, 0.5]]
    merged = Alignment(weights, ["▁gr", "and", "</s>"], ["▁ab", "uela", "?", "</s>"]).words()
    assert merged.queries == ["grand", "</s>"]
    assert merged.keys == ["abuela?", "</s>"]
    np.testing.assert_allclose(merged.weights, [[0.75, 0.25], [0.5, 0.5]])


WORDS = [
    (["▁caf", "<0xC3>", "<0xA9>", "▁x"], ["café", "x"]),
    (["▁", "¿", "Qué", "?"], ["¿Qué?"]),
    (["▁a", "<0xE2>", "</s>"], ["a\ufffd", "</s>"]),
    (["<s>", "no", "▁start", "</s>"], ["<s>", "no", "start", "</s>"]),
    (["plain", "words"], ["plain", "words"]),
    (["▁", "▁a"], ["␣", "a"]),
]


def test_pieces_become_words() -> None:
    for pieces, words in WORDS:
        assert Alignment(np.ones((1, len(pieces))), ["q"], pieces).words().keys == words


@given(st.lists(piece, min_size=1, max_size=9), st.lists(piece, min_size=1, max_size=9))
def test_merging_keeps_rows_at_one_and_is_done_once(queries: list[str], keys: list[str]) -> None:
    weights = np.random.default_rng(len(keys)).dirichlet(np.ones(len(keys)), len(queries))
    merged = Alignment(weights, queries, keys).words()
    np.testing.assert_allclose(merged.weights.sum(1), 1.0)
    assert (merged.words().queries, merged.words().keys) == (merged.queries, merged.keys)


def test_the_scale_ends_at_a_round_number() -> None:
    ends = {1.0: 1.0, 0.97: 1.0, 0.5: 0.5, 0.21: 0.5, 0.07: 0.1, 0.0: 1.0, 7.3: 10.0}
    for largest, end in ends.items():
        assert Alignment([[0.0, largest]], ["a"], ["x", "y"]).top == end


@pytest.mark.parametrize("shape", [(3, 2, 4), (1, 3, 2, 4)])
def test_a_look_gives_one_alignment_a_head(shape: tuple[int, ...]) -> None:
    weights = torch.arange(24.0).reshape(shape)
    heads = by_head(StoredLook(weights), ["a", "b"], list("wxyz"), title="decoder.0.cross")
    assert [head.title for head in heads] == [f"decoder.0.cross, head {n}" for n in range(3)]
    assert heads[2].weights[0, 0] == 16.0
    assert mean(heads).weights[0, 0] == 8.0


def test_a_word_is_masked_where_all_its_pieces_are() -> None:
    readable = np.array([[True, False, False], [True, True, False]])
    alignment = Alignment(
        [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], ["▁a", "b"], ["▁x", "y", "▁z"], readable=readable
    )
    words = alignment.words()
    assert words.readable is not None
    assert words.readable.tolist() == [[True, False]]
    assert words.has_masked
    assert not Alignment([[1.0]], ["a"], ["x"]).has_masked


def test_the_mask_of_a_look_travels_with_its_heads() -> None:
    x = torch.zeros(1, 2, 3, 4)
    look = regard.look(x, x, mask=regard.masks.causal(align="start"))
    heads = by_head(look, list("abc"), list("abc"))
    for head in (*heads, mean(heads)):
        assert head.readable is not None
        assert head.readable.tolist() == np.tril(np.ones((3, 3), dtype=bool)).tolist()


def test_a_mean_masks_what_every_head_masks() -> None:
    head, two = (
        Alignment([[1.0, 0.0, 0.0]], ["a"], list("xyz"), readable=np.array([readable]))
        for readable in ([True, False, False], [True, True, False])
    )
    joint_readable = mean([head, two]).readable
    assert joint_readable is not None
    assert joint_readable.tolist() == [[True, True, False]]


@pytest.mark.parametrize(
    ("queries", "keys"), [("ab", "xy"), ("abc", "xyz"), ("a", "xyz"), ("", "")]
)
def test_words_are_as_many_as_rows_and_columns(queries: str, keys: str) -> None:
    with pytest.raises(ShapeError, match="pass a word for each row and each column"):
        Alignment(np.zeros((2, 3)), list(queries), list(keys))
