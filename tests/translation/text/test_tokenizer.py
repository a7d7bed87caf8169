"""Tokenizers: text comes back as it went in, ids are words and never controls."""

from __future__ import annotations

import io
import re

import pytest
import sentencepiece
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.errors import ConfigurationError, DataError, ModelError
from regard.translation.text.normalisation import normalise
from regard.translation.text.tokenizer import EOS, Tokenizer, word_spans

fixed = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
literal = st.sampled_from(
    [
        "<s>",
        "</s>",
        "<pad>",
        "<unk>",
        "<0x41>",
        "\u2581",
        "@@",
        "👩\u200d👧",
        "\U000e0041",
        "katzen",
        "ñ",
        " ",
    ]
)


@fixed
@given(text=st.lists(st.one_of(literal, st.characters())).map("".join))
def test_text_comes_back_and_no_id_is_a_control(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == normalise(text)
    assert all(EOS < i < len(tokenizer) for i in ids)


def test_every_scalar_of_unicode_comes_back(tokenizer):
    """Some of every block; unassigned ones too."""
    for start in range(0, 0x110000, 0x4321):
        text = "".join(map(chr, range(start, min(start + 150, 0x110000))))
        assert tokenizer.decode(tokenizer.encode(text)) == normalise(text), hex(start)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_control_words_in_the_training_text_stay_text(lines, kind):
    spoilt = [*lines, *["<s> </s> <pad> <unk> <0x41> \u2581 @@"] * 50]
    tokenizer = Tokenizer.train(map(normalise, spoilt), vocabulary_size=350, kind=kind)
    for text in ("<s>", "</s> x", "<pad>", "a <unk>", "<0x41>"):
        ids = tokenizer.encode(text)
        assert min(ids) > EOS
        assert tokenizer.decode(ids) == text


@pytest.fixture(params=["unigram", "bpe"], scope="module")
def tagged(request, lines) -> Tokenizer:
    spoilt = [*lines, *["<2fr> <bt> <2fr><bt> 2fr"] * 200]
    return Tokenizer.train(
        spoilt, vocabulary_size=350, kind=request.param, tags=["2en", "2fr", "bt"]
    )


def test_tags_are_the_first_ids_and_come_before_the_text(tagged, lines):
    assert dict(tagged.tags) == {"2en": 4, "2fr": 5, "bt": 6}
    french = tagged.tagged(["2fr", "bt"])
    assert french.encode(lines[0]) == [5, 6, *tagged.encode(lines[0])]
    assert french.pieces([5, 6]) == ["<2fr>", "<bt>"]
    assert french.decode(french.encode(lines[0])) == lines[0]
    assert french.encode(" ") == []
    assert tagged.prefix == ()
    assert dict(Tokenizer(tagged.model).tags) == dict(tagged.tags)


@fixed
@given(
    text=st.lists(st.one_of(st.sampled_from(["<2fr>", "<bt>", "<s>", " "]), st.characters())).map(
        "".join
    )
)
def test_no_text_becomes_a_tag(tagged, text):
    ids = tagged.encode(text)
    assert all(i > tagged.tags["bt"] for i in ids)
    assert tagged.decode(ids) == normalise(text)


def test_tags_that_are_not_there_are_told(tagged, unigram):
    with pytest.raises(ConfigurationError, match=r"tag 2de: .* tags are 2en, 2fr, bt"):
        tagged.tagged(["2fr", "2de"])
    with pytest.raises(ConfigurationError, match=r"tag bt: .* tags are none"):
        unigram.tagged(["bt"])


def test_the_same_text_gives_the_same_bytes(lines, tokenizer):
    kind = "bpe" if sentencepiece_kind(tokenizer) == 2 else "unigram"
    second_tokenizer = Tokenizer.train(lines, vocabulary_size=330, kind=kind)
    assert second_tokenizer.model == tokenizer.model


def sentencepiece_kind(tokenizer: Tokenizer) -> int:
    from regard.translation.text import vocabulary

    trainer = dict(vocabulary.fields(tokenizer.model))[2]
    return dict(vocabulary.fields(trainer)).get(3, 1)


@pytest.mark.parametrize("seed", [0, 2**31, 2**32, 2**63 - 1])
def test_any_seed_of_a_configuration_will_do(lines, seed):
    assert len(Tokenizer.train(lines[:50], vocabulary_size=300, seed=seed)) > 260


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_small_text_gives_a_small_vocabulary(lines, kind):
    assert len(Tokenizer.train(lines, vocabulary_size=20_000, kind=kind)) < 3000


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("tags", [[], ["2fr", "bt"]])
@pytest.mark.parametrize("coverage", ["auto", 0.99])
def test_the_least_vocabulary_that_is_named_is_the_least_that_can_be_learnt(
    lines, kind, tags, coverage
):
    options = {"kind": kind, "tags": tags, "character_coverage": coverage}
    with pytest.raises(ConfigurationError, match=r"tokenizer\.vocabulary_size = 100: ") as raised:
        Tokenizer.train(lines, vocabulary_size=100, **options)
    (smallest,) = map(int, re.findall(r"at least (\d+) pieces", str(raised.value)))
    with pytest.raises(ConfigurationError, match=f"at least {smallest} pieces"):
        Tokenizer.train(lines, vocabulary_size=smallest - 1, **options)
    # Unigram needs no piece of several characters, BPE learns one more than it must.
    assert len(Tokenizer.train(lines, vocabulary_size=smallest + 1, **options)) >= smallest


def test_a_text_without_a_space_needs_a_piece_for_it():
    with pytest.raises(ConfigurationError, match="at least 272 pieces"):
        Tokenizer.train(["aaa"], vocabulary_size=271)
    assert len(Tokenizer.train(["aaa"], vocabulary_size=272)) == 272


@pytest.mark.parametrize("lines", [[], ["", ""], ["a" * 20_000]], ids=["none", "empty", "long"])
def test_a_text_without_usable_lines_is_refused(lines):
    with pytest.raises(
        DataError, match="every line of the text is empty or longer than 16,384 bytes"
    ):
        Tokenizer.train(lines, vocabulary_size=300)


RARE = ["Élise lit « À Kiev », È."]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_every_letter_of_an_alphabet_is_a_piece_however_rare(lines, kind):
    text = [*lines * 20, *RARE]
    learnt_tokenizer = Tokenizer.train(text, vocabulary_size=400, kind=kind)
    assert learnt_tokenizer.left_out(text) == []
    assert not any(
        p.startswith("<0x") for p in learnt_tokenizer.pieces(learnt_tokenizer.encode("ÉÈÀK«"))
    )
    fewer = Tokenizer.train(text, vocabulary_size=400, kind=kind, character_coverage=0.99)
    assert {"É", "«"} <= set(fewer.left_out(text))
    assert fewer.decode(fewer.encode(RARE[0])) == RARE[0]


def test_a_script_of_thousands_leaves_its_rarest_characters_to_bytes():
    frequent = "".join(map(chr, range(0x4E00, 0x4E00 + 1000)))
    rare = "".join(map(chr, range(0x6000, 0x6002)))
    text = [frequent[i : i + 50] for i in range(0, 1000, 50)] * 20 + [rare]
    learnt_tokenizer = Tokenizer.train(text, vocabulary_size=2000)
    assert set(rare) <= set(learnt_tokenizer.left_out(text))


def test_pieces_and_decoding_leave_out_what_is_special(unigram):
    ids = unigram.encode("katzen")
    assert unigram.pieces([*ids, EOS])[-1] == "</s>"
    assert unigram.pieces(ids)[0].startswith("\u2581")
    assert unigram.decode([2, 0, *ids, 1, 3, 10**9, -1]) == "katzen"


def test_bytes_that_are_no_text_decode_to_valid_text(unigram):
    all_bytes = unigram.decode(range(4, 260))
    assert all_bytes.encode("utf-8").decode("utf-8") == normalise(all_bytes)


def test_the_words_of_a_sentence_are_cut_one_by_one(unigram, lines):
    for line in lines[:50]:
        assert unigram.encode(line) == [i for word in line.split() for i in unigram.encode(word)]


@fixed
@given(text=st.lists(st.one_of(literal, st.characters())).map("".join), data=st.data())
def test_words_have_the_text_of_their_pieces(tokenizer, text, data):
    ids = tokenizer.encode(text)
    for id in data.draw(st.lists(st.integers(0, 300))):  # bytes and special pieces among them
        ids.insert(data.draw(st.integers(0, len(ids))), id)
    spans = word_spans(tokenizer.pieces(ids))
    texts = {span: tokenizer.decode(ids[slice(*span)]) for span in spans}
    assert tokenizer.words(ids) == {span: text for span, text in texts.items() if text}


def test_the_best_segmentation_comes_first_and_all_spell_the_word(unigram):
    segmentations = unigram.segmentations("verkatzenung", 16)
    assert segmentations[0][0] == unigram.encode("verkatzenung")
    assert [score for _, score in segmentations] == sorted(
        (score for _, score in segmentations), reverse=True
    )
    assert len({tuple(ids) for ids, _ in segmentations}) == len(segmentations) > 3
    assert all(unigram.decode(ids) == "verkatzenung" for ids, _ in segmentations)


@pytest.mark.parametrize("word", ["katze", "\u0301"])
def test_a_word_of_200_kilobytes_is_encoded(tokenizer, word):
    """Its time grows in proportion: with its square, this would not come back."""
    text = word * (200_000 // len(word.encode()))
    assert tokenizer.decode(tokenizer.encode(text)) == normalise(text)


def test_a_file_is_opened_or_refused_by_name(tmp_path, unigram):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(unigram.model)
    assert Tokenizer.open(path).encode("katze") == unigram.encode("katze")
    path.write_bytes(b"garbage")
    with pytest.raises(ModelError, match=r"tokenizer\.model: not a usable sentencepiece model"):
        Tokenizer.open(path)
    for missing in (tmp_path / "none.model", tmp_path):
        with pytest.raises(ModelError, match="cannot be read"):
            Tokenizer.open(missing)
    with path.open("wb") as sparse:
        sparse.truncate(2**27)
    with pytest.raises(ModelError, match="larger than"):
        Tokenizer.open(path)


def test_a_model_with_other_special_ids_is_refused(lines):
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=stream,
        vocab_size=330,
        hard_vocab_limit=False,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    with pytest.raises(ModelError, match="must be ids 0, 1, 2, 3"):
        Tokenizer(stream.getvalue())
