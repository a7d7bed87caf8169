"""Lines of several sentences: nothing is lost, and positions are those of the line."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.translation import lines
from regard.translation.results import Candidate, Translation, Word
from regard.translation.text.sentences import Sentence
from regard.translation.translator import Translator

SPANISH = ["El gato negro duerme.", "¿Dónde está el gato?", "¡Hace frío!", "Me gusta mucho."]


@pytest.fixture(scope="module")
def spanish() -> Translator:
    return Translator.open("es-en")


def test_a_line_of_one_sentence_is_translated_as_before(spanish):
    texts = [*SPANISH, "", " ", ".", "  El Dr. Perry vive a 3.5 km. ", "🙂"]
    found = spanish.translate(texts, looks=True, alignments=True)
    whole = spanish.translate(texts, looks=True, alignments=True, whole_lines=True)
    assert [replace(one, looks={}) for one in found] == [replace(one, looks={}) for one in whole]
    assert not any(one.sentences for one in found)


def test_the_sentences_of_a_line_are_translated_one_by_one(spanish):
    alone = spanish.translate(SPANISH, alignments=True)
    (line,) = spanish.translate(["  ".join(SPANISH)], alignments=True)
    assert line.text == "  ".join(one.text for one in alone)
    assert [one.text for one in line.sentences] == [one.text for one in alone]
    assert [word.text for word in line.words] == line.text.split()
    assert line.score == pytest.approx(sum(one.score for one in alone), abs=1e-4)
    assert line.source_pieces == [piece for one in alone for piece in one.source_pieces]
    assert len(line.source_ids) == len(line.source_pieces) - 1
    assert len(line.probabilities) == len(line.target_pieces) == len(line.target_ids) + 1
    sources, targets = line.source.split(), line.text.split()
    linked = [(sources[a], targets[b]) for a, b in line.alignment]
    assert linked == [
        (one.source.split()[a], one.text.split()[b]) for one in alone for a, b in one.alignment
    ]


def test_looks_are_those_of_the_line_and_no_sentence_reads_another(spanish):
    (line,) = spanish.translate([" ".join(SPANISH[:2])], looks=True)
    one, two = spanish.translate(SPANISH[:2], looks=True)
    for name, look in line.looks.items():
        first, second = one.looks[name].weights()[0], two.looks[name].weights()[0]
        expected = [torch.block_diag(a, b) for a, b in zip(first, second, strict=True)]
        torch.testing.assert_close(look.weights()[0], torch.stack(expected), atol=1e-5, rtol=1e-4)
        queries, keys = line.labels(name)
        assert (len(queries), len(keys)) == tuple(look.shape[-2:])


def test_the_best_lines_are_the_best_sums_of_their_sentences(spanish):
    search = spanish.search.changed(nbest=3)
    alone = spanish.translate(SPANISH[:2], search=search)
    (line,) = spanish.translate([" ".join(SPANISH[:2])], search=search)
    sums = sorted(
        (a.score + b.score for a in alone[0].alternatives for b in alone[1].alternatives),
        reverse=True,
    )
    assert [one.score for one in line.alternatives] == pytest.approx(sums[:3], abs=1e-4)
    assert line.alternatives[0].text == line.text


def test_draws_of_a_line_are_as_many_as_were_wanted(spanish):
    search = spanish.search.changed(sampling=True, nbest=4)
    (line,) = spanish.translate([" ".join(SPANISH[:2])], search=search, seed=1)
    each = [[one.text for one in sentence.alternatives] for sentence in line.sentences]
    both = zip(*each, strict=True)
    assert [one.text for one in line.alternatives] == [f"{a} {b}" for a, b in both]


def test_a_prefix_begins_the_line(spanish):
    text = " ".join(SPANISH[2:])
    for prefix in ("The weather", "The weather is cold. It"):
        assert spanish.translate([text], prefix=prefix)[0].text.startswith(prefix)
    plain, begun = spanish.translate([text, text], prefix=["", "The weather"])
    assert plain.text == spanish.translate([text])[0].text != begun.text


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b c", "", "é. f"]), st.sampled_from([" ", "", "  "])),
        min_size=2,
        max_size=4,
    )
)
def test_words_and_links_keep_their_places(given):
    """Each sentence is copied word by word: so is the line, with or without spaces between."""
    parts = [Sentence("", text, after) for text, after in given]
    parts[-1] = parts[-1]._replace(after="")
    found = []
    for part in parts:
        words = part.text.split()
        links = [(place, place) for place in range(len(words))]
        own = Candidate(part.text, 0.0, 0.0, [Word(word, 0.5) for word in words], links)
        found.append(Translation(part.text, **vars(own), alternatives=[own]))
    whole = "".join(part.text + part.after for part in parts)
    (line,) = lines.join([whole], [parts], found)
    assert line.text == whole
    if all(part.text for part in parts):
        assert [word.text for word in line.words] == whole.split()
        assert line.alignment == [(place, place) for place in range(len(whole.split()))]


def test_generated_data_has_one_sentence_a_line(spanish, monkeypatch):
    monkeypatch.setattr(Translator, "sentence_language", None)
    text = " ".join(SPANISH)
    assert spanish.translate([text]) == spanish.translate([text], whole_lines=True)
