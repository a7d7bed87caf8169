"""T5 folders of Hugging Face, built from a configuration: the same ids, logits and translations."""

from __future__ import annotations

import functools
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import sentencepiece
import torch
from tests.interop.models import SENTENCES
from tests.interop.spoilt import config, pickled, tensors, with_file
from tests.interop.t5_folders import PROMPT, ROOM, SHAPES, save, tokenised
from tests.journeys.commands import check_refused
from tests.journeys.commands import run_apart as run

from regard.errors import ConfigurationError, ModelError
from regard.translation.decoding.search import Search
from regard.translation.text.batches import sources
from regard.translation.text.normalisation import normalise
from regard.translation.text.tokenizer import BOS, EOS
from regard.translation.translator import Translator

transformers = pytest.importorskip("transformers")


def theirs(folder: Path) -> tuple[Any, Any]:
    cut = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    return transformers.AutoModelForSeq2SeqLM.from_pretrained(folder), cut


@pytest.fixture(scope="module")
def shaped(tmp_path_factory) -> Callable[[str], Path]:
    """The folder of a shape, made once. Nobody writes into it."""
    folders = tmp_path_factory.mktemp("t5")
    return functools.cache(lambda name: save(folders / name, **SHAPES[name]))


@pytest.fixture(params=list(SHAPES))
def folder(request, shaped) -> Path:
    return shaped(request.param)


@pytest.fixture
def first_folder(shaped) -> Path:
    return shaped("t5")


@pytest.fixture
def spoilt(first_folder, tmp_path) -> Path:
    return Path(shutil.copytree(first_folder, tmp_path / "spoilt"))


@torch.no_grad()
def test_pieces_ids_and_logits_are_theirs(folder):
    ours, (model, cut) = Translator.open(folder), theirs(folder)
    rows = torch.tensor(ours.run.words[0].rows)
    texts = [*SENTENCES, "<2de> the ﬁne cat", "日 the sea", "</s> <pad> sea"]
    encoded = [ours.tokenizers.source.encode(text) for text in texts]
    for ids, text in zip(encoded, texts, strict=True):
        assert rows[ids].tolist() == cut.encode(text)
    source, lengths = sources(encoded)
    draw = torch.Generator().manual_seed(0)
    read = torch.randint(EOS, len(rows), (len(texts), 20), generator=draw)
    read[:, 0] = BOS
    expected = model(**tokenised(cut, texts), decoder_input_ids=rows[read]).logits
    actual_model = ours.model(source, lengths, read)
    kept_ids = [id for id in range(actual_model.shape[-1]) if id != BOS]
    torch.testing.assert_close(
        actual_model[..., kept_ids], expected[..., rows[kept_ids]], atol=1e-5, rtol=1e-5
    )
    assert actual_model[..., BOS].max() < -1e4


@pytest.mark.parametrize("beams", [1, 3])
def test_greedy_and_beam_search_write_the_same_or_better(folder, beams):
    """Theirs ends when enough hypotheses have ended, ours when none can be better."""
    ours, (model, cut) = Translator.open(folder), theirs(folder)
    search = Search(beam=beams, length_penalty=0, min_length=2, max_length=38, length_ratio=38)
    translations = ours.translate(SENTENCES, search=search)
    generated = model.generate(
        **tokenised(cut, SENTENCES),
        num_beams=beams,
        length_penalty=0.0,
        min_new_tokens=2,
        early_stopping=True,
        return_dict_in_generate=True,
        output_scores=True,
    )
    scores = generated.sequences_scores.tolist() if beams > 1 else [None] * len(translations)
    for translation, row, score in zip(
        translations, generated.sequences.tolist(), scores, strict=True
    ):
        assert translation.text
        if score is not None and translation.log_probability > score + 1e-4:
            continue
        assert score is None or translation.log_probability == pytest.approx(score, abs=1e-4)
        written_row = row[1 : row.index(cut.eos_id())]
        assert translation.target_pieces[:-1] == cut.id_to_piece(written_row)
        assert translation.text == normalise(cut.decode(written_row))


@torch.no_grad()
def test_a_text_may_be_told_what_to_do(first_folder):
    prompted, plain = Translator.open(first_folder, to="de"), Translator.open(first_folder)
    assert Translator.open(first_folder, to="en-de").tokenizers.source.prefix
    text = "the cat sees the sea"
    written = plain.search.as_written()  # all of it reaches the model
    (actual,) = prompted.translate([text], search=written)
    (expected,) = plain.translate([PROMPT + text], search=written)
    assert (actual.text, actual.source_pieces) == (expected.text, expected.source_pieces)
    assert actual.source == text
    looked = prompted.translate([text], alignments=True)[0]
    assert looked.alignment
    assert all(0 <= word < len(text.split()) for word, _ in looked.alignment)
    with pytest.raises(
        ConfigurationError, match=r"--to fr: .* names de, pt_BR, en-de: leave it out"
    ):
        Translator.open(first_folder, to="fr")


def test_a_tag_among_the_pieces_asks_for_a_language(shaped):
    folder = shaped("madlad")
    tagged, plain = Translator.open(folder, to="pt_BR"), Translator.open(folder)
    actual, expected = (
        made.translate([text], search=plain.search.as_written())[0]  # or the tag is kept apart
        for made, text in ((tagged, "the sea"), (plain, "<2pt_BR> the sea"))
    )
    assert actual.source_pieces == expected.source_pieces
    assert "<2pt_BR>" in actual.source_pieces
    assert actual.text == expected.text


def test_commands_take_such_a_folder_and_need_no_transformers(first_folder, monkeypatch):
    """A command that imports it ends; that no module imports it when it is imported, others test."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    sentence = "the cat sees the sea"
    (expected,) = Translator.open(first_folder, to="de").translate([sentence])
    for command in (["translate"], ["look", "--pieces"]):
        result = run(*command, sentence, "--model", first_folder, "--to", "de")
        assert result.code == 0, result
        assert result.out.startswith(f"{expected.text}\n")


def test_ctranslate2_serves_it(folder, tmp_path):
    pytest.importorskip("ctranslate2")
    from regard.interop import ctranslate2 as exporter
    from regard.interop.engine import Engine

    ours = Translator.open(folder)
    exporter.export(ours, tmp_path / "exported")
    served = Engine(tmp_path / "exported", ours.tokenizers, workers=1, compute_type="float32")
    translations = served.translate(SENTENCES, beam=1)
    expected = ours.translate(SENTENCES, search=Search(beam=1))
    assert [one.text for one in translations] == [one.text for one in expected]


def test_it_searches_as_the_folder_says(first_folder):
    assert (
        Translator.open(first_folder).search.beam,
        Translator.open(first_folder).search.length_penalty,
    ) == (
        3,
        1.0,
    )


def test_rows_without_a_piece_have_no_text(first_folder):
    tokenizer = Translator.open(first_folder).tokenizers.target
    ids = [*tokenizer.encode("the sea"), *range(len(tokenizer) - ROOM, len(tokenizer))]
    assert tokenizer.decode([-1, *ids, len(tokenizer)]) == "the sea"
    assert tokenizer.decode(ids) == "the sea"
    assert tokenizer.pieces(ids[-1:]) == [f"<{len(tokenizer) - 2}>"]


def test_names_of_converted_files_are_known(first_folder, spoilt):
    path = spoilt / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    tensors["decoder.embed_tokens.weight"] = tensors.pop("shared.weight")
    name = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    tensors[name] = torch.zeros(8, 4)
    safetensors.torch.save_file(tensors, path)
    actual_model, original_model = (
        Translator.open(spoilt).model,
        Translator.open(first_folder).model,
    )
    for a, b in zip(actual_model.parameters(), original_model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_ids_may_stand_with_the_search_and_an_output_may_be_tied_by_its_numbers(
    first_folder, spoilt
):
    path = spoilt / "config.json"
    table = json.loads(path.read_text())
    ids = {key: table.pop(key) for key in ("pad_token_id", "decoder_start_token_id")}
    path.write_text(json.dumps({**table, "pad_token_id": None}))
    (spoilt / "generation_config.json").write_text(json.dumps({**ids, "eos_token_id": 7}))
    tensors(lambda t: t.update({"lm_head.weight": t["shared.weight"].clone()}))(spoilt)
    actual_translator, original_translator = Translator.open(spoilt), Translator.open(first_folder)
    assert actual_translator.run.words == original_translator.run.words
    assert actual_translator.model.settings == original_translator.model.settings


def test_the_output_is_scaled_as_the_configuration_says(first_folder, spoilt):
    original_weight = Translator.open(first_folder).model.decoder_norm.weight
    config(scale_decoder_outputs=False)(spoilt)
    torch.testing.assert_close(
        Translator.open(spoilt).model.decoder_norm.weight, 4 * original_weight
    )
    config(scale_decoder_outputs=None, tie_word_embeddings=False)(spoilt)
    torch.testing.assert_close(
        Translator.open(spoilt).model.decoder_norm.weight, 4 * original_weight
    )


def only_a_fast_tokenizer(folder: Path) -> None:
    (folder / "spiece.model").unlink()
    (folder / "tokenizer.json").write_text("{}")


WI = "encoder.block.0.layer.1.DenseReluDense.wi.weight"
BIAS = "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
FAULTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "umt5": (config(model_type="umt5"), "every layer has relative positions of its own"),
    "untyped": (config(d_model="16"), "d_model is '16': input should be a valid integer"),
    "none": (config(num_heads=0), "num_heads is 0: input should be greater than or equal to 1"),
    "activation": (config(feed_forward_proj="gated-relu6"), "feed_forward_proj is 'gated-relu6'"),
    "epsilon": (config(layer_norm_epsilon=1e-5), "layer_norm_epsilon is 1e-05: ours is 1e-06"),
    "buckets": (config(relative_attention_num_buckets=10), "10: ours are a multiple of 4"),
    "near": (config(relative_attention_max_distance=4), "tells 4 distances apart"),
    "enormous": (config(d_model=65536), "config.json asks for"),
    "layers": (config(num_layers=3), "tensor encoder.block.2.layer.0.SelfAttention.q.weight"),
    "gated": (config(feed_forward_proj="gated-relu"), "wi_0.weight is missing"),
    "start": (config(decoder_start_token_id=10**6), "decoder_start_token_id is 1000000"),
    "no id": (config(pad_token_id=10**4000), r"pad_token_id is 10{56}\.\.\.: input should be"),
    "nothing": (config(feed_forward_proj=""), "feed_forward_proj is ''"),
    "end": (config(eos_token_id=0), "padding, unknown and end must be three ids"),
    "few": (config(vocab_size=50), "has the id 50, the embedding has rows 0 to 49"),
    "words": (with_file("generation_config.json", b'{"bad_words_ids": [[5]]}'), "no other words"),
    "json": (with_file("config.json", b"[" * 100_000), "config.json: not valid JSON"),
    "missing": (tensors(lambda t: t.pop(BIAS)), f"tensor {BIAS} is missing"),
    "extra": (tensors(lambda t: t.update(x=torch.zeros(1))), "tensor x has no place in a T5"),
    "lines": (tensors(lambda t: t.update({"x\n\x1b": torch.zeros(1)})), r"tensor 'x\\n\\x1b' has"),
    "shape": (tensors(lambda t: t.update({WI: torch.zeros(2, 2)})), r"has shape \(2, 2\)"),
    "nan": (tensors(lambda t: t[WI].fill_(torch.nan)), f"tensor {WI} holds numbers that are not"),
    "pickle": (pickled, "pytorch_model.bin is a pickle"),
    "fast": (only_a_fast_tokenizer, "it has no spiece.model: tokenizer.json cannot be read"),
    "garbage": (with_file("spiece.model", b"\x0a\xff\xff"), "spiece.model: not a usable sentence"),
    "truncated": (with_file("model.safetensors", b"\0" * 5), "model.safetensors: corrupted"),
}


@pytest.mark.parametrize(("spoil", "message"), FAULTS.values(), ids=FAULTS)
def test_a_folder_that_is_not_to_be_trusted_is_refused(spoilt, spoil, message):
    spoil(spoilt)
    with pytest.raises(ModelError, match=message) as refused:
        Translator.open(spoilt)
    assert str(spoilt) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_of_many_languages_those_spelt_alike_are_named(spoilt):
    tasks = {f"translation_en_to_l{i}": {"prefix": f"to {i}: "} for i in range(2000)}
    config(task_specific_params=tasks)(spoilt)
    with pytest.raises(ConfigurationError, match=r"names ([-\w]+, ){4}[-\w]+ and 3997 more: "):
        Translator.open(spoilt, to="l2000")


def test_a_language_whose_prefix_leaves_no_room_is_refused(spoilt):
    config(task_specific_params={"translation_en_to_de": {"prefix": "a " * 300}})(spoilt)
    with pytest.raises(ModelError, match="prefix for en-de is 600 characters long"):
        Translator.open(spoilt, to="en-de")


def test_commands_refuse_in_one_line(spoilt, tmp_path):
    check_refused(run("translate", "--model", spoilt, "--to", "fr", "a"), spoilt, "--to fr", code=2)
    result = run("export", "--model", spoilt, "--to", "huggingface", tmp_path / "x")
    check_refused(result, 'positions is "relative"')
    pickled(spoilt)
    check_refused(run("translate", "--model", spoilt, "the cat"), spoilt, "is a pickle")
