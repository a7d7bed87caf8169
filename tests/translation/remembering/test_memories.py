"""A model with a memory: it writes what it has read, and the memory outlives interruptions, damage and other models."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.journeys.commands import run_apart as run

from regard.edits import Scale
from regard.errors import ConfigurationError, CorruptedError, DataError, ModelError
from regard.explorer import translating
from regard.explorer.server.models import Models
from regard.serving.pairs import Pairs
from regard.translation.datastore import Datastore, Mixing
from regard.translation.datastore.table import Spans
from regard.translation.remembering import building, remember, tune
from regard.translation.remembering.pairs import as_read, encoded, states_of
from regard.translation.text.batches import sources
from regard.translation.text.corpora import Pair
from regard.translation.text.tokenizer import EOS
from regard.translation.translator import Translator

# No model would translate so.
PAIRS = [
    Pair("La clase derivada debe ser declarada.", "The subclass must be declared."),
    Pair("La variable de entorno está definida.", "The environment variable is set."),
    Pair("El gato duerme.", "The feline slumbers."),
]
SOURCES = [pair.source for pair in PAIRS]
SURE = {"weight": 0.99, "temperature": 0.001, "neighbours": 4}


@pytest.fixture(scope="session", params=["es-en-tiny", "es-en-recurrent"])
def translator(request):
    return Translator.open(request.param)


@pytest.fixture(scope="session")
def tiny():
    return Translator.open("es-en-tiny")


@pytest.fixture(scope="session")
def folder(translator, tmp_path_factory):
    path = tmp_path_factory.mktemp("memory") / translator.run.folder.name
    assert remember(translator, PAIRS, path) == len(PAIRS)
    return path


@pytest.fixture
def copied(tiny, tmp_path):
    remember(tiny, PAIRS, tmp_path / "memory")
    return tmp_path / "memory"


@pytest.fixture(autouse=True)
def forgotten(request):
    yield
    for name in {"translator", "tiny"} & set(request.fixturenames):
        request.getfixturevalue(name).forget()


@pytest.mark.parametrize(("similar", "lists"), [(0, 4), (1, 0), (1, 4)])
@pytest.mark.parametrize("beam", [1, 3])
def test_what_was_read_is_written(translator, folder, beam, similar, lists):
    translator.read_memory(folder, similar=similar, lists=lists, **SURE)
    texts = [each.text for each in translator.translate(SOURCES, beam=beam)]
    assert texts == [pair.target for pair in PAIRS]
    translator.forget()
    assert translator.translate(SOURCES, beam=beam)[0].text != PAIRS[0].target


def test_all_engines_mix_alike(tiny, copied):
    tiny.read_memory(copied, weight=0.4)
    compiled = tiny.translate(SOURCES, beam=4)
    tiny.refresh(avoid_loops="for a comparison")
    layers = tiny.translate(SOURCES, beam=4)
    tiny.refresh()
    with_hook = tiny.model.output.register_forward_hook(lambda *_: None)
    hooked = tiny.translate(SOURCES, beam=4)
    with_hook.remove()
    for other in (layers, hooked):
        assert [each.text for each in other] == [each.text for each in compiled]
        assert [each.score for each in other] == pytest.approx(
            [each.score for each in compiled], abs=1e-4
        )


def test_an_entry_read_in_both_ways_counts_twice(tiny, copied):
    def entries_read(**reading: int) -> int:
        tiny.read_memory(copied, **reading)
        hidden = torch.randn(1, tiny.model.output.weight.shape[1], generator=torch.Generator())
        spans = Spans.none(1)
        if reading["similar"]:
            spans = Spans.plain(tiny.recall.tables[1], torch.arange(len(PAIRS)).unsqueeze(0))
        return tiny.recall.nearest(hidden, spans, 2000)[0].isfinite().sum().item()

    lists, sentences = entries_read(similar=0, lists=9), entries_read(similar=3, lists=0)
    assert lists == sentences == len(_rows(tiny, copied))
    assert entries_read(similar=3, lists=9) == 2 * lists


def test_weight_0_is_the_model_alone(tiny, copied):
    alone = tiny.translate(SOURCES)
    tiny.read_memory(copied, weight=0.0)
    assert [each.score for each in tiny.translate(SOURCES)] == [each.score for each in alone]


def test_a_score_is_that_of_the_search(tiny, copied):
    tiny.read_memory(copied)
    translations = tiny.translate(SOURCES, search=tiny.search.as_written())
    pairs = [Pair(each.source, each.text) for each in translations]
    assert tiny.score(pairs) == pytest.approx([each.score for each in translations], abs=1e-4)
    assert tiny.look(SOURCES[0]).text == translations[0].text


@pytest.mark.parametrize("edits", [{}, {"decoder.*": Scale(0.9)}])
def test_the_explorer_lists_what_the_mixture_would_write(tiny, copied, edits):
    tiny.read_memory(copied, **SURE)
    scene, translation = translating.explore(tiny, SOURCES[0], edits=edits)
    assert translation.text == PAIRS[0].target
    places = scene.more["alternatives"]
    pieces = tiny.tokenizers.target.pieces([*translation.target_ids, EOS])
    assert [alternatives[0]["piece"] for alternatives in places] == pieces
    log_p = sum(math.log(alternatives[0]["probability"]) for alternatives in places)
    assert log_p == pytest.approx(translation.log_probability, abs=1e-4)
    assert log_p == pytest.approx(translating.log_probability(tiny, translation, edits), abs=1e-4)


@pytest.mark.parametrize("likeness", [0.0, 2.0])
@pytest.mark.parametrize("similar", [0, 2])
def test_loops_mix_as_torch_does(tiny, copied, similar, likeness):
    tiny.read_memory(copied, weight=0.6, similar=similar, likeness=likeness, temperature=0.3)
    pairs = as_read(tiny, PAIRS)
    batch = [encoded(tiny, pair) for pair in pairs]
    hidden, _ = states_of(tiny, batch)
    counts = [len(target) + 1 for _, target in batch]
    spans = tiny.recall.similar(*sources([source for source, _ in batch]), counts)
    with torch.no_grad():
        logits = tiny.model.logits(hidden + 0.1)
    plain, compiled = (
        tiny.recall.mix(hidden + 0.1, logits.clone(), spans, compiled=compiled).softmax(-1)
        for compiled in (False, True)
    )
    assert (plain - logits.softmax(-1)).abs().max() > 0.01
    torch.testing.assert_close(compiled, plain, rtol=1e-5, atol=1e-6)


def test_each_word_names_its_sentence(tiny, copied):
    tiny.read_memory(copied, **SURE)
    plain, named = (tiny.translate(SOURCES[:1], origins=origins)[0] for origins in (False, True))
    assert not any(word.origins for word in plain.words)
    assert [replace(word, origins=()) for word in named.words] == plain.words
    for word in named.words:
        best = word.origins[0]
        assert (best.source, best.target) == PAIRS[0][:2]
        assert best.weight == pytest.approx(0.99, abs=0.05)


def test_code_is_read_as_a_word(tiny, tmp_path):
    pair = Pair("Vea :func:`uno` primero.", "Consult :func:`uno` beforehand.")
    remember(tiny, [pair], tmp_path / "code")
    tiny.read_memory(tmp_path / "code", **SURE)
    assert (
        tiny.translate(["Vea :func:`otro` primero."])[0].text == "Consult :func:`otro` beforehand."
    )


def test_an_interruption_loses_the_last_passes_alone(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "_BATCHES", 1)
    monkeypatch.setattr("regard.translation.remembering.pairs.BATCH_TOKENS", 15)
    remember(tiny, PAIRS, tmp_path / "whole")

    def interrupt(done: int) -> None:
        raise KeyboardInterrupt

    for expected in (1, 2, 3):
        with pytest.raises(KeyboardInterrupt):
            remember(tiny, PAIRS, tmp_path / "memory", progress=interrupt)
        with tiny.datastore(tmp_path / "memory") as datastore:
            assert datastore.pairs_with_states() == expected
    assert remember(tiny, PAIRS, tmp_path / "memory") == 0
    assert _rows(tiny, tmp_path / "memory") == _rows(tiny, tmp_path / "whole")


def test_an_interruption_loses_no_words(tiny, copied, monkeypatch):
    def interrupt(*words: str) -> None:
        raise KeyboardInterrupt

    more = [Pair("El zorrinzo canta.", "The zorrinzo sings.")]
    with monkeypatch.context() as patched:
        patched.setattr(Datastore, "set_words", interrupt)
        with pytest.raises(KeyboardInterrupt):
            remember(tiny, more, copied)
    assert remember(tiny, more, copied) == 0
    with tiny.datastore(copied) as datastore:
        assert all("zorrinzo" in words.split() for words in datastore.words)


def test_later_pairs_are_added_behind(tiny, copied):
    before = _rows(tiny, copied)
    more = [*PAIRS, Pair("El perro ladra.", "The hound barks.")]
    assert remember(tiny, more, copied) == 1
    after = _rows(tiny, copied)
    assert after[: len(before)] == before
    assert len(after) > len(before)
    tiny.read_memory(copied, **SURE)
    assert tiny.translate(["El perro ladra."])[0].text == "The hound barks."


def test_an_entry_takes_at_most_80_bytes(tiny, copied):
    with tiny.datastore(copied) as datastore:
        vectors = datastore._states.vectors("keys")
        assert vectors.row_bytes <= 80
        assert len(datastore) == len(_rows(tiny, copied))


def test_another_model_is_refused_by_name(copied):
    other = Translator.open("en-es")
    with pytest.raises(ModelError, match="was made with another model or tokenizer"):
        other.read_memory(copied)
    assert other.recall is None


def test_a_folder_of_an_earlier_version_is_refused_with_what_to_do(tiny, copied, monkeypatch):
    monkeypatch.setattr("regard.translation.datastore.folder.COMPONENTS", 47)
    with pytest.raises(ModelError, match=f"{copied}: was made by an earlier version: remove it"):
        tiny.read_memory(copied)


def test_several_models_have_no_memory(copied):
    with pytest.raises(ModelError, match="of one model"):
        Translator.open(["es-en-tiny", "es-en-tiny"]).read_memory(copied)


def test_a_setting_out_of_range(tiny, copied):
    with pytest.raises(ConfigurationError, match=r"weight 1\.5"):
        tiny.read_memory(copied, weight=1.5)
    with pytest.raises(ConfigurationError, match="similar 0 and lists 0 read nothing"):
        tiny.read_memory(copied, lists=0)


def test_no_folder(tiny, tmp_path):
    with pytest.raises(ModelError, match="no such folder"):
        tiny.read_memory(tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("is_there", [False, True])
def test_nothing_to_remember_leaves_nothing(tiny, tmp_path, is_there):
    folder = tmp_path / "above" / "memory"
    if is_there:
        folder.mkdir(parents=True)
    with pytest.raises(DataError, match="nothing to remember"):
        remember(tiny, [Pair("", "")], folder)
    assert list(tmp_path.rglob("*")) == ([folder.parent, folder] if is_there else [])


def _damaged(path: Path, place: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(len(content) * place)] ^= 0x55
    path.write_bytes(content)


def _read_all(translator: Translator, folder: Path) -> None:
    translator.read_memory(folder, similar=2)
    translator.translate(SOURCES)
    remember(translator, PAIRS, folder)


@pytest.mark.parametrize("name", ["space.safetensors", "states/1/keys", "sentences/1/keys"])
@pytest.mark.parametrize("fault", ["cut", 0.1, 0.5, 0.9])
def test_damage_is_told(tiny, copied, name, fault):
    path = copied / name
    if fault == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        _damaged(path, fault)
    with pytest.raises(CorruptedError) as raised:
        _read_all(tiny, copied)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["space.safetensors", "states", "sentences"])
def test_a_part_that_is_missing_is_told(tiny, copied, name):
    path = copied / name
    path.unlink() if path.is_file() else shutil.rmtree(path)
    with pytest.raises(ModelError, match=str(copied)):
        tiny.read_memory(copied)


def test_one_process_writes_at_a_time(tiny, copied):
    with tiny.datastore(copied, write=True), pytest.raises(ModelError, match="is writing to it"):
        remember(tiny, PAIRS, copied)


def test_a_tuning_is_kept(tiny, copied):
    valid = [Pair(pair.source, pair.target) for pair in PAIRS]
    mixing, trials = tune(tiny, valid, copied, similar=2)
    assert tiny.recall is None
    assert mixing.weight == max(trials, key=lambda trial: trial.bleu).weight > 0
    assert trials[0].weight == 0
    assert trials[0].bleu < max(trial.bleu for trial in trials)
    tiny.read_memory(copied)
    assert tiny.recall.mixing == mixing
    assert mixing.similar == 2


def test_an_empty_memory_changes_nothing(tiny, tmp_path):
    tiny.datastore(tmp_path / "memory", write=True).close()
    alone = tiny.translate(SOURCES)
    tiny.read_memory(tmp_path / "memory", similar=2)
    assert [each.text for each in tiny.translate(SOURCES)] == [each.text for each in alone]
    with pytest.raises(DataError, match="the memory is empty"):
        tune(tiny, PAIRS, tmp_path / "memory")
    assert tiny.recall is None


def test_servers_give_a_memory_to_its_model(copied):
    pairs = Pairs(["en-es", "es-en-tiny"], memories=[copied])
    recalls = {pair.source: each.recall for pair, each in pairs.translators.items()}
    assert recalls["en"] is None
    assert recalls["es"].datastore.folder == copied
    with pytest.raises(ModelError, match="another model"):
        Pairs(["en-es"], memories=[copied])
    assert Models({"tiny": "es-en-tiny"}, memory=copied).open("tiny").recall is not None


def test_the_commands(tiny, tmp_path):
    table, memory = tmp_path / "old.tsv", tmp_path / "memory"
    table.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in PAIRS))
    columns = ("--source-column", "0", "--target-column", "1")
    done = run("remember", "es-en-tiny", str(table), "--to", str(memory), *columns)
    assert (done.code, done.out.split(":")[1].split(",")[0]) == (0, " 3 new sentence pairs")
    again = run("remember", "es-en-tiny", str(table), "--to", str(memory), *columns)
    assert " 0 new sentence pairs, 3 in all" in again.out
    with tiny.datastore(memory, write=True) as datastore:
        datastore.set_mixing(Mixing(**SURE))
    options = ("--model", "es-en-tiny", "--memory", str(memory))
    text = run("translate", *options, "--why", SOURCES[0]).lines
    assert text[0] == PAIRS[0].target
    assert text[1].split("\t")[3:] == list(PAIRS[0][:2])
    answer = json.loads(run("translate", *options, "--why", "--format", "json", SOURCES[0]).out)
    assert answer["words"][0]["origins"][0]["target"] == PAIRS[0].target
    scores = run("evaluate", *options, "--tsv", str(table), *columns, "--format", "json").out
    assert json.loads(scores)["exact"] == 100
    assert run("look", *options, SOURCES[0]).lines[0] == PAIRS[0].target
    refused = run("translate", "--model", "es-en", "--memory", str(memory), SOURCES[0])
    assert (refused.code, refused.last_line.count("another model or tokenizer")) == (1, 1)


def _rows(translator: Translator, folder: Path) -> list[tuple[int, ...]]:
    """Codes and tokens of all entries, in their order."""
    with translator.datastore(folder) as datastore:
        assert isinstance(datastore, Datastore)
        _, table = datastore.tables(lists=False, sentences=True)
    return [
        (*codes, token)
        for codes, token in zip(table.codes.tolist(), table.tokens.tolist(), strict=True)
    ]
