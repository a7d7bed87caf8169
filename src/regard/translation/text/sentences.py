"""Splitting of text into sentences, without losing a character."""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from regard.errors import DataError

# Lines without an empty line between them form one paragraph of up to about so many characters.
_LONGEST_PARAGRAPH = 2**16
_SURROGATE = re.compile("[\ud800-\udfff]")
_FOREIGN_SPACE = re.compile(r"[^\S\x00-\x7f]")
# The mark of an item of a list or of a heading, with the white space around it.
_MARK = re.compile(r"\s*(?:[-*+•]|#{1,6}|\d{1,3}[.)])[ \t]+(?=\S)")
# The start of each line that begins with a mark.
_ITEMS = re.compile(r"(?m)^(?=[ \t]*(?:[-*+•]|#{1,6}|\d{1,3}[.)])[ \t]+\S)")
# Marks that end a sentence or begin one without a space between.
_CLOSING, _OPENING = "!?…。！？।", "¿¡"
_NUMBERED = re.compile(r"[\W_]*\d+[.)]")
_LETTER = re.compile(r"[^\W_]")
# A capital that stands for a name ("J.", "U.S."), a title before a name, a word before a number ("Jan. 3").
_INITIAL = re.compile(r"(?:^|[^\w.])(?:[^\W\d_]\.)*[^\W\d_a-z]\.$")
_TITLE = re.compile(
    r"(?:^|\W)(?:Cnel|Dña|Dr|Dres|Frl|Hrn|Ilmo|Me|Mgr|Mlles?|Mmes?|Mons|Ms|Pbro|Ph\.D|Profa|Pte|Rvdo|Sgto|Sras|Ste?|Tte)\.$"
)
_SHORT = re.compile(r"(?:^|\W)[^\W\d_]{1,4}\.$")
# Words that sentencex takes for abbreviations, at the end of a sentence.
_WORDS = {
    "en": re.compile(r"\b(?:OK|art|ill|me|[Nn]o|sec)\.\s+(?=[\"'“(]*[A-Z])"),
    "es": re.compile(
        r"\b(?:auto|bien|contra|extra|mar|mono|[Nn]o|sobre)\.\s+(?=[\"'«“¿¡(—]*[^\W\d_a-zà-ÿ])"
    ),
    "fr": re.compile(r"\b(?:art|sec|vol)\.\s+(?=[\"'«“(—]*[^\W\d_a-zà-ÿ])"),
}


class Sentence(NamedTuple):
    """A sentence and the white space around it, which is not translated."""

    before: str
    text: str
    after: str


def split(text: str, language: str) -> list[Sentence]:
    """The sentences of a text with the white space around them; joined, they give the text again.

    Sentencex finds them by its rules and abbreviations for the language ("es"), or the English ones; `_continues` joins
    those that it cuts too early. An empty line ends a sentence; a single line break does so only before an item of a
    list. The mark of an item ("-", "*", "1.") is not part of its sentence. A lone surrogate becomes U+FFFD.
    """
    sentences: list[Sentence] = []
    for block in _ITEMS.split(_SURROGATE.sub("\ufffd", text)):
        mark = _MARK.match(block)
        start = mark.end() if mark else 0
        block_sentences = _sentences(language, block[start:])
        if mark:
            block_sentences[0] = block_sentences[0]._replace(
                before=block[:start] + block_sentences[0].before
            )
        sentences += block_sentences
    return sentences


def of_line(line: str, language: str | None) -> list[Sentence]:
    """The sentences of a line with the white space between them, and none around them.

    A line of one sentence is returned as it is; without a language every line is one. Marks of lists are
    part of their sentence. Control characters and line breaks between sentences become spaces.

    >>> [part.text for part in of_line("El Dr. Perry vive aquí.  ¿Lo conoces?", "es")]
    ['El Dr. Perry vive aquí.', '¿Lo conoces?']
    """
    if language is None:
        return [Sentence("", line, "")]
    sentences = _sentences(language, _SURROGATE.sub("\ufffd", line))
    if len(sentences) < 2:
        return [Sentence("", line, "")]
    between = [re.sub(r"[^\S \xa0\u3000]", " ", sentence.after) for sentence in sentences[:-1]]
    return [
        Sentence("", sentence.text, after)
        for sentence, after in zip(sentences, [*between, ""], strict=True)
    ]


def paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Lines joined into paragraphs of bounded length, with their line breaks and the empty lines after them.

    >>> list(paragraphs(["One", "two.", "", "Three."]))
    ['One\\ntwo.\\n\\n', 'Three.\\n']
    """
    paragraph: list[str] = []
    size, ended = 0, False
    try:
        for line in lines:
            empty = not line.strip()
            if paragraph and ((ended and not empty) or size >= _LONGEST_PARAGRAPH):
                yield "".join(paragraph)
                paragraph, size = [], 0
            paragraph.append(line + "\n")
            size, ended = size + len(line) + 1, empty
    except DataError:  # the lines before the damaged one are still yielded
        if paragraph:
            yield "".join(paragraph)
        raise
    if paragraph:
        yield "".join(paragraph)


def join(sentences: Iterable[Sentence], translations: Iterable[str]) -> str:
    """Translations in the places of the sentences that they translate.

    >>> join([Sentence("", "Sí.", "  "), Sentence("", "No.", "\\n")], ["Yes.", "No."])
    'Yes.  No.\\n'
    """
    pairs = zip(sentences, translations, strict=True)
    return "".join(
        sentence.before + translation + sentence.after for sentence, translation in pairs
    )


def _sentences(language: str, text: str) -> list[Sentence]:
    """What sentencex finds; it is given plain spaces only, because it may panic at other white space."""
    from sentencex import segment

    pieces: list[str] = []
    place = 0
    for segment_text in segment(language, _FOREIGN_SPACE.sub(" ", text)) or [""]:
        piece = text[place : place + len(segment_text)]
        place += len(segment_text)
        if pieces and "\n\n" not in pieces[-1] and _continues(pieces[-1], piece):
            pieces[-1] += piece
        else:
            pieces.append(piece)
    if language in _WORDS:
        pieces = [
            divided_piece for uncut in pieces for divided_piece in _divided(uncut, _WORDS[language])
        ]
    return list(map(_bare, pieces))


def _continues(left_text: str, right_text: str) -> bool:
    """Whether a sentence continues where sentencex ended it."""
    head, tail = left_text.rstrip(), right_text.lstrip()
    left_letter, right_letter = _LETTER.search(head), _LETTER.search(tail)
    if left_letter is None or right_letter is None:  # no word
        return True
    spaced = head != left_text or head[-1] in _CLOSING or tail[0] in _OPENING
    return (
        not spaced
        or (left_letter[0].isupper() and right_letter[0].islower())
        or _NUMBERED.fullmatch(head) is not None
        or _INITIAL.search(head) is not None
        or _TITLE.search(head) is not None
        or (right_letter[0].isdigit() and _SHORT.search(head) is not None)
    )


def _divided(text: str, pattern: re.Pattern[str]) -> list[str]:
    ends = [0, *(match.end() for match in pattern.finditer(text)), len(text)]
    return [text[start:end] for start, end in pairwise(ends)]


def _bare(piece: str) -> Sentence:
    bare = piece.strip()
    start = piece.find(bare)
    return Sentence(piece[:start], bare, piece[start + len(bare) :])
