"""HTML: text and some attributes are translated, all else is kept to the character.

Python's html.parser finds the tags, comments and scripts by their places in the text. It opens nothing else.
"""

import html
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html.parser import HTMLParser
from itertools import islice, pairwise
from typing import Literal, NamedTuple

from regard.translation.formats.document import Document, refuse
from regard.translation.formats.markup import (
    Markup,
    Piece,
    Role,
    bare,
    decoded,
    spaces_apart,
    tidied,
)
from regard.translation.text.replacements import Replacement

# Elements within a sentence. All others divide the text.
_WITHIN = set(
    "a abbr acronym b bdi bdo big cite data del dfn em font i ins label mark nobr q s small span strike strong sub sup"
    " time tt u".split()
)
# Elements within a sentence that stay as they are, with all that they hold.
_KEPT_WITHIN = set("code kbd math samp svg var".split())
_ALONE = set("img wbr".split())
# Elements that divide the text, whose content stays: it is no prose, or is shown as it is.
_KEPT = set("pre script style template textarea".split())
_VOID = set("area base br col embed hr img input link meta param source track wbr".split())
# Elements whose end tag may be left out, and the elements whose beginning ends them.
_ENDED_BY = {
    name: set(enders.split())
    for names, enders in {
        "li": "li",
        "dt dd": "dt dd",
        "rt rp": "rt rp",
        "option": "option optgroup hr",
        "optgroup": "optgroup hr",
        "td th": "td th tr tbody tfoot thead",
        "tr": "tr tbody tfoot thead",
        "tbody tfoot thead": "tbody tfoot thead",
        "caption": "col colgroup tr tbody tfoot thead",
        "colgroup": "tr tbody tfoot thead",
        "head": "body",
        "p": "address article aside blockquote caption center dd details dialog dir div dl dt fieldset figcaption"
        " figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr li main menu nav ol p pre search section summary"
        " table tbody td tfoot th thead tr ul",
    }.items()
    for name in names.split()
}
_ENDS_OPEN = {
    tag: [name for name, tags in _ENDED_BY.items() if tag in tags]
    for tag in set().union(*_ENDED_BY.values())
}
# A beginning ends nothing outside of these.
_BOUNDS = set("button datalist dl menu object ol ruby select svg table template ul".split())
# Open elements that are asked, from the innermost: a page may leave a million of them open.
_DEEPEST = 64
# Attributes that a person reads or hears.
_READ = set("alt title placeholder aria-label aria-description".split())
# Names of the <meta> whose content a person reads.
_DESCRIPTIONS = set("description og:title og:description".split())
_ATTRIBUTE = re.compile(r"""(?<![^\s"'/])([^\s"'<>/=]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|[^\s"'>]+)""")
# html.parser takes the square of the number of constructs that never end.
_UNENDED = 100
_ENDS = {"<": ">", "<!--": "-->", "<![": "]"}


class Attribute(NamedTuple):
    """The value of an attribute, between its quotes, and the line end of its page."""

    start: int
    stop: int
    source: str
    newline: str

    @property
    def markup(self) -> Markup:
        """Line breaks and other white space stay as they are: no reader of HTML leaves them out here."""
        return Markup.of(spaces_apart([Piece(self.source)]))

    def replacement(self, translation: str) -> Replacement:
        return Replacement(self.start, self.stop, self.markup.restored(translation, self._quoted))

    def _quoted(self, text: str) -> str:
        """A carriage return of the text itself would be read as a line end of the page."""
        return html.escape(text).replace("\r", "&#13;").replace("\n", self.newline)


@dataclass(frozen=True)
class Run:
    """Text with tags inside, and the attributes of these tags; or attributes alone.

    Attributes:
        start: the first character of the pieces.
        pieces: as the file has them, text not decoded.
        attributes: by the places of their values in the file.
    """

    start: int
    pieces: Sequence[Piece]
    attributes: Sequence[Attribute]

    @property
    def markup(self) -> Markup:
        return Markup.of(tidied(decoded(self.pieces)))

    @property
    def has_words(self) -> bool:
        return self.markup.has_words

    @property
    def texts(self) -> Sequence[str]:
        sentence = [self.markup.text] if self.has_words else []
        return [*sentence, *(attribute.markup.text for attribute in self.attributes)]

    def replacements(self, translations: Sequence[str]) -> Iterator[Replacement]:
        supply = iter(translations)
        sentence = next(supply) if self.has_words else None
        changes = [attribute.replacement(next(supply)) for attribute in self.attributes]
        if sentence is None:
            yield from changes
            return
        pieces, start = list[Piece](), self.start
        changes.reverse()
        for piece in self.pieces:
            stop, text, end = start + len(piece.text), "", 0
            while changes and changes[-1].start < stop:
                change = changes.pop()
                text += piece.text[end : change.start - start] + change.text
                end = change.stop - start
            pieces.append(piece._replace(text=text + piece.text[end:]))
            start = stop
        run = replace(self, pieces=pieces)
        yield Replacement(
            self.start, start, run.markup.restored(sentence, partial(html.escape, quote=False))
        )


class Mark(NamedTuple):
    """Where a tag or a stretch of text begins."""

    place: int
    role: Role | Literal["dividing"]
    attributes: Sequence[Attribute] = ()


class Element(NamedTuple):
    """An open element, and whether it stays as it is."""

    tag: str
    is_kept: bool


class _Tags(HTMLParser):
    """Notes where text and tags begin, but for those within elements that stay as they are."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._lines = [0]
        while newline := text.find("\n", self._lines[-1]) + 1:
            self._lines.append(newline)
        self._open: list[Element] = []
        self._open_counts = Counter[str]()
        self.marks: list[Mark] = []
        self.feed(text)
        self.close()
        self.marks.append(Mark(len(text), "dividing"))

    def _mark(self, role: Role | Literal["dividing"], attributes: Sequence[Attribute] = ()) -> None:
        if not (self._open and self._open[-1].is_kept):
            line, column = self.getpos()
            self.marks.append(Mark(self._lines[line - 1] + column, role, attributes))

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        options = dict(attrs)
        self._end_before(tag)
        is_kept = (
            tag in _KEPT | _KEPT_WITHIN
            or options.get("translate") == "no"
            or "notranslate" in (options.get("class") or "").split()
        )
        role = self._role(tag, "opening")
        role = "alone" if is_kept and role == "opening" else role
        self._mark(role, list(self._attributes(tag, options)))
        if tag not in _VOID:
            is_inside = bool(self._open) and self._open[-1].is_kept
            self._open.append(Element(tag, is_kept or is_inside))
            self._open_counts[tag] += 1

    def _end_before(self, tag: str) -> None:
        """End the open elements that the beginning of this one ends."""
        if not any(self._open_counts[name] for name in _ENDS_OPEN.get(tag, ())):
            return
        ended = 0
        for depth, element in enumerate(islice(reversed(self._open), _DEEPEST), 1):
            if tag in _ENDED_BY.get(element.tag, ()):
                ended = depth
            elif element.tag in _BOUNDS:
                break
        self._end(ended)

    def _end(self, count: int) -> bool:
        """End so many of the open elements; whether the last one of them was kept."""
        is_kept = False
        for _ in range(count):
            tag, is_kept = self._open.pop()
            self._open_counts[tag] -= 1
        return is_kept

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self._end_before(tag)
        self._mark(self._role(tag, "alone"), list(self._attributes(tag, dict(attrs))))

    def handle_endtag(self, tag: str) -> None:
        # An end also ends what is open inside; that of <b> ends no paragraph.
        is_within = tag in _WITHIN | _KEPT_WITHIN
        if self._open_counts[tag]:
            elements = reversed(self._open)
            for depth, element in enumerate(
                islice(elements, _DEEPEST) if is_within else elements, 1
            ):
                if element.tag == tag:
                    if self._end(depth):
                        return
                    break
                if is_within and element.tag not in _WITHIN | _KEPT_WITHIN:
                    break
        self._mark(self._role(tag, "closing"))

    def _role(
        self, tag: str, half: Literal["opening", "closing", "alone"]
    ) -> Role | Literal["dividing"]:
        if tag in _ALONE | _KEPT_WITHIN:
            return "alone"
        return half if tag in _WITHIN else "dividing"

    def _attributes(self, tag: str, options: Mapping[str, str | None]) -> Iterator[Attribute]:
        raw, (line, column) = self.get_starttag_text() or "", self.getpos()
        about = options.get("name") or options.get("property") or ""
        names = {"content"} if tag == "meta" and about.lower() in _DESCRIPTIONS else _READ
        for match in _ATTRIBUTE.finditer(raw):
            value = match.lastindex or 1
            source = html.unescape(re.sub(r"\r\n?", "\n", match[value]))
            if value > 1 and match[1].lower() in names and any(map(str.isalpha, source)):
                start, stop = (self._lines[line - 1] + column + at for at in match.span(value))
                yield Attribute(start, stop, source, self._newline)

    def handle_data(self, data: str) -> None:
        self._mark("text")

    def handle_entityref(self, name: str) -> None:
        self._mark("text")

    handle_charref = handle_entityref

    def handle_comment(self, data: str) -> None:
        self._mark("alone")

    def handle_decl(self, decl: str) -> None:
        self._mark("dividing")

    handle_pi = unknown_decl = handle_comment


def read(text: str, name: str) -> Document:
    """The text of a page or of a piece of one, between tags that divide it.

    Raises:
        DataError: many tags or comments never end.
    """
    for begin, end in _ENDS.items():
        place = text.rfind(end) + 1
        if text.count(begin, place) > _UNENDED:
            raise refuse(name, text, text.find(begin, place), f"{begin} occurs, and never {end}")
    return Document(text, [run for run in _runs(text) if run.texts])


def _runs(text: str) -> Iterator[Run]:
    run = list[tuple[Mark, Piece]]()
    for mark, following in pairwise(_Tags(text).marks):
        if mark.role != "dividing":
            run.append((mark, Piece(text[mark.place : following.place], mark.role)))
            continue
        yield from _divided(run)
        yield Run(mark.place, [], mark.attributes)
        run = []
    yield from _divided(run)


def _divided(run: Sequence[tuple[Mark, Piece]]) -> Iterator[Run]:
    """A run without what stands around its words, and the attributes of these tags."""
    inside = bare(decoded(piece for _, piece in run))
    for mark, _ in run[: inside.start]:
        yield Run(mark.place, [], mark.attributes)
    marks, pieces = [mark for mark, _ in run[inside]], [piece for _, piece in run[inside]]
    if pieces:
        head, tail = pieces[0], pieces[-1]
        start = marks[0].place
        if head.role == "text":
            start += len(head.text) - len(head.text.lstrip())
            pieces[0] = Piece(head.text.lstrip())
        if tail.role == "text":
            pieces[-1] = Piece(pieces[-1].text.rstrip())
        yield Run(start, pieces, [attribute for mark in marks for attribute in mark.attributes])
    for mark, _ in run[inside.stop :]:
        yield Run(mark.place, [], mark.attributes)
