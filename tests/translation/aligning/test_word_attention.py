"""From pieces to words, from rows of steps to rows of words."""

from __future__ import annotations

import pytest
import torch
from tests.translation.aligning.standing_in import Scripted, ahead, tokenizers

from regard.errors import ConfigurationError
from regard.translation.aligning.aligner import Aligner, sinkhorn, weights_of
from regard.translation.aligning.choice import Choice
from regard.translation.aligning.word_attention import word_attentions
from regard.translation.aligning.words import in_pieces, normalised_words
from regard.translation.text.tokenizer import Tokenizer

BOTH = tokenizers()


def test_every_piece_has_its_word():
    actual_pieces = in_pieces(BOTH.source, ["uno", "xyzzy", "azul"])
    pieces = BOTH.source.pieces(actual_pieces.ids)
    texts = ["", "", ""]
    for piece, owner in zip(pieces, actual_pieces.owners, strict=True):
        texts[owner] += piece.replace("▁", "")
    assert texts == ["uno", "xyzzy", "azul"]
    assert actual_pieces.unread == 0
    assert actual_pieces.shortened(1).unread == 2


def test_words_that_are_none_or_several_keep_their_numbers():
    pieces = in_pieces(BOTH.source, ["uno", "\x07", "dos tres", "ñ", "azul"])
    assert set(pieces.owners) == {0, 2, 3, 4}
    assert pieces.owners == sorted(pieces.owners)
    assert pieces.ids == BOTH.source.encode("uno dos tres ñ azul")
    assert in_pieces(BOTH.source, []).ids == []


def test_marks_that_stand_apart_are_read_as_they_were_learnt_and_stay_words():
    lines = [
        f"{a} {b}, {c}? l'{b}..." for a in ("uno", "dos") for b in ("eau", "mar") for c in "xyz"
    ]
    learnt_tokenizer = Tokenizer.train(lines * 4, vocabulary_size=330, character_coverage=1.0)
    words = ["uno", "mar", ",", "x", "?", "l'", "eau", "..."]
    pieces = in_pieces(learnt_tokenizer, words)
    assert pieces.ids == learnt_tokenizer.encode("uno mar, x? l'eau...")
    joined_count = [""] * len(words)
    for piece, owner in zip(learnt_tokenizer.pieces(pieces.ids), pieces.owners, strict=True):
        joined_count[owner] += piece.replace("▁", "")
    assert joined_count == words
    assert pieces.unread == 0
    # Words stay apart, however rare, and so does a mark that was learnt apart.
    assert in_pieces(learnt_tokenizer, ["mar", "eau"]).ids == learnt_tokenizer.encode("mar eau")
    french = Tokenizer.train(["uno mar ?"] * 9 + ["ça va ?"] * 9, vocabulary_size=300)
    assert in_pieces(french, ["mar", "?"]).ids == french.encode("mar ?")


def test_bytes_of_a_character_count_as_one():
    actual_pieces = in_pieces(BOTH.source, ["uno", "鯨", "!", "x"])
    pieces = BOTH.source.pieces(actual_pieces.ids)
    bytes_of = [
        owner for piece, owner in zip(pieces, actual_pieces.owners, strict=True) if "<0x" in piece
    ]
    assert actual_pieces.ids == BOTH.source.encode("uno 鯨! x")
    assert bytes_of == [1, 1, 1, 2]
    assert actual_pieces.owners[-1] == 3


def test_words_are_those_of_the_normalised_line():
    assert normalised_words("\ufeff uno\u00a0dos\u2028tres\n") == ["uno", "dos", "tres"]
    assert normalised_words(" ") == []


def test_pieces_add_up_over_source_words_and_average_over_target_words():
    torch.manual_seed(0)
    random_weights = torch.rand(2, 40, 40)

    def script(layer: int, rows: int, columns: int) -> torch.Tensor:
        return random_weights[:, :rows, :columns] * (layer + 1)

    source, target = ["uno", "xyzzy"], ["zz", "rojo", "q"]
    (attention,) = word_attentions(Scripted(script), BOTH, [(source, target)])
    ours, theirs = in_pieces(BOTH.source, source), in_pieces(BOTH.target, target)
    for word in range(3):
        rows = [place for place, owner in enumerate(theirs.owners) if owner == word]
        for read in range(2):
            columns = [place for place, owner in enumerate(ours.owners) if owner == read]
            for layer in (0, 1):
                block = random_weights[:, rows][:, :, columns] * (layer + 1)
                expected = block.sum(-1).mean(-1)
                torch.testing.assert_close(attention.written[layer][:, word, read], expected)
                later = random_weights[:, [row + 1 for row in rows]][:, :, columns] * (layer + 1)
                torch.testing.assert_close(
                    attention.read[layer][:, word, read], later.sum(-1).mean(-1)
                )


def test_company_in_a_batch_changes_nothing():
    pairs = [(["uno", "dos"], ["rojo"]), (["tres"], ["azul", "x", "y"]), ([], ["x"])]
    together = word_attentions(Scripted(ahead), BOTH, pairs)
    for pair, attention in zip(pairs, together, strict=True):
        (alone,) = word_attentions(Scripted(ahead), BOTH, [pair])
        assert alone.written.keys() == attention.written.keys()
        for layer, weights in alone.written.items():
            torch.testing.assert_close(weights, attention.written[layer])


def test_only_layers_asked_for_are_read_and_others_told():
    (attention,) = word_attentions(Scripted(ahead), BOTH, [(["uno"], ["dos"])], [1])
    assert list(attention.written) == list(attention.read) == [1]
    with pytest.raises(ConfigurationError, match="layer 2: the decoder has layers 0 to 1"):
        word_attentions(Scripted(ahead), BOTH, [(["uno"], ["dos"])], [2])
    with pytest.raises(ConfigurationError, match="no attention"):
        word_attentions(Scripted(ahead, layers=0), BOTH, [(["uno"], ["dos"])])


def test_layer_head_and_rows_are_the_ones_chosen():
    words = ["uno", "dos", "tres"]
    (attention,) = word_attentions(Scripted(ahead), BOTH, [(words, words)])
    eye = torch.eye(3)
    torch.testing.assert_close(weights_of(attention, Choice(0, 0)), 0.9 * eye)
    one_on = weights_of(attention, Choice(0, 0, "read"))
    assert one_on[0].argmax() == 1  # having read the first word it looks at the second
    torch.testing.assert_close(
        weights_of(attention, Choice(0)), (attention.written[0][0] + attention.written[0][1]) / 2
    )
    all_weights = weights_of(attention, Choice())
    torch.testing.assert_close(
        all_weights, (attention.written[0].mean(0) + attention.written[1].mean(0)) / 2
    )
    with pytest.raises(ConfigurationError, match="head 2: the layer has heads 0 to 1"):
        weights_of(attention, Choice(0, 2))


def test_links_and_words_out_of_reach():
    model = Scripted(ahead)
    model.longest = 3  # two pieces and the end
    words = ["uno", "dos", "tres"]
    aligned, empty = Aligner(model, BOTH, Choice(0, 0)).align([(words, words), (words, [])])
    reached = set(in_pieces(BOTH.source, words).shortened(2).owners)
    assert aligned.links == {(word, word) for word in reached}
    assert aligned.unread == 2 * (3 - len(reached)) > 0
    assert empty.links == set()
    assert empty.weights.shape == (0, 3)


def test_another_head_links_other_words():
    words = ["uno", "dos", "tres"]
    (aligned,) = Aligner(Scripted(ahead), BOTH, Choice(1, 0)).align([(words, words)])
    assert aligned.links == {(0, 0), (0, 1), (0, 2)}


def test_balanced_rows_sum_to_one_and_columns_share_alike():
    torch.manual_seed(1)
    weights = sinkhorn(torch.rand(4, 5, 3))
    torch.testing.assert_close(weights.sum(-1), torch.ones(4, 5))
    torch.testing.assert_close(weights.sum(-2), torch.full((4, 3), 5 / 3), atol=1e-3, rtol=0)
    # The full stop that everyone looks at loses the word that looks at another one most.
    greedy = torch.tensor([[0.3, 0.7], [0.0, 1.0]])
    assert sinkhorn(greedy).argmax(-1).tolist() == [0, 1]
    assert torch.isfinite(sinkhorn(torch.zeros(2, 2))).all()
