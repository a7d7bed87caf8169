"""From a configuration to a trainer: nothing is written before everything has proved usable."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.translation.tiny import MODELS, PAIRS, REST, configuration, trainer

from regard.errors import ConfigurationError, DataError, TrainingError
from regard.translation.runs import Run
from regard.translation.runs.layout import CONFIGURATION
from regard.translation.settings.toml import dump, parse
from regard.translation.settings.training import TrainingSettings
from regard.translation.text.corpora import Pair
from regard.translation.training.data import read_data
from regard.translation.training.preparation import prepare, prepare_resumed
from regard.translation.training.reporting import Observer
from regard.translation.training.validation import Validation


@pytest.mark.parametrize(
    ("changes", "fault", "message"),
    [
        (["data.train.tsv=missing.tsv"], DataError, r"missing\.tsv: no such file"),
        (["data.longest=1"], DataError, "no usable sentence pairs: all are longer"),
        (
            ["tokenizer.vocabulary_size=20"],
            ConfigurationError,
            "vocabulary_size = 20: this text needs",
        ),
    ],
)
def test_what_cannot_be_used_leaves_no_folder(tmp_path, changes, fault, message):
    with pytest.raises(fault, match=message):
        prepare(configuration(tmp_path, *changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Notes(Observer):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


def test_a_vocabulary_that_the_text_does_not_fill_is_told(tmp_path):
    noted = Notes()
    expected_settings = configuration(tmp_path, "tokenizer.vocabulary_size=5000")
    trained = prepare(expected_settings, tmp_path / "run", observer=noted)
    size = len(trained.run.tokenizers().source)
    message = f"the text gives {size} word pieces, fewer than tokenizer.vocabulary_size = 5000"
    assert size < 5000
    assert message in noted.lines


def test_characters_that_a_vocabulary_leaves_out_are_listed(tmp_path):
    changes = ["tokenizer.character_coverage=0.99", "tokenizer.vocabulary_size=300"]
    settings, noted = configuration(tmp_path, *changes), Notes()
    with (tmp_path / "pairs.tsv").open("a", encoding="utf-8") as corpus:
        corpus.write("É\u200d\tÀ\n")
    prepare(settings, tmp_path / "run", observer=noted)
    (note,) = [line for line in noted.lines if "not in the vocabulary" in line]
    assert note.startswith("3 characters of the text are not in the vocabulary")
    assert {"É", "À", "U+200D"} <= set(note.split())


def test_a_text_that_fills_its_vocabulary_gets_no_such_note(tmp_path):
    noted = Notes()
    prepare(
        configuration(tmp_path, "tokenizer.vocabulary_size=300"), tmp_path / "run", observer=noted
    )
    assert not any("vocabulary" in line for line in noted.lines)


def test_a_model_whose_parts_do_not_fit_leaves_no_folder(tmp_path):
    changes = ["model.score=dot", "model.decoder_width=12"]
    with pytest.raises(
        ConfigurationError, match=r"model = .*: score 'dot' compares vectors of one"
    ):
        prepare(configuration(tmp_path, *changes, model="recurrent"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_links_that_cannot_be_used_leave_no_folder_and_are_named(tmp_path):
    (tmp_path / "links").write_text("0-9\n" * len(PAIRS))
    changes = (f"data.train.links={tmp_path / 'links'}", "training.guide.layer=0")
    with pytest.raises(DataError, match="/links: link 0-9: "):
        prepare(configuration(tmp_path, *changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("content", ["", "\n\n\n", "a\t\n\tb\n"])
def test_a_corpus_of_nothing(tmp_path, content):
    expected_settings = configuration(tmp_path)
    (tmp_path / "pairs.tsv").write_text(content)
    with pytest.raises(DataError, match=r"data\.train: no usable sentence pairs"):
        prepare(expected_settings, tmp_path / "run")


def test_a_taken_folder_is_refused(tmp_path):
    trainer(tmp_path)
    with pytest.raises(TrainingError, match="already holds a run: add --resume"):
        trainer(tmp_path)


def test_a_resumed_training_keeps_its_configuration(tmp_path):
    new_trainer = trainer(tmp_path)
    with pytest.raises(ConfigurationError) as fault:
        prepare_resumed(
            new_trainer.run.folder,
            configuration=configuration(tmp_path, "model.width=32", "seed=9"),
        )
    assert "model.width: 16 in the run folder, 32 asked for" in str(fault.value)
    assert "seed: 1 in the run folder, 9 asked for" in str(fault.value)


def test_a_mark_and_other_line_ends_change_nothing(tmp_path):
    new_trainer = trainer(tmp_path)
    path = tmp_path / "pairs.tsv"
    for run, content in (
        ("bom", b"\xef\xbb\xbf" + path.read_bytes()),
        ("crlf", path.read_bytes().replace(b"\n", b"\r\n")),
    ):
        expected_settings = configuration(tmp_path)
        path.write_bytes(content)
        other_trainer = prepare(expected_settings, tmp_path / run)
        assert (other_trainer.run.folder / "tokenizer.model").read_bytes() == (
            new_trainer.run.folder / "tokenizer.model"
        ).read_bytes()


def test_long_sentences_are_left_out_and_counted(tmp_path):
    expected_settings = configuration(tmp_path, "data.longest=30")
    with (tmp_path / "pairs.tsv").open("a") as file:
        file.write("one " * 1000 + "\tONE\n")
    notes: list[str] = []

    class Heard(Observer):
        note = staticmethod(notes.append)

    new_trainer = prepare(expected_settings, tmp_path / "run", observer=Heard())
    assert len(new_trainer.epochs._words[0]) == len(PAIRS)
    assert any("left out 1 pairs" in note for note in notes)


def test_only_sentences_of_so_many_words_are_taken(tmp_path):
    settings = configuration(tmp_path, "data.words=[2,3]").data
    lines = ["a\tb", "a b\tc d", "a b c\td e f", "a b\tc", "a b c d\te f"]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines), encoding="utf-8")
    data = read_data(settings, None, 1)
    assert [pair.source for pair in data.train] == ["a b", "a b c"]
    assert [pair.source for pair in data.valid] == ["a b", "a b c"]
    with pytest.raises(DataError, match=r"no pair in .*pairs.tsv has data.words = \[5, 9\] words"):
        read_data(settings.changed(words=(5, 9)), None, 1)


def test_learned_positions_are_never_left(tmp_path):
    """Drawn segmentations are longer than the best ones, translations longer than their sources."""
    new_trainer = trainer(
        tmp_path,
        "model.positions=learned",
        "model.longest=8",
        "data.longest=7",
        "tokenizer.sampling=0.0001",
        "training.max_steps=12",
        "training.validate_every=6",
    )
    assert new_trainer.train() == "finished"


def test_validation_looks_at_a_sample_and_not_at_a_slice(tmp_path):
    new_trainer = trainer(tmp_path)
    from regard.translation.text.corpora import Pair

    pairs = [Pair(str(n), str(n)) for n in range(1000)]
    tokenizers = new_trainer.run.tokenizers()

    def rows(seed: int, sentences: int = 100) -> list[int]:
        sample = Validation(pairs, tokenizers, TrainingSettings(validate_sentences=sentences), seed)
        return [int(pair.source) for pair in sample.pairs]

    assert len(set(rows(1))) == 100
    assert rows(1) == rows(1) != rows(2)
    assert max(rows(1)) > 900
    assert min(rows(1)) < 100
    assert rows(1, 0) == list(range(1000))


def test_validation_leaves_the_model_as_it_was(tmp_path):
    new_trainer = trainer(tmp_path)
    new_trainer.model.train()
    first_measures = new_trainer.validation.measure(new_trainer.model)
    assert new_trainer.model.training
    assert first_measures == new_trainer.validation.measure(
        new_trainer.model
    )  # no dropout, no chance


SEVERAL = """
[data]
source_language = "en"
target_language = "big"
valid.tsv = "pairs.tsv"
[[data.train]]
tsv = "pairs.tsv"
weight = 2
[[data.train]]
tsv = "turned.tsv"
tag = "bt"
source_column = 1
target_column = 0
[[data.train]]
source = "some.en"
target = "some.same"
target_language = "same"
weight = 0.5
[model]
"""


@pytest.fixture
def three_corpora(tmp_path):
    configuration(tmp_path)  # writes pairs.tsv
    (tmp_path / "turned.tsv").write_text("ONE TWO\ttwo one\n" * 10, encoding="utf-8")
    for name in ("some.en", "some.same"):
        (tmp_path / name).write_text("three four\n" * 6, encoding="utf-8")
    return parse(SEVERAL + MODELS["transformer"] + REST, changes=("tokenizer.sampling=0",))


def test_several_corpora_are_read_with_what_is_said_of_them(tmp_path, three_corpora):
    data = read_data(three_corpora.data, tmp_path, seed=1)
    assert len(data.train) == len(PAIRS) + 10 + 6
    assert data.train[0] == Pair(*PAIRS[0], ("2big",), 2.0)
    assert data.train[len(PAIRS)] == Pair("two one", "ONE TWO", ("2big", "bt"), 1.0)
    assert data.train[-1] == Pair("three four", "three four", ("2same",), 0.5)
    assert data.valid[0] == Pair(*PAIRS[0], ("2big",))
    (tmp_path / "turned.tsv").write_text("\t\n", encoding="utf-8")
    with pytest.raises(
        DataError, match=r"data.train: no usable sentence pairs in turned\.tsv \(1 "
    ):
        read_data(three_corpora.data, tmp_path, seed=1)


def test_batches_hold_tags_and_take_pairs_by_their_weights(tmp_path, three_corpora):
    new_trainer = prepare(three_corpora, tmp_path / "run", data=tmp_path)
    tags = new_trainer.run.tokenizers().source.tags
    first_counts: Counter[int] = Counter()
    second: Counter[int] = Counter()
    for epoch in range(2):
        for number in range(new_trainer.epochs.batches(epoch)):
            source = new_trainer.epochs.part(epoch, number).batch.source
            first_counts.update(source[:, 0].tolist())
            second.update(source[:, 1].tolist())
    assert first_counts[tags["2big"]] == 2 * (2 * len(PAIRS) + 10)
    assert second[tags["bt"]] == 2 * 10
    assert 0 < first_counts[tags["2same"]] < 2 * 6
    assert set(first_counts) == {tags["2big"], tags["2same"]}
    assert new_trainer.measure().loss > 0


def test_tags_that_a_start_does_not_know_are_refused(tmp_path, three_corpora):
    start = trainer(tmp_path, run="start")
    start.train()
    tensors, _ = start.best_weights()
    start.run.publish(tensors, "")
    with pytest.raises(ConfigurationError, match="its tokenizer has no tag 2big, 2same, bt"):
        prepare(three_corpora, tmp_path / "run", data=tmp_path, start=start.run)
    assert not (tmp_path / "run").exists()


def test_word_vectors_are_refused_and_models_that_learnt_with_them_open(tmp_path):
    vectors = 'pretrained.source="words.vec"'
    with pytest.raises(ConfigurationError, match="word vectors are no longer read: leave"):
        trainer(tmp_path, vectors)
    assert not (tmp_path / "run").exists()
    new_trainer = trainer(tmp_path)
    settings = configuration(tmp_path, vectors, "pretrained.frozen=true")
    assert parse(dump(settings)) == settings
    content = dump(settings).encode()
    new_trainer.run.keep(CONFIGURATION, content)
    assert Run.open(new_trainer.run.folder).configuration == settings
    with pytest.raises(ConfigurationError, match="word vectors are no longer read: leave"):
        prepare_resumed(new_trainer.run.folder)
