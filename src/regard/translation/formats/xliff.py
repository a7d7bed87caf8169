"""XLIFF 1.2 and 2: segments without a translation get one, all else is kept to the character.

Python's expat reads the file and tells where each element stands. A document type, which could declare entities, is
refused.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import escape

from regard.translation.formats.document import Document, refuse
from regard.translation.formats.markup import Markup, Piece, spaces_apart, tidied
from regard.translation.text.replacements import Replacement

_DEEPEST = 256
# Elements in a source whose content is text of the sentence; that of others is code of the format it came from.
_AROUND = {"g", "mrk", "pc"}
_NAME = re.compile(rb"<((?:[^\s/>:]+:)?)")
_TAG = re.compile(rb"<(?:[^\"'>]|\"[^\"]*\"|'[^']*')*>")
_DONE = {"final", "reviewed"}
_SPACE = "http://www.w3.org/XML/1998/namespace space"
_UNITS = {"trans-unit": "1.2", "segment": "2"}


@dataclass
class _Segment:
    """A trans-unit (1.2) or segment (2) while it is read; places count bytes."""

    is_open: bool  # whether it may be translated
    version: str
    source: int = 0  # where its source begins
    source_end: int = 0  # where its target belongs
    target: tuple[int, int] | None = None  # the whole element
    prefix: str = ""  # of the namespace, with its colon
    target_start: str = ""
    has_target: bool = False
    keeps_spaces: bool = False
    pieces: list[Piece] = field(default_factory=list)


@dataclass(frozen=True)
class Segment:
    """A segment without a translation.

    Attributes:
        start, stop: where its target is, or belongs.
        markup: its source.
        opening, closing: the tags around the translation.
        newline: the line end of the file.
    """

    start: int
    stop: int
    markup: Markup
    opening: str
    closing: str
    newline: str

    @property
    def texts(self) -> Sequence[str]:
        return [self.markup.text]

    def replacements(self, translations: Sequence[str]) -> Iterator[Replacement]:
        text = self.markup.restored(translations[0], self._escaped)
        yield Replacement(self.start, self.stop, self.opening + text + self.closing)

    def _escaped(self, text: str) -> str:
        """A carriage return of the text itself would be read as a line end of the file."""
        return escape(text).replace("\r", "&#13;").replace("\n", self.newline)


class _Reader:
    def __init__(self, text: str, name: str) -> None:
        self.content, self.segments = text.encode(), list[_Segment]()
        self._text, self._name = text, name
        # Names, where a tag like <x/> ends, else 0, and whether white space is kept.
        self._stack: list[tuple[str, int, bool]] = []
        self._fixed = 0  # depth of elements that are not to be translated
        self._segment: _Segment | None = None
        self._inside = ""  # "source" or "target", while its content is read
        self._code_depth = 0  # within elements whose content is code
        self._code_start = 0
        self._parser = expat.ParserCreate("utf-8", " ")
        self._parser.buffer_text = False
        handlers = {
            "StartElementHandler": self._start,
            "EndElementHandler": self._end,
            "CharacterDataHandler": self._characters,
            "StartDoctypeDeclHandler": self._refuse_doctype,
        }
        for event, handler in handlers.items():
            setattr(self._parser, event, handler)

    def read(self) -> list[_Segment]:
        try:
            self._parser.Parse(self.content.removeprefix(b"\xef\xbb\xbf"), True)
        except expat.ExpatError as fault:
            message = f"not well-formed XML: {expat.errors.messages[fault.code]}"
            raise refuse(self._name, "\n" * (fault.lineno - 1), fault.lineno - 1, message) from None
        return self.segments

    def _place(self) -> int:
        shift = 3 if self.content.startswith(b"\xef\xbb\xbf") else 0
        return self._parser.CurrentByteIndex + shift

    def _tag_end(self, place: int) -> int:
        """The end of the tag that begins at a place. A ">" within quotes ends none."""
        match = _TAG.match(self.content, place)
        return match.end() if match else place

    def _refuse_doctype(self, *declaration: Any) -> None:
        raise self._refused("a document type, which XLIFF has not: remove it")

    def _refused(self, objection: str) -> Exception:
        line = self._parser.CurrentLineNumber
        return refuse(self._name, "\n" * (line - 1), line - 1, objection)

    def _start(self, qualified: str, attributes: dict[str, str]) -> None:
        name = qualified.rpartition(" ")[2]
        if not self._stack and name != "xliff":
            raise self._refused(f"the file begins with <{name}>: no XLIFF")
        place = self._place()
        tag_end = self._tag_end(place)
        is_empty = self.content[place:tag_end].endswith(b"/>")
        keeps_spaces = bool(self._stack) and self._stack[-1][2]
        if space := attributes.get(_SPACE):
            keeps_spaces = space == "preserve"
        self._stack.append((name, tag_end if is_empty else 0, keeps_spaces))
        if len(self._stack) > _DEEPEST:
            raise self._refused(f"elements are nested more than {_DEEPEST} deep")
        is_fixed = self._fixed or attributes.get("translate") == "no"
        self._fixed = self._fixed + 1 if is_fixed else 0
        if self._inside:
            is_code = name not in _AROUND or (
                attributes.get("translate") == "no" or attributes.get("mtype") == "protected"
            )
            self._inline(is_code, place)
        elif name in _UNITS:
            done = attributes.get("approved") == "yes" or attributes.get("state") in _DONE
            self._segment = _Segment(not self._fixed and not done, _UNITS[name])
        elif self._segment is not None and name in ("source", "target"):
            if self._stack[-2][0] in _UNITS:
                self._inside = name
                self._open_side(name, place, attributes.get(_SPACE))
        elif self._segment is not None and name == "seg-source":
            self._segment.is_open = False  # its segments would have to be marked in the target

    def _open_side(self, name: str, place: int, space: str | None) -> None:
        segment, end = self._segment, self._tag_end(place)
        assert segment is not None
        start = self.content[place:end].decode()
        match = _NAME.match(self.content, place)
        segment.prefix = match[1].decode() if match else ""
        if name == "target":
            segment.target = place, end
            segment.target_start = start[:-2] + ">" if start.endswith("/>") else start
        else:
            segment.source = place
            attribute = f' xml:space="{space}"' if space in ("default", "preserve") else ""
            segment.target_start = f"<{segment.prefix}target{attribute}>"
            segment.keeps_spaces = self._stack[-1][2]

    def _inline(self, is_code: bool, place: int) -> None:
        if self._inside == "target":
            return
        if self._code_depth or is_code:
            if not self._code_depth:
                self._code_start = place
            self._code_depth += 1
        else:
            self._add(Piece(self.content[place : self._tag_end(place)].decode(), "opening"))

    def _characters(self, text: str) -> None:
        if self._inside == "source" and not self._code_depth:
            self._add(Piece(text))
        elif self._inside == "target" and text.strip() and self._segment is not None:
            self._segment.has_target = True

    def _add(self, piece: Piece) -> None:
        assert self._segment is not None
        self._segment.pieces.append(piece)

    def _end(self, qualified: str) -> None:
        name, tag_end, _ = self._stack.pop()
        place = tag_end or self._place()
        end = tag_end or self._tag_end(place)
        self._fixed -= bool(self._fixed)
        if self._code_depth:
            self._code_depth -= 1
            if not self._code_depth:
                self._add(Piece(self.content[self._code_start : end].decode(), "alone"))
        elif self._inside == "source" and name in _AROUND:
            self._add(Piece(self.content[place:end].decode(), "closing"))  # empty for <g/>
        elif name == self._inside:
            self._close_side(end)
        elif name in _UNITS and self._segment is not None:
            segment, self._segment = self._segment, None
            if not segment.source_end:
                raise self._refused(f"a <{name}> without <source>")
            if segment.is_open and not segment.has_target:
                self.segments.append(segment)

    def _close_side(self, end: int) -> None:
        segment, side = self._segment, self._inside
        assert segment is not None
        self._inside = ""
        if side == "source":
            segment.source_end = end
        elif segment.target is not None:
            segment.target = segment.target[0], end


def read(text: str, name: str) -> Document:
    """The segments of a file that have no translation, and may be translated.

    Raises:
        DataError: XML that is broken, with a document type, nested too deep, or no XLIFF; names the line.
    """
    reader = _Reader(text, name)
    segments = reader.read()
    places = _character_places(
        text, {place for segment in segments for place in (segment.source, *_places(segment))}
    )
    newline = "\r\n" if "\r\n" in text else "\n"
    passages = []
    for segment in segments:
        markup = Markup.of((spaces_apart if segment.keeps_spaces else tidied)(segment.pieces))
        if markup.has_words:
            start, stop = (places[place] for place in _places(segment))
            frame = _frame(segment, text, places[segment.source])
            passages.append(Segment(start, stop, markup, *frame, newline))
    return Document(text, passages)


def _places(segment: _Segment) -> tuple[int, int]:
    return segment.target or (segment.source_end, segment.source_end)


def _frame(segment: _Segment, text: str, source: int) -> tuple[str, str]:
    """The tags around a translation; a new target stands on a line of its own where its source does."""
    start, name = segment.target_start, f"{segment.prefix}target"
    if segment.version == "1.2" and "state=" not in start:
        start = start.replace(f"<{name}", f'<{name} state="needs-review-translation"', 1)
    line = source
    while text[line - 1 : line] in (" ", "\t"):
        line -= 1
    if segment.target is None and text[line - 1 : line] == "\n":
        start = ("\r\n" if text[line - 2 : line] == "\r\n" else "\n") + text[line:source] + start
    return start, f"</{name}>"


def _character_places(text: str, places: set[int]) -> dict[int, int]:
    """The character at each of some places that count bytes."""
    answer, byte, at = dict[int, int](), 0, 0
    content = text.encode()
    for place in sorted(places):
        at += len(content[byte:place].decode())
        answer[place], byte = at, place
    return answer
