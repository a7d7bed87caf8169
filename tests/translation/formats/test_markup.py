"""Codes of a text are short tags for a translator, and come back whatever it does."""

from hypothesis import given
from hypothesis import strategies as st

from regard.translation.formats.markup import Markup, Piece, bare, tidied

PIECES = st.lists(
    st.one_of(
        st.builds(Piece, st.text("ab <>g0/x1", max_size=5)),
        st.builds(Piece, st.sampled_from(["[", "]", "{}"]), st.sampled_from(["opening", "closing", "alone"])),
    ),
    max_size=8,
)  # fmt: skip


@given(PIECES)
def test_the_text_of_a_markup_restores_the_pieces(pieces):
    markup = Markup.of(pieces)
    assert markup.restored(markup.text, str) == "".join(piece.text for piece in pieces)


@given(PIECES, st.text("abg0/x12<>", max_size=20))
def test_no_code_is_lost_and_none_is_twice(pieces, translation):
    markup = Markup.of(pieces)
    written = markup.restored(translation, lambda text: "")
    codes = [piece.text for piece in markup.codes.values() if piece.role != "text"]
    assert sorted(written) == sorted("".join(codes))


@given(PIECES)
def test_what_is_left_bare_has_the_words(pieces):
    inside = bare(pieces)
    outside = [*pieces[: inside.start], *pieces[inside.stop :]]
    assert not any(piece.text.strip() for piece in outside if piece.role == "text")


def test_white_space_is_one_space():
    pieces = [Piece("a \n"), Piece(" b"), Piece("  ", "alone"), Piece("\t")]
    assert tidied(pieces) == [Piece("a b"), Piece("  ", "alone"), Piece(" ")]


def test_halves_in_another_nesting_follow_the_text():
    markup = Markup.of([Piece("<b>", "opening"), Piece("a"), Piece("</b>", "closing")])
    assert markup.restored("</g0>x<g0>", str) == "x<b></b>"


def test_text_that_looks_like_a_tag_is_escaped_as_text():
    markup = Markup.of([Piece("use <g1> in <b>"), Piece("|", "alone")])
    assert markup.text == "use <x1/> in <b><x3/>"
    for translation in (markup.text, "lost"):
        assert "<" not in markup.restored(translation, lambda text: text.replace("<", "&lt;"))
