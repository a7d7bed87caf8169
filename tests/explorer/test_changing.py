"""A change of a translation: what it computes, and how long that takes."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from types import ModuleType

import pytest
import torch

import regard
from regard.explorer.contract import pack
from regard.explorer.translating import explore, log_probability, retranslated
from regard.translation.translator import Translator
from regard.watching.edits import Scale
from regard.watching.interception import intercepted

TEXT = "La hermana de mi madre vive en una casa grande."
OFF = {"decoder.1.cross": [Scale(0.0, heads=[0])]}


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator.open("es-en-tiny")


@pytest.mark.parametrize("text", ["¿Dónde está el gato?", TEXT, "No sé qué hacer con mi vida."])
def test_a_change_needs_little_more_processor_time_than_the_sentence(translator, text):
    _, original = explore(translator, text)

    def seconds(work: Callable[[], object]) -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    def change() -> None:
        pack(retranslated(translator, original, OFF)[0], "run")

    change()
    turns = [(seconds(change), seconds(lambda: explore(translator, text))) for _ in range(3)]
    # A change is read as a new sentence is, beside the one before it: twice the work.
    assert statistics.median(ours / whole for ours, whole in turns) < 5


def test_the_scene_says_how_likely_the_translation_before_is_now(translator):
    _, original = explore(translator, TEXT)
    for edits in (OFF, {"decoder.*.cross": [Scale(0.0)]}):
        scene, translation = retranslated(translator, original, edits)
        repetition, alone = explore(translator, TEXT, edits=edits)
        assert translation.text == alone.text
        likelihood = scene.more["before"]["log_probability"]
        assert likelihood == pytest.approx(log_probability(translator, original, edits), abs=1e-4)
        for attention, two in zip(scene.attentions, repetition.attentions, strict=True):
            assert torch.equal(attention.look.weights(), two.look.weights())
    assert translation.text != original.text


def test_another_sentence_in_place_of_the_one_before(translator, monkeypatch):
    # The explorer shows the words that the model wrote, also those that no text has.
    monkeypatch.setattr(translator, "search", translator.search.changed(inventions=False))
    _, original = explore(translator, TEXT)
    exchanged = TEXT.replace("casa", "torre")
    scene, translation = retranslated(translator, original, {}, exchanged)
    assert translation.text == translator.translate([exchanged])[0].text != original.text
    assert scene.more["before"]["log_probability"] < original.log_probability


def test_watches_in_a_held_interception_see_the_same_and_the_end_restores_all(monkeypatch):
    attend = torch.nn.functional.scaled_dot_product_attention
    second_module = ModuleType("other")
    second_module.attend = attend
    monkeypatch.setitem(sys.modules, "other", second_module)
    model = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = torch.randn(1, 5, 8)
    with intercepted(model):
        assert (
            second_module.attend is torch.nn.functional.scaled_dot_product_attention is not attend
        )
        for _ in range(2):
            with regard.watch(model) as attentions:
                model(x, x, x, need_weights=False)
            assert attentions["self"].shape == (1, 2, 5, 5)
        assert second_module.attend is not attend
    assert second_module.attend is torch.nn.functional.scaled_dot_product_attention is attend
