"""Post-norm Transformers exported for Hugging Face: MarianMTModel computes the same, its tokenizer cuts the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.interop.models import LINES, pairs, translator
from tests.journeys.commands import check_refused
from tests.journeys.commands import run_apart as run
from tests.translation.tiny import PAIRS, trainer

from regard.errors import ModelError
from regard.interop.huggingface import marian_export as writing
from regard.interop.huggingface.marian import halves, reordered
from regard.translation.decoding.search import Search
from regard.translation.text.tokenizer import EOS, PAD
from regard.translation.translator import Translator

transformers = pytest.importorskip("transformers")

SHAPES = {
    "relu": {},
    "silu": {"activation": "silu", "heads": 1},
    "biased": {"activation": "gelu", "attention_bias": True, "output_bias": True},
    "unscaled": {"scale_embedding": False, "decoder_layers": 1},
    "target": {"tied": "target", "joint": False},
    "untied": {"tied": "none"},
    "embeddings": {"tied": "embeddings", "activation": "gelu_tanh"},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """The run folder of a small post-norm model that has learnt a little."""
    folder = tmp_path_factory.mktemp("post")
    changes = ("model.norm=post", "training.max_steps=60", "training.validate_every=60")
    new_trainer = trainer(folder, *changes)
    new_trainer.train()
    new_trainer.run.publish(new_trainer.best_weights()[0], "card")
    return new_trainer.run.folder


@torch.no_grad()
@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
def test_every_shape_has_the_same_logits(tmp_path, changes):
    new_translator = translator(tmp_path, norm="post", **changes)
    writing.export(new_translator, tmp_path / "exported")
    theirs = transformers.MarianMTModel.from_pretrained(tmp_path / "exported")
    source, lengths, target = pairs(new_translator)
    expected = new_translator.model(source, lengths, target)
    actual = theirs(
        input_ids=source, attention_mask=(source != PAD).long(), decoder_input_ids=target
    ).logits
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("beams", [1, 4])
def test_the_command_exports_a_model_that_translates_the_same(trained, tmp_path, beams):
    folder = tmp_path / "exported"
    result = run("export", "--model", trained, "--to", "huggingface", folder)
    assert (result.code, result.out) == (0, f"wrote {folder}\n")
    ours = Translator.open(trained)
    theirs = transformers.MarianMTModel.from_pretrained(folder)
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    texts = [source for source, _ in PAIRS[:12]]
    actual_tokenizer = tokenizer(texts, return_tensors="pt", padding=True)
    # A model that has learnt so little holds an end at once for the likeliest translation: ask for two words.
    generated = theirs.generate(
        **actual_tokenizer, num_beams=beams, length_penalty=0.0, min_new_tokens=2, max_length=30
    )
    search = Search(beam=beams, length_penalty=0.0, min_length=2, max_length=28, length_ratio=28)
    expected = ours.translate(texts, search=search.as_written())
    assert tokenizer.batch_decode(generated, skip_special_tokens=True) == [
        one.text for one in expected
    ]
    assert len({one.text for one in expected}) > 1


@pytest.mark.parametrize("joint", [True, False])
def test_their_tokenizer_cuts_and_joins_as_ours(tmp_path, joint):
    new_translator = translator(tmp_path, norm="post", joint=joint, tied="target")
    writing.export(new_translator, tmp_path / "exported")
    theirs = transformers.MarianTokenizer.from_pretrained(tmp_path / "exported")
    for text in [*LINES, "Ünknown wörds, 日本!"]:
        ids = new_translator.tokenizers.source.encode(text)
        assert theirs(text).input_ids == [*ids, EOS]
        written_ids = new_translator.tokenizers.target.encode(text.upper())
        assert theirs(text_target=text.upper()).input_ids == [*written_ids, EOS]
        assert theirs.decode(written_ids, skip_special_tokens=True) == text.upper()


def test_reordering_twice_is_what_it_was(tmp_path):
    state = translator(tmp_path, attention_bias=True, tied="none").model.state_dict()
    order = halves(16)
    far = reordered(state, order)
    back = reordered(far, order.argsort())
    assert all(torch.equal(back[name], tensor) for name, tensor in state.items())
    moved = {name for name, tensor in state.items() if not torch.equal(far[name], tensor)}
    unmoved = {
        name.rpartition(".")[0].rpartition(".")[2] + name[-5:] for name in state.keys() - moved
    }
    assert unmoved == {
        "query_projection.bias",
        "key_projection.bias",
        "value_projection.bias",
        "inner.bias",
    }


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"norm": "pre"}, 'model.norm is "pre": Marian normalises after each sublayer'),
        ({"score": "dot"}, 'model.score is "dot" and model.normaliser "softmax": Marian has'),
        (
            {"positions": "learned"},
            'model.positions is "learned": Marian has sines and cosines only',
        ),
    ],
)
def test_what_marian_has_not_is_refused_with_the_reason(tmp_path, changes, reason):
    new_translator = translator(tmp_path, **{"norm": "post", **changes})
    with pytest.raises(ModelError, match=reason):
        writing.export(new_translator, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_the_command_refuses_in_one_line(tmp_path):
    result = run("export", "--to", "huggingface", tmp_path / "x")
    check_refused(result, 'model.norm is "pre"', "export to ctranslate2")
    assert list(tmp_path.iterdir()) == []


def test_a_recurrent_model_is_refused(tmp_path):
    new_trainer = trainer(tmp_path, model="recurrent")
    recurrent = Translator(new_trainer.run, new_trainer.model, new_trainer.run.tokenizers())
    with pytest.raises(ModelError, match="a RecurrentModel cannot be exported: Marian"):
        writing.export(recurrent, tmp_path / "x")


def test_the_folder_says_how_to_search(tmp_path):
    writing.export(translator(tmp_path, norm="post"), tmp_path / "x")
    document = json.loads((tmp_path / "x" / "generation_config.json").read_text())
    assert document["bad_words_ids"] == [[0], [2]]
    assert document["num_beams"] == 2
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "source.spm",
        "target.spm",
        "tokenizer_config.json",
        "vocab.json",
    ]
