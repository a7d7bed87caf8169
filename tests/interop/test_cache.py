"""Where an exported model is kept says all that it was made of."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import torch

from regard.errors import ModelError
from regard.interop import cache
from regard.translation.decoding.search import Search
from regard.translation.models.transformer import Transformer, TransformerSettings

SETTINGS = TransformerSettings(width=8, heads=2, feed_forward=8, encoder_layers=1, decoder_layers=1)


def translator(model: Transformer, search: Search) -> Any:
    return SimpleNamespace(model=model, search=search, tokenizers=SimpleNamespace(files=dict))


def test_weights_shape_search_and_precision_have_places_of_their_own():
    torch.manual_seed(0)
    model, search = Transformer(SETTINGS, 9, 9), Search()
    first = cache._digest(translator(model, search), "int8", "4.0")
    assert cache._digest(translator(model, search), "int8", "4.0") == first
    others = [cache._digest(translator(model, search), "float32", "4.0")]
    others.append(cache._digest(translator(model, Search(beam=7)), "int8", "4.0"))
    for change in ({"heads": 4}, {"activation": "silu"}, {"scale_embedding": False}):
        twin = Transformer(SETTINGS.model_copy(update=change), 9, 9)
        twin.load_state_dict(model.state_dict())
        others.append(cache._digest(translator(twin, search), "int8", "4.0"))
    with torch.no_grad():
        model.output.weight[0, 0] += 1
    others.append(cache._digest(translator(model, search), "int8", "4.0"))
    assert len({first, *others}) == 1 + len(others)


def test_what_is_exported_is_kept_for_as_long_as_it_is_used(monkeypatch, tmp_path):
    def export(given: Any, place: Path, quantization: str) -> None:
        place.mkdir()

    def opened(place: Path, tokenizers: Any) -> Path:
        if not place.exists():
            raise ModelError("not there")
        return place

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache.exporter, "library", lambda: SimpleNamespace(__version__="4.0"))
    monkeypatch.setattr(cache.exporter, "export", export)
    monkeypatch.setattr(cache, "Engine", opened)
    models = [translator(Transformer(SETTINGS, 9, 9), Search(beam=n)) for n in (1, 2, 3)]
    first, second = (cache.cached_engine(given, "int8") for given in models[:2])
    for place in (first, second):
        os.utime(place, (0, 0))
    assert cache.cached_engine(models[0], "int8") == first
    third = cache.cached_engine(models[2], "int8")
    assert set(cache._folder().iterdir()) == {first, third}


def test_without_a_home_the_model_is_exported_anew(monkeypatch):
    def nowhere() -> Any:
        raise RuntimeError("Could not determine home directory.")

    made: list[Any] = []
    monkeypatch.setattr(cache.exporter, "library", lambda: SimpleNamespace(__version__="4.0"))
    monkeypatch.setattr(cache, "_folder", nowhere)
    monkeypatch.setattr(cache.Engine, "of", lambda given, quantization: made.append(given))
    given = translator(Transformer(SETTINGS, 9, 9), Search())
    cache.cached_engine(given, "int8")
    assert made == [given]
