"""Marian folders of Hugging Face, built from a configuration: the same ids, logits and translations."""

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
from tests.interop.models import LINES, SENTENCES
from tests.interop.pieces import trained
from tests.interop.spoilt import config, pickled, tensors, with_file
from tests.journeys.commands import check_refused
from tests.journeys.commands import run_apart as run

from regard.errors import ModelError
from regard.interop.huggingface import marian_export as writing
from regard.translation.decoding.search import Search
from regard.translation.text.batches import sources
from regard.translation.text.normalisation import normalise
from regard.translation.text.tokenizer import BOS, EOS
from regard.translation.translator import Translator

transformers = pytest.importorskip("transformers")

SHAPES: dict[str, dict[str, Any]] = {
    "opus": {"activation_function": "swish", "scale_embedding": True},
    "default": {"activation_function": "gelu", "decoder_layers": 1},
    "approximate": {"activation_function": "gelu_new", "encoder_layers": 1},
    "two_vocabularies": {
        "activation_function": "relu",
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": False,
    },
}


def table(*models: bytes) -> dict[str, int]:
    """Marian's numbering: end, unknown, pieces by their names, a language, padding."""
    result: set[str] = set()
    for model in models:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        result |= {processor.id_to_piece(i) for i in range(3, processor.get_piece_size())}
    names = ["</s>", "<unk>", *sorted(result), ">>fra<<", "<pad>"]
    return {name: id for id, name in enumerate(names)}


def save(folder: Path, **changes: Any) -> Path:
    """What save_pretrained of a small model and its tokenizer writes."""
    folder.mkdir()
    source, target = trained(LINES), trained([line[::-1] for line in LINES])
    shared = changes.get("share_encoder_decoder_embeddings", True)
    words, output_table = table(source, target), table(target)
    (folder / "source.spm").write_bytes(source)
    (folder / "target.spm").write_bytes(target)
    (folder / "vocab.json").write_text(json.dumps(words))
    if not shared:
        # Both sides have one padding id: the source's words fill up to the target's.
        words = {**table(source)}
        size = max(len(words), len(output_table))
        words["<pad>"] = output_table["<pad>"] = size - 1
        (folder / "vocab.json").write_text(json.dumps(words))
        (folder / "target_vocab.json").write_text(json.dumps(output_table))
    described = {"source_lang": "eng", "target_lang": "fra", "separate_vocabs": not shared}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    size = words["<pad>"] + 1
    torch.manual_seed(0)
    model = transformers.MarianMTModel(
        transformers.MarianConfig(
            **{
                "vocab_size": size,
                "d_model": 16,
                "encoder_layers": 2,
                "decoder_layers": 2,
                "encoder_attention_heads": 4,
                "decoder_attention_heads": 4,
                "encoder_ffn_dim": 24,
                "decoder_ffn_dim": 24,
                "max_position_embeddings": 64,
                "pad_token_id": size - 1,
                "decoder_start_token_id": size - 1,
                "init_std": 0.1,
                "dropout": 0.0,
                **changes,
            }
        )
    ).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.uniform_(-0.5, 0.5)
        model.final_logits_bias.uniform_(-0.5, 0.5)
    teach(model, transformers.MarianTokenizer.from_pretrained(folder))
    model.generation_config.num_beams = 3
    model.generation_config.bad_words_ids = [[size - 1]]
    model.generation_config.max_length = 40
    model.save_pretrained(folder)
    return folder


def teach(model: Any, tokenizer: Any) -> None:
    """A little of reversing letters, so that what it writes depends on what it reads, and ends."""
    lines = [*LINES, *SENTENCES]
    actual_tokenizer = tokenizer(
        lines, text_target=[line[::-1] for line in lines], return_tensors="pt", padding=True
    )
    actual_tokenizer["labels"][actual_tokenizer["labels"] == model.config.pad_token_id] = -100
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimiser.zero_grad()
        model(**actual_tokenizer).loss.backward()
        optimiser.step()


@pytest.fixture(scope="module")
def shaped(tmp_path_factory) -> Callable[[str], Path]:
    """The folder of a shape, made once. Nobody writes into it."""
    folders = tmp_path_factory.mktemp("marian")
    return functools.cache(lambda name: save(folders / name, **SHAPES[name]))


@pytest.fixture(params=list(SHAPES))
def folder(request, shaped) -> Path:
    return shaped(request.param)


@pytest.fixture
def opus(shaped) -> Path:
    return shaped("opus")


@pytest.fixture
def spoilt(opus, tmp_path) -> Path:
    return Path(shutil.copytree(opus, tmp_path / "spoilt"))


@torch.no_grad()
def test_pieces_ids_and_logits_are_theirs(folder):
    ours = Translator.open(folder)
    theirs = transformers.MarianMTModel.from_pretrained(folder)
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    source_words, target_words = ours.run.words
    texts = [*SENTENCES, ">>fra<< the ﬁne cat", "日 the sea"]
    actual_tokenizer = tokenizer(texts, return_tensors="pt", padding=True)
    encoded = [ours.tokenizers.source.encode(text) for text in texts]
    for ids, row, unseen_pieces in zip(
        encoded, actual_tokenizer.input_ids, actual_tokenizer.attention_mask, strict=True
    ):
        assert [source_words.rows[id] for id in [*ids, EOS]] == row[unseen_pieces.bool()].tolist()
    source, lengths = sources(encoded)
    draw = torch.Generator().manual_seed(0)
    read = torch.randint(EOS, len(target_words.rows), (len(texts), 6), generator=draw)
    read[:, 0] = BOS
    rows = torch.tensor(target_words.rows)
    expected = theirs(**actual_tokenizer, decoder_input_ids=rows[read]).logits
    model = ours.model(source, lengths, read)
    kept_ids = [id for id in range(model.shape[-1]) if id != BOS]
    torch.testing.assert_close(
        model[..., kept_ids], expected[..., rows[kept_ids]], atol=1e-5, rtol=1e-5
    )
    assert model[..., BOS].max() < -1e4


@pytest.mark.parametrize("beams", [1, 3])
def test_greedy_and_beam_search_write_the_same(folder, beams):
    ours = Translator.open(folder)
    theirs = transformers.MarianMTModel.from_pretrained(folder)
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    limits = {"min_length": 2, "max_length": 38, "length_ratio": 38}
    search = Search(beam=beams, length_penalty=0, search_again=False, **limits)
    translations = ours.translate(SENTENCES, search=search)
    actual_tokenizer = tokenizer(SENTENCES, return_tensors="pt", padding=True)
    generated = theirs.generate(
        **actual_tokenizer,
        num_beams=beams,
        length_penalty=0.0,
        min_new_tokens=2,
        early_stopping=True,
    )
    rows = ours.run.words[1].rows
    target = ours.tokenizers.target
    for translation, row in zip(translations, generated.tolist(), strict=True):
        pieces = [p for p in tokenizer.convert_ids_to_tokens(row) if p != "<pad>"]
        if tokenizer.separate_vocabs:
            names = {rows[i]: name for i, name in enumerate(target.pieces(range(len(target))))}
            pieces = [names[id] for id in row[1:] if id != rows[0]]
        assert translation.target_pieces == pieces
    texts = tokenizer.batch_decode(generated, skip_special_tokens=True)
    assert [one.text for one in translations] == [normalise(text) for text in texts]
    assert all(one.text for one in translations)


def test_commands_take_such_a_folder_and_need_no_transformers(opus, monkeypatch):
    """A command that imports it ends; that no module imports it when it is imported, others test."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    sentence = "the cat sees the sea"
    (expected,) = Translator.open(opus).translate([sentence])
    for command in (["translate"], ["look", "--pieces"]):
        result = run(*command, sentence, "--model", opus)
        assert result.code == 0, result
        assert result.out.startswith(f"{expected.text}\n")


def test_it_searches_as_the_folder_says(opus):
    translator = Translator.open(opus)
    assert (translator.search.beam, translator.search.length_penalty) == (3, 1.0)
    data = translator.run.configuration.data
    assert (data.source_language, data.target_language) == ("eng", "fra")


def test_there_and_back_is_the_same_model(opus, tmp_path):
    first_translator = Translator.open(opus)
    writing.export(first_translator, tmp_path / "again")
    second = Translator.open(tmp_path / "again")
    texts = SENTENCES
    assert [one.text for one in second.translate(texts)] == [
        one.text for one in first_translator.translate(texts)
    ]
    single_state, two = first_translator.model.state_dict(), second.model.state_dict()
    for name in single_state:
        assert torch.equal(single_state[name], two[name]), name


def test_names_of_older_files_are_known(opus, spoilt):
    path = spoilt / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    words = tensors.pop("model.shared.weight")
    tensors["model.encoder.embed_tokens.weight"] = words
    tensors["lm_head.weight"] = words.clone()
    tensors["model.encoder.embed_positions.weight"] = torch.zeros(64, 16)
    del tensors["final_logits_bias"]
    safetensors.torch.save_file({name: t.half() for name, t in tensors.items()}, path)
    actual_model, original_model = Translator.open(spoilt).model, Translator.open(opus).model
    torch.testing.assert_close(
        actual_model.target_embedding.weight,
        original_model.target_embedding.weight,
        atol=2e-3,
        rtol=0,
    )
    assert actual_model.output.bias[EOS] == 0


def vocabulary(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        words = json.loads((folder / "vocab.json").read_text())
        change(words)
        (folder / "vocab.json").write_text(json.dumps(words))

    return spoil


def rename(words: dict[str, Any], name: str) -> None:
    """Give the first piece that is none of Marian's own another name."""
    words[name] = words.pop(next(word for word in words if not word.startswith("<")))


def only_a_fast_tokenizer(folder: Path) -> None:
    (folder / "source.spm").unlink()
    (folder / "tokenizer.json").write_text("{}")


FC1 = "model.encoder.layers.0.fc1.weight"
FAULTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "bart": (
        config(model_type="bart"),
        "model_type is 'bart': only .*; its pieces are byte-level BPE",
    ),
    "unheard": (config(model_type=["x"]), r"model_type is \['x'\]: only marian, t5, mt5 are read$"),
    "untyped": (config(d_model="16"), "d_model is '16': input should be a valid integer"),
    "odd": (config(d_model=15), "d_model is 15: input should be a multiple of 2"),
    "heads": (config(encoder_attention_heads=3, decoder_attention_heads=3), "no multiple of 3"),
    "unequal": (
        config(decoder_attention_heads=2),
        r"decoder_attention_heads is 2: expected 4, as in the encoder; .* regard\.watch",
    ),
    "uneven": (config(decoder_ffn_dim=8), "decoder_ffn_dim is 8: expected 24, as in the encoder"),
    "activation": (
        config(activation_function="relu6"),
        "known are relu, gelu, gelu_new, silu, swish",
    ),
    "pre-norm": (config(normalize_before=True), "normalize_before is True: Marian normalises"),
    "enormous": (config(d_model=65536), "config.json asks for"),
    "layers": (config(encoder_layers=3), "tensor model.encoder.layers.2.self_attn.q_proj.weight"),
    "start": (config(decoder_start_token_id=10**6), "decoder_start_token_id is 1000000"),
    "words": (with_file("generation_config.json", b'{"bad_words_ids": [[5]]}'), "no other words"),
    "json": (with_file("config.json", b"[" * 100_000), "config.json: not valid JSON"),
    "list": (with_file("vocab.json", b"[]"), "vocab.json: expected an object"),
    "twice": (with_file("vocab.json", b'{"a": 0, "a": 1}'), "vocab.json: .*a key stands twice"),
    "id": (vocabulary(lambda v: v.update(the=10**9)), "'the' has the id 1000000000, the embedding"),
    "negative": (vocabulary(lambda v: v.update(the=-1)), "'the' has the id -1, the embedding"),
    "same": (vocabulary(lambda v: v.update(zz=0)), "'zz' and '</s>' have the same id, 0"),
    "text": (vocabulary(lambda v: v.update(zz="1")), "'zz' has no whole number as its id"),
    "begins": (
        vocabulary(lambda v: [rename(v, name) for name in ("<s>", "<start>", "<regard:start>")]),
        "our begin piece needs one of these names",
    ),
    "unknown": (vocabulary(lambda v: v.pop("<unk>")), "it has no <unk>"),
    "missing": (tensors(lambda t: t.pop(FC1)), f"tensor {FC1} is missing"),
    "extra": (tensors(lambda t: t.update(x=torch.zeros(1))), "tensor x has no place"),
    "shape": (tensors(lambda t: t.update({FC1: torch.zeros(2, 2)})), r"has shape \(2, 2\)"),
    "whole": (tensors(lambda t: t.update({FC1: torch.zeros(24, 16).int()})), "is torch.int32"),
    "nan": (tensors(lambda t: t[FC1].fill_(torch.nan)), "numbers that are not finite"),
    "untied": (
        tensors(lambda t: t.update({"lm_head.weight": t["model.shared.weight"] + 1})),
        "model.shared.weight and lm_head.weight differ",
    ),
    "pickle": (pickled, "pytorch_model.bin is a pickle"),
    "fast": (only_a_fast_tokenizer, "it has no source.spm: tokenizer.json cannot be read"),
    "garbage": (with_file("target.spm", b"\x0a\xff\xff"), "target.spm: not a usable sentencepiece"),
    "truncated": (with_file("model.safetensors", b"\0" * 5), "model.safetensors: corrupted"),
}


@pytest.mark.parametrize(("spoil", "message"), FAULTS.values(), ids=FAULTS)
def test_a_folder_that_is_not_to_be_trusted_is_refused(spoilt, spoil, message):
    spoil(spoilt)
    with pytest.raises(ModelError, match=message) as refused:
        Translator.open(spoilt)
    assert str(spoilt) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_command_refuses_in_one_line(spoilt):
    pickled(spoilt)
    check_refused(run("translate", "--model", spoilt, "the cat"), spoilt, "is a pickle")
    check_refused(run("look", "--model", spoilt, "the cat"), spoilt, "is a pickle")
