"""The settings of a search, and that each reaches the search."""

from __future__ import annotations

import pytest
import torch
from tests.translation.decoding.toy import Toy, beam, greedy, sample, some_sources

from regard.errors import ConfigurationError
from regard.translation.decoding.limits import bounds
from regard.translation.decoding.search import Search, translate_batch

SHORT = Search(max_length=5)


def test_each_kind_of_search_is_the_function_of_its_name():
    model, sources = Toy(), some_sources(4)
    hypotheses = translate_batch(
        model, *sources, SHORT.changed(beam=3, nbest=2, length_penalty=0.5)
    )
    assert hypotheses == beam(model, *sources, size=3, nbest=2, length_penalty=0.5, max_length=5)
    assert translate_batch(model, *sources, SHORT.changed(beam=1)) == greedy(
        model, *sources, max_length=5
    )
    samples = [
        torch.Generator().manual_seed(4),
        torch.Generator().manual_seed(4),
    ]
    settings = SHORT.changed(sampling=True, nbest=7, temperature=2.0, top_k=5, top_p=0.9)
    assert translate_batch(model, *sources, settings, generator=samples[0]) == sample(
        model,
        *sources,
        max_length=5,
        draws=7,
        temperature=2.0,
        top_k=5,
        top_p=0.9,
        generator=samples[1],
    )


@pytest.mark.parametrize(
    "edit",
    [
        {"length_penalty": 3.0},
        {"coverage_penalty": 3.0},
        {"min_length": 4},
        {"no_repeat_ngram": 1},
        {"max_length": 1},
        {"length_ratio": 0.0, "length_margin": 1},
        {"patience": 0.5},
        {"nbest": 2},
    ],
)
def test_each_setting_changes_what_comes_out(edit: dict[str, float]):
    model, sources = Toy(ends=1.5), some_sources(40)
    settings = Search(beam=2, max_length=8).changed(**edit)
    assert translate_batch(model, *sources, settings) != translate_batch(
        model, *sources, Search(beam=2, max_length=8)
    )


def test_the_prefix_reaches_every_kind_of_search():
    model, sources = Toy(), some_sources(2)
    for settings in (SHORT, SHORT.changed(beam=1), SHORT.changed(sampling=True)):
        hypotheses = translate_batch(model, *sources, settings, prefix=[[4, 4], [5]])
        assert [one[0].tokens[:1] for one in hypotheses] == [[4], [5]]


def test_a_long_source_may_have_a_long_translation_up_to_the_greatest():
    search = Search(max_length=50, length_ratio=1.5, length_margin=2)
    assert bounds(search, torch.tensor([1, 4, 21, 1000])).tolist() == [4, 8, 34, 50]


def test_the_default_bound_grows_with_the_source_and_leaves_room():
    assert bounds(Search(), torch.tensor([2, 60, 130])).tolist() == [14, 130, 256]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beam": 0}, "beam 0: use a whole number, 1 to 1000"),
        ({"beam": "4"}, "beam '4': use a whole number"),
        ({"nbest": 6}, "nbest 6 with beam 5"),
        ({"beams": 4}, "beams: not a setting of a search, known are beam, "),
        ({"sampling": 1}, "sampling 1: use True or False"),
        ({"length_penalty": float("nan")}, "length_penalty nan"),
        ({"patience": -1}, "patience -1: use a number, 0 or more"),
        ({"sampling": True, "coverage_penalty": 0.2}, "coverage_penalty is for beam"),
        ({"beam": 1, "coverage_penalty": 0.2}, "use a beam of 2 or more"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object], message: str):
    with pytest.raises(ConfigurationError, match=message):
        Search(**settings)
