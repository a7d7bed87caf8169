"""Text with tags, as a translator reads it: each tag of a format is a short one, and is put back in its place."""

import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

_TAG = re.compile(r"<(/?)([gx])(\d+)/?>")
_BEFORE, _BEHIND = re.compile(r" (<x\d+/>)"), re.compile(r"(<x\d+/>) ")


Role = Literal["text", "opening", "closing", "alone"]


class Piece(NamedTuple):
    """A stretch of a text.

    Attributes:
        text: what a reader sees; of a code, what the file has, unless it is white space.
        role: a code is the opening or the closing half of a pair, or stands alone.
    """

    text: str
    role: Role = "text"


@dataclass(frozen=True)
class Markup:
    """A text with codes: tags, placeholders, line breaks.

    >>> markup = Markup.of([Piece("A "), Piece("<b>", "opening"), Piece("cat"), Piece("</b>", "closing")])
    >>> markup.text
    'A <g1>cat</g1>'
    >>> markup.restored("Un <g1>gato</g1>", str)
    'Un <b>gato</b>'

    Attributes:
        text: with `<g1>`, `</g1>` for a pair of codes and `<x1/>` for one alone.
        codes: what each of these tags stands for. Text that looks like a tag is a code with the role "text". A code
            that is white space has no other space beside it.
    """

    text: str
    codes: dict[str, Piece]

    @classmethod
    def of(cls, pieces: Sequence[Piece]) -> "Markup":
        """The text of these pieces; halves without the other one stand alone."""
        pieces = list(_divided(pieces))
        tags = _tags(pieces)
        text = "".join(
            f" {tags[place]} "
            if place in tags and piece.text.isspace()
            else tags.get(place, piece.text)
            for place, piece in enumerate(pieces)
        )
        return cls(text, {tag: pieces[place] for place, tag in tags.items()})

    def restored(self, translation: str, escape: Callable[[str], str]) -> str:
        """The translation with the codes of the file.

        Args:
            translation: of `text`.
            escape: writes plain text, and codes that are white space, as the format does.
        """
        return self.written(self.complete(translation), escape)

    def complete(self, translation: str) -> str:
        """The translation with each of the tags once.

        Where it lacks tags, has them twice or in another nesting, all tags follow its text: no code is lost.
        """
        tags = [match[0] for match in _TAG.finditer(translation) if match[0] in self.codes]
        if sorted(tags) == sorted(self.codes) and _is_nested(tags):
            for pattern in (_BEFORE, _BEHIND):
                translation = pattern.sub(self._without_space, translation)
            return translation
        return " ".join(_TAG.sub(" ", translation).split()) + "".join(self.codes)

    def written(self, translation: str, escape: Callable[[str], str]) -> str:
        """A translation, or a stretch of it, with the codes of the file in the places of its tags."""
        pieces, end = list[str](), 0
        for match in _TAG.finditer(translation):
            if match[0] in self.codes:
                pieces += escape(translation[end : match.start()]), self._code(match[0], escape)
                end = match.end()
        return "".join(pieces) + escape(translation[end:])

    def _without_space(self, match: re.Match[str]) -> str:
        """A tag and the space at its side, which is left out where the tag is white space itself."""
        code = self.codes.get(match[1])
        return match[1] if code is not None and code.text.isspace() else match[0]

    def _code(self, tag: str, escape: Callable[[str], str]) -> str:
        text, role = self.codes[tag]
        return escape(text) if role == "text" or text.isspace() else text

    @property
    def has_words(self) -> bool:
        """Whether there is anything to translate."""
        return any(map(str.isalpha, _TAG.sub("", self.text)))


def _divided(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """The pieces, with text that looks like a tag by itself."""
    for piece in pieces:
        if piece.role == "text":
            end = 0
            for match in _TAG.finditer(piece.text):
                yield from (Piece(piece.text[end : match.start()]), Piece(match[0]))
                end = match.end()
            piece = Piece(piece.text[end:])
        yield piece


def _halves(pieces: Sequence[Piece]) -> dict[int, int]:
    """For the place of each half of a pair the place of the other one."""
    halves, openings = dict[int, int](), list[int]()
    for place, piece in enumerate(pieces):
        if piece.role == "opening":
            openings.append(place)
        elif piece.role == "closing" and openings:
            opening = openings.pop()
            halves[opening], halves[place] = place, opening
    return halves


def _tags(pieces: Sequence[Piece]) -> dict[int, str]:
    """The tag in the place of each code; text that looks like a tag is a code as well."""
    halves = _halves(pieces)

    def tag(place: int) -> str:
        if place not in halves:
            return f"<x{place}/>"
        return f"<g{place}>" if place < halves[place] else f"</g{halves[place]}>"

    return {
        place: tag(place)
        for place, (text, role) in enumerate(pieces)
        if role != "text" or _TAG.fullmatch(text)
    }


def _is_nested(tags: Sequence[str]) -> bool:
    openings = list[str]()
    for tag in tags:
        if tag.startswith("</"):
            if not openings or openings.pop() != tag.replace("/", ""):
                return False
        elif tag.startswith("<g"):
            openings.append(tag)
    return not openings


def tidied(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces of text in one where they are neighbours, each run of white space as one space."""
    return [
        Piece(" ".join(f".{text}.".split())[1:-1]) if role == "text" else Piece(text, role)
        for text, role in _merged(pieces)
    ]


def decoded(pieces: Iterable[Piece]) -> list[Piece]:
    """The pieces, those of text with their references of HTML decoded."""
    return [
        Piece(html.unescape(text)) if role == "text" else Piece(text, role) for text, role in pieces
    ]


def spaces_apart(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces with each white space that is no single space between words as a code, which stays as it is."""
    merged, answer = _merged(pieces), list[Piece]()
    for place, piece in enumerate(merged):
        if piece.role != "text":
            answer.append(piece)
            continue
        edges = r"|\A\s" * (place == 0) + r"|\s\Z" * (place == len(merged) - 1)
        for number, text in enumerate(re.split(rf"(\s{{2,}}|[^\S ]{edges})", piece.text)):
            if text:
                answer.append(Piece(text, "alone" if number % 2 else "text"))
    return answer


def _merged(pieces: Sequence[Piece]) -> list[Piece]:
    neighbours = list[Piece]()
    for piece in pieces:
        if neighbours and piece.role == neighbours[-1].role == "text":
            neighbours[-1] = Piece(neighbours[-1].text + piece.text)
        else:
            neighbours.append(piece)
    return neighbours


def bare(pieces: Sequence[Piece]) -> slice:
    """Which of the pieces are left without white space, codes alone and pairs of codes around the whole."""
    start, stop = 0, len(pieces)
    halves = _halves(pieces)

    def is_left_out(place: int) -> bool:
        text, role = pieces[place]
        # A pair around nothing, or a code alone.
        is_empty = abs(halves.get(place, place) - place) < 2
        return not text.strip() if role == "text" else is_empty

    while start < stop:
        if is_left_out(start):
            start += 1
        elif is_left_out(stop - 1):
            stop -= 1
        elif pieces[start].role == "opening" and halves[start] == stop - 1:
            start, stop = start + 1, stop - 1
        else:
            break
    return slice(start, stop)
