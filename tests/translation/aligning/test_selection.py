"""The choice that is found, and the file in which it is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.translation.aligning.standing_in import Scripted, ahead, tokenizers

from regard.errors import ConfigurationError, DataError, ModelError
from regard.translation.aligning import choice as choices
from regard.translation.aligning.choice import Choice, StoredChoice, taught, usual
from regard.translation.aligning.selection import choose
from regard.translation.aligning.word_attention import word_attentions
from regard.translation.evaluation.gold import Gold
from regard.translation.runs import Run
from regard.translation.settings import toml

WORDS = ["uno", "dos", "tres"]


def selected_head(gold: Gold):
    both_tokenizers = tokenizers()
    assert gold.words is not None
    return choose(word_attentions(Scripted(ahead), both_tokenizers, gold.words), gold)


def test_a_guided_training_says_what_to_read():
    start = "[data]\ntrain.tsv = 'a'\nvalid.tsv = 'a'\n"
    further_text = "[model]\nkind = 'transformer'\n[training.guide]\nlayer = 1\nhead = 2\n"
    guided = toml.parse(start + "train.links = 'b'\n" + further_text, "x.toml")
    assert taught(guided) == Choice(layer=1, head=2, rows="read")
    assert taught(toml.parse(start + further_text.split("[training")[0], "x.toml")) is None


def test_the_head_that_knows_is_found_and_measured_on_the_other_half():
    straight = {(0, 0), (1, 1), (2, 2)}
    gold = Gold([straight] * 4, [set()] * 4, [(WORDS, WORDS)] * 4)
    choice = selected_head(gold)
    assert (choice.best.choice.layer, choice.best.choice.rows) == (0, "written")
    assert choice.best.scores.aer == 0
    by_choice = {one.choice: one.scores.aer for one in choice.tried}
    assert by_choice[Choice(0, 0)] == 0 < by_choice[Choice(0, 1)] == by_choice[Choice(1, 0)]
    assert [one.scores.aer for one in choice.crossed] == [0, 0]
    assert choice.diagonal.aer == 0
    # 2 layers of a mean and 2 heads, and all layers; 2 rows, balanced or not; 10 methods.
    assert len(choice.tried) == 7 * 2 * 2 * 10
    assert len({one.choice for one in choice.tried}) == len(choice.tried)


def test_halves_that_disagree_pay_for_it():
    first_links, own_links = {(0, 0), (0, 1), (0, 2)}, {(0, 0), (1, 1), (2, 2)}
    gold = Gold([own_links, own_links, first_links, first_links], [set()] * 4, [(WORDS, WORDS)] * 4)
    choice = selected_head(gold)
    assert choice.crossed[0].choice != choice.crossed[1].choice
    assert all(one.scores.aer > 50 for one in choice.crossed)


def test_too_few_sentences_choose_nothing():
    with pytest.raises(DataError, match="1 sentences with gold links: two or more"):
        selected_head(Gold([set()], [set()], [(WORDS, WORDS)]))
    with pytest.raises(DataError, match="0 sentences for 1"):
        choose([], Gold([set()], [set()]))


def test_what_is_usual_is_said_in_words():
    assert str(usual(6)) == "layer 4, mean of its heads, rows of the word written, balanced, argmax"
    assert usual(1).layer == 0
    assert str(Choice(method="threshold", threshold=0.3)).endswith("written, threshold 0.3")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"layer": -1}, "layer -1"),
        ({"head": 1}, "which layer"),
        ({"threshold": 0.0}, "threshold 0"),
        ({"threshold": float("nan")}, "threshold nan"),
    ],
)
def test_numbers_out_of_range_are_told(inputs: dict, message: str):
    with pytest.raises(ConfigurationError, match=message):
        Choice(**inputs)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    document = toml.parse(
        "[data]\ntrain.tsv='a'\nvalid.tsv='b'\n[model]\nkind='transformer'", "x", []
    )
    return Run(tmp_path, document)


@pytest.mark.parametrize("choice", [Choice(1, 2, "read", True, "threshold", 0.15), Choice()])
def test_a_choice_is_found_again(run: Run, choice: Choice):
    assert choices.find(run) is None
    stored_choice = StoredChoice(choice, 'gold "one"\n.jsonl', 41, 47.41)
    path = choices.keep(run, stored_choice)
    assert path == run.folder / "alignment.toml"
    assert choices.find(run) == replace(stored_choice, gold="gold _one__.jsonl")
    (run.folder / "model.safetensors").write_bytes(b"others")
    read_again = choices.find(run)
    assert read_again is not None
    assert (read_again.choice, read_again.current) == (choice, False)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("layer = 1", "layer = true"),
        ("layer = 1", "layer = -1"),
        ('rows = "read"', 'rows = "columns"'),
        ('method = "argmax"', 'method = "magic"'),
        ("balanced = false", "balance = false"),
        ("[choice]", "[chosen]"),
        ("sentences = 41", "sentences = 'x'"),
        ("sentences = 41", "sentences = inf"),
        ("aer = 47.41", "aer = inf"),
        ("aer = 47.41", "aer = nan"),
        ('gold = "gold"', "gold = 5"),
        ("[choice]", "choice = [1]\n[other]"),
        ("[choice]", "choice = 1\n[other]"),
        ("threshold = 0.25", "threshold = 7.0"),
        ("aer", "\x00"),
    ],
)
def test_a_file_that_is_no_choice_is_told(run: Run, old: str, new: str):
    path = choices.keep(run, StoredChoice(Choice(1, None, "read"), "gold", 41, 47.41))
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ModelError, match=r"alignment\.toml"):
        choices.find(run)


def test_the_name_of_the_gold_is_one_line(run: Run):
    path = choices.keep(run, StoredChoice(Choice(), "gold", 41, 47.41))
    path.write_text(path.read_text().replace('"gold"', '"one\\ntwo"'), encoding="utf-8")
    stored = choices.find(run)
    assert stored is not None
    assert stored.gold == "one_two"
