"""Replacements: the words of the text before are followed into the text after."""

from hypothesis import given
from hypothesis import strategies as st

from regard.translation.text.replacements import Replacement, moved_words, replaced


@given(
    st.lists(st.tuples(st.sampled_from(["a", "bb", ""]), st.sampled_from(["x", "y z", "", None])))
)
def test_replaced_words_are_where_their_replacements_are(words):
    words = [pair for pair in words if pair[0]]
    text, changes, place = " ".join(word for word, _ in words), [], 0
    for word, new in words:
        if new is not None:
            changes.append(Replacement(place, place + len(word), new))
        place += len(word) + 1
    news = replaced(text, changes).split()
    moved = [[news[place] for place in places] for places in moved_words(text, changes)]
    assert moved == [(word if new is None else new).split() for word, new in words]


def test_insertions_move_words_and_join_them():
    text, changes = "the cat", [Replacement(0, 0, "<b>"), Replacement(3, 3, " big")]
    assert replaced(text, changes) == "<b>the big cat"
    assert moved_words(text, changes) == [range(1), range(2, 3)]
    assert moved_words("a b", [Replacement(1, 2, "")]) == [range(1), range(1)]
