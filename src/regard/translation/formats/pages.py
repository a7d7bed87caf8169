"""HTML: the text between tags is translated, all else is kept to the character.

Python's html.parser finds the tags, comments and scripts by their places in the text. It opens nothing else.
"""

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import pairwise

from regard.translation.formats.document import Document, Replacement, refuse

# Elements whose content is no prose, or is shown as it is.
_KEPT = set("code kbd math pre samp script style svg template textarea var".split())
# html.parser takes the square of the number of constructs that never end.
_UNENDED = 100
_ENDS = {"<": ">", "<!--": "-->", "<![": "]"}


@dataclass(frozen=True)
class Run:
    """The text between two tags, without the white space around it."""

    start: int
    stop: int
    source: str

    @property
    def texts(self) -> Sequence[str]:
        return [self.source]

    def replacements(self, translations: Sequence[str]) -> Iterator[Replacement]:
        yield Replacement(self.start, self.stop, html.escape(translations[0], quote=False))


class _Tags(HTMLParser):
    """Notes where each stretch of text begins: text, references and nothing else are no tags."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self._lines = [0]
        while newline := text.find("\n", self._lines[-1]) + 1:
            self._lines.append(newline)
        self._kept: list[str] = []  # open elements whose content stays
        self.marks: list[tuple[int, bool]] = []  # places, and whether text for readers begins there
        self.feed(text)
        self.close()
        self.marks.append((len(text), False))

    def _mark(self, is_text: bool) -> None:
        line, column = self.getpos()
        is_text = is_text and not self._kept
        if not self.marks or self.marks[-1][1] != is_text:
            self.marks.append((self._lines[line - 1] + column, is_text))

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._mark(False)
        if tag in _KEPT:
            self._kept.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self._mark(False)

    def handle_endtag(self, tag: str) -> None:
        self._mark(False)
        if tag in self._kept:
            while self._kept.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        self._mark(True)

    def handle_entityref(self, name: str) -> None:
        self._mark(True)

    def handle_charref(self, name: str) -> None:
        self._mark(True)

    def handle_comment(self, data: str) -> None:
        self._mark(False)

    def handle_decl(self, decl: str) -> None:
        self._mark(False)

    def handle_pi(self, data: str) -> None:
        self._mark(False)

    def unknown_decl(self, data: str) -> None:
        self._mark(False)


def read(text: str, name: str) -> Document:
    """The text of a page or of a piece of one, between any two tags.

    A tag inside a sentence divides it: its parts are translated each by itself.

    Raises:
        DataError: many tags or comments never end.
    """
    for begin, end in _ENDS.items():
        place = text.rfind(end) + 1
        if text.count(begin, place) > _UNENDED:
            raise refuse(name, text, text.find(begin, place), f"{begin} occurs, and never {end}")
    return Document(text, list(_runs(text)))


def _runs(text: str) -> Iterator[Run]:
    for (start, is_text), (stop, _) in pairwise(_Tags(text).marks):
        if is_text and any(map(str.isalpha, source := html.unescape(text[start:stop]).strip())):
            content = text[start:stop]
            start += len(content) - len(content.lstrip())
            yield Run(start, stop - (len(content) - len(content.rstrip())), source)
