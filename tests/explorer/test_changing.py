"""A change of a translation: what it computes, and how long that takes."""

from __future__ import annotations

import statistics
import sys
import time
from types import ModuleType

import pytest
import torch

import regard
from regard.explorer.contract import pack
from regard.explorer.translating import changed, explore, log_probability
from regard.translation.translator import Translator
from regard.watching.edits import Scale
from regard.watching.interception import held

TEXT = "La hermana de mi amigo vive en una casa grande."
OFF = {"decoder.1.cross": [Scale(0.0, heads=[0])]}
SECONDS = 0.2


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator.open("es-en")


@pytest.mark.parametrize("text", ["¿Dónde está el gato?", TEXT, "No sé qué hacer con mi vida."])
def test_a_change_needs_less_than_200_ms_of_the_processor(translator, text):
    _, before = explore(translator, text)

    def seconds() -> float:
        start = time.process_time()
        pack(changed(translator, before, OFF)[0], "run")
        return time.process_time() - start

    seconds()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the time of one processor
    try:
        assert statistics.median(seconds() for _ in range(5)) < SECONDS
    finally:
        torch.set_num_threads(threads)


def test_the_scene_says_how_likely_the_translation_before_is_now(translator):
    _, before = explore(translator, TEXT)
    for edits in (OFF, {"decoder.*.cross": [Scale(0.0)]}):
        scene, made = changed(translator, before, edits)
        again, alone = explore(translator, TEXT, edits=edits)
        assert made.text == alone.text
        now = scene.more["before"]["log_probability"]
        assert now == pytest.approx(log_probability(translator, before, edits), abs=1e-4)
        for one, two in zip(scene.attentions, again.attentions, strict=True):
            assert torch.equal(one.look.weights(), two.look.weights())
    assert made.text != before.text


def test_another_sentence_in_place_of_the_one_before(translator):
    _, before = explore(translator, TEXT)
    exchanged = TEXT.replace("casa", "torre")
    scene, made = changed(translator, before, {}, exchanged)
    assert made.text == translator.translate([exchanged])[0].text != before.text
    assert scene.more["before"]["log_probability"] < before.log_probability


def test_watches_in_a_held_interception_see_the_same_and_the_end_restores_all(monkeypatch):
    attend = torch.nn.functional.scaled_dot_product_attention
    other = ModuleType("other")
    other.attend = attend
    monkeypatch.setitem(sys.modules, "other", other)
    model = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = torch.randn(1, 5, 8)
    with held(model):
        assert other.attend is torch.nn.functional.scaled_dot_product_attention is not attend
        for _ in range(2):
            with regard.watch(model) as seen:
                model(x, x, x, need_weights=False)
            assert seen["self"].shape == (1, 2, 5, 5)
        assert other.attend is not attend
    assert other.attend is torch.nn.functional.scaled_dot_product_attention is attend
