"""What a look is called stays with it when entries and heads are chosen or averaged."""

from __future__ import annotations

import torch

import regard
from regard.attention.looks.caption import Caption


def a_look() -> regard.Look:
    look = regard.look(torch.zeros(2, 4, 3, 8), torch.zeros(2, 4, 5, 8))
    look.caption = Caption("model: self", (range(2), (8, 9, 10, 11)), headed=True)
    return look


def test_chosen_entries_and_heads_keep_their_numbers() -> None:
    look = a_look()
    assert look[1].caption.of((2,)) == "entry 1, head 10"
    assert look[:, 3].caption.of((0,)) == "entry 0, head 11"
    assert look[..., 1:3][1, 1].caption.of(()) == "entry 1, head 10"


def test_a_mean_says_what_it_is_of() -> None:
    heads = a_look().mean_heads().caption
    assert (heads.title, heads.of((1,))) == ("model: self, mean of heads", "entry 1")
    entries = a_look()[:, 2].mean_heads().caption
    assert (entries.title, entries.of(())) == ("model: self, mean of entries", "head 10")


def test_without_a_caption_the_indices_name_a_matrix() -> None:
    look = regard.look(torch.zeros(2, 4, 3, 8), torch.zeros(2, 4, 5, 8))
    assert look.caption.of((1, 3)) == "[1, 3]"
    assert look[1].caption.of((3,)) == "[1, 3]"
    assert look.mean_heads().caption.of((1,)) == "1"
