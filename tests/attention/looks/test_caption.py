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


def test_merged_groups_keep_the_caption_and_number_their_heads() -> None:
    look = regard.look(torch.zeros(2, 3, 4, 5, 8), torch.zeros(2, 3, 1, 6, 8))
    places = torch.arange(1, 6)
    look.caption = Caption("model: self", (range(2), range(3), range(4)), True, places)
    merged = look.merge_groups().caption
    assert (merged.title, merged.places) == ("model: self", places)
    assert merged.of((1, 6)) == "entry 1, head 6"
    assert look[1, 1:].merge_groups()[2].caption.of(()) == "entry 1, head 6"
    assert look.merge_groups().mean_heads().caption.of((1,)) == "entry 1"


def test_heads_of_groups_without_some_members_have_no_numbers() -> None:
    look = regard.look(torch.zeros(3, 4, 5, 8), torch.zeros(3, 1, 6, 8))
    look.caption = Caption("model: self", (range(3), range(4)), headed=True)
    merged = look[:, :2].merge_groups().caption
    assert (merged.title, merged.of((3,))) == ("model: self", "entry 3")
    plain = regard.look(torch.zeros(3, 4, 5, 8), torch.zeros(3, 1, 6, 8))
    assert plain.merge_groups().caption.of((6,)) == "6"
