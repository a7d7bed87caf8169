"""Every kind of positions is trained, saved, gone on with, opened, searched and looked into."""

from __future__ import annotations

import pytest
import torch
from tests.translation.decoding.toy import greedy
from tests.translation.tiny import PAIRS, resumed, stop_at, trainer

from regard.errors import ConfigurationError
from regard.translation import weights
from regard.translation.text.batches import sources
from regard.translation.translator import Translator

KINDS = ["rotary", "alibi", "relative"]
kinds = pytest.mark.parametrize("kind", KINDS)
MORE = ["model.normalisation=rms", "model.gated=true", "model.activation=gelu_tanh"]
TEXTS = [source for source, _ in PAIRS[:3]]


@kinds
def test_a_training_goes_on_and_its_model_is_used(tmp_path, kind):
    changes = [f"model.positions={kind}", *(MORE if kind == "rotary" else [])]
    straight = trainer(tmp_path, *changes, run="straight")
    assert straight.train() == "finished"
    stop_at(trainer(tmp_path, *changes), 3)
    second_trainer = resumed(tmp_path, *changes)
    assert second_trainer.train() == "finished"
    for a, b in zip(second_trainer.model.parameters(), straight.model.parameters(), strict=True):
        assert torch.equal(a, b)
    second_trainer.run.publish(weights.unique(second_trainer.model), "card")
    translator = Translator.open(second_trainer.run.folder)
    assert translator.model.settings.positions == kind
    alone = [translator.translate([text], beam=3)[0] for text in TEXTS]
    together = translator.translate(TEXTS, beam=3)
    assert [one.text for one in together] == [one.text for one in alone]
    twice = Translator.open([second_trainer.run.folder] * 2).translate(TEXTS, beam=3)
    assert [one.text for one in twice] == [one.text for one in alone]
    looked = translator.look(TEXTS[0], PAIRS[0][1])
    assert looked.looks["encoder.0.self"].weights().sum(-1).allclose(torch.ones(()))


@kinds
@torch.no_grad()
def test_a_search_writes_what_teacher_forcing_says(tmp_path, kind):
    model = trainer(tmp_path, f"model.positions={kind}").model.eval()
    source, lengths = sources([[5, 6, 7, 8], [9, 4]])
    hypotheses = greedy(model, source, lengths, max_length=6)
    for row, (hypothesis,) in enumerate(hypotheses):
        read = torch.tensor([[2, *hypothesis.tokens]])
        logits = model(source[row : row + 1], lengths[row : row + 1], read)[0]
        logits[:, [0, 2]] = -torch.inf
        assert logits.argmax(-1).tolist()[: len(hypothesis.tokens)] == hypothesis.tokens


@kinds
def test_half_precision_trains(tmp_path, kind):
    new_trainer = trainer(
        tmp_path, f"model.positions={kind}", "training.precision=bfloat16", "training.max_steps=2"
    )
    assert new_trainer.train() == "finished"
    assert all(p.dtype == torch.float32 for p in new_trainer.model.parameters())


def test_every_bias_is_learnt(tmp_path):
    new_trainer = trainer(tmp_path, "model.positions=relative", "training.max_steps=1")
    copies_before = {name: p.detach().clone() for name, p in new_trainer.model.named_parameters()}
    new_trainer.train()
    for name, parameter in new_trainer.model.named_parameters():
        assert not torch.equal(parameter, copies_before[name]), name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["model.positions=rotary", "model.heads=16"], "must be even for rotary positions"),
        (["model.positions=spiral"], "model.positions"),
        (["model.tied=embeddings", "tokenizer.joint=false"], '"embeddings" needs tokenizer.joint'),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, changes, message):
    with pytest.raises(ConfigurationError, match=message):
        trainer(tmp_path, *changes)
