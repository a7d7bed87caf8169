"""Subtitles, SubRip (.srt) and WebVTT (.vtt): the text of captions is translated, all else is kept.

pysubs2 reads the file. It writes no WebVTT setting, note, style or name of a caption, so translations are put into the
text of the file instead.
"""

import html
import re
from bisect import bisect
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate, islice, pairwise

from regard.errors import library
from regard.translation.formats.document import Document, Passage, refuse
from regard.translation.formats.markup import Markup, Piece, Role, bare, decoded, tidied
from regard.translation.text.batches import grouped
from regard.translation.text.replacements import Replacement

_ARROW = "-->"
# Tags (<i>, <v Ana>, <00:01.000>), and the settings that players read in braces ({\an8}).
_TAG = r"<[/\w][^<>]*>|\{\\[^{}]*\}"
_TAGS = re.compile(f"({_TAG})")
# {\\i1} begins what {\\i0} ends; all other settings in braces stand alone.
_SWITCH = re.compile(r"\{\\[bisu]([01])\}")
_BEFORE = re.compile(rf"(?:{_TAG}|[♪#\s\-–—])*")
# The same at the end; the text is read backwards, so that long white space takes no time.
_AFTER = re.compile(r"(?:>[^<>]*[/\w]<|\}[^{}]*\\\{|[♪#\s])*")
_SPACE = re.compile(r"\s*")
_TIME_TAG = re.compile(r"<[\d:.]+>")
_EMPTY_LINE = re.compile(r"\r?\n[^\S\n]*\r?\n")
# A line with a dash is what another person says, and <v Name> names one.
_SPEAKER = re.compile(r"\n(?=(?:<[/\w][^<>]*>)*[-–—])|(?=<v[.\s])")
_ENDED = re.compile(r"[.!?…:;。！？।)\]\"'»”♪]\s*$")
# pysubs2 takes the square of the length of a run of empty lines.
_GAP = re.compile(r"(?:\r?\n){100}")
# The tags of `markup`, and those of them that are halves of a pair.
_SHORT, _PAIR = re.compile(r"</?[gx]\d+/?>"), re.compile(r"<(/?)g(\d+)>")
# Captions of one sentence are joined up to this length, in characters.
_LONGEST = 400


@dataclass(frozen=True)
class Caption:
    """The lines of a caption, or of one speaker in it, without the tags around them.

    Attributes:
        start, stop: its first character in the file, and the one behind its last.
        pieces: its text, decoded, and its tags.
        newline: the line end of the file.
    """

    start: int
    stop: int
    pieces: tuple[Piece, ...]
    newline: str

    @cached_property
    def lines(self) -> list[str]:
        """The lines that a person reads."""
        text = "".join(piece.text for piece in self.pieces if piece.role == "text")
        return [line for line in map(str.strip, text.split("\n")) if line]

    @cached_property
    def word_times(self) -> list[str]:
        """The tags <00:01.000>, which say when a word is spoken."""
        return [piece.text for piece in self.pieces if _TIME_TAG.fullmatch(piece.text)]

    def continues(self, following: "Caption") -> bool:
        """Whether a sentence continues in the following caption. The times of words stay in their caption."""
        return not (
            _ENDED.search(self.lines[-1][-2:]) or self.word_times or following.word_times
        ) and (following.lines[0][:1].islower())


@dataclass(frozen=True)
class Sentence:
    """Captions that are translated as one text, and divided again by the lengths of their lines."""

    captions: tuple[Caption, ...]
    escaped: bool

    @property
    def start(self) -> int:
        return self.captions[0].start

    @cached_property
    def markup(self) -> Markup:
        """The text of all captions with their tags."""
        pieces = (piece for caption in self.captions for piece in (Piece(" "), *caption.pieces))
        return Markup.of(tidied(list(pieces)[1:]))

    @property
    def texts(self) -> Sequence[str]:
        return [self.markup.text]

    def replacements(self, translations: Sequence[str]) -> Iterator[Replacement]:
        lengths = [len(line) for caption in self.captions for line in caption.lines]
        lines = iter(divide(self.markup.complete(translations[0]), lengths))
        escape = partial(html.escape, quote=False) if self.escaped else str
        openings = ""  # of the pairs of tags that the next caption opens again
        for caption in self.captions:
            text = caption.newline.join(filter(None, islice(lines, len(caption.lines))))
            text, openings = closed(openings + text, self.markup.codes)
            text = self.markup.written(text, escape)
            yield Replacement(caption.start, caption.stop, rising(text, caption.word_times))


def closed(text: str, codes: Container[str]) -> tuple[str, str]:
    """A text with its pairs of short tags closed, and the tags that open these pairs again.

    What looks like a tag and is not among the `codes` is text.

    >>> closed("a <g1>b </g2>", ["<g1>", "</g1>"])
    ('a <g1>b </g2></g1>', '<g1>')
    """
    openings: list[str] = []
    for match in _PAIR.finditer(text):
        if match[0] not in codes:
            continue
        if match[1]:
            openings.pop()
        else:
            openings.append(match[2])
    ends = "".join(f"</g{number}>" for number in reversed(openings))
    return text + ends, "".join(f"<g{number}>" for number in openings)


def rising(text: str, word_times: Sequence[str]) -> str:
    """A text with the times of its words in their order: a file whose times do not rise is broken."""
    times = iter(word_times)
    return _TIME_TAG.sub(lambda match: next(times, match[0]), text)


def divide(text: str, lengths: Sequence[int]) -> list[str]:
    """A text cut between words, into shares that are as long as `lengths` relative to one another; tags have no length.

    Each share has a word while there are words enough; the last ones are empty otherwise.

    >>> divide("I think that he will not come", [10, 20]), divide("Yes", [4, 4])
    (['I think', 'that he will not come'], ['Yes', ''])
    """
    words = text.split(" ")
    ends = [0, *accumulate(len(_SHORT.sub("", word)) + 1 for word in words)]
    scale = ends[-1] / max(sum(lengths), 1)
    cuts = [0]
    for remaining, share in zip(range(len(lengths) - 1, 0, -1), accumulate(lengths), strict=False):
        place = bisect(ends, share * scale)
        place -= place == len(ends) or share * scale - ends[place - 1] < ends[place] - share * scale
        latest = min(max(len(words) - remaining, cuts[-1] + 1), len(words))
        cuts.append(min(max(place, cuts[-1] + 1), latest))
    return [" ".join(words[start:stop]) for start, stop in pairwise([*cuts, len(words)])]


def read(text: str, name: str, kind: str) -> Document:
    """The captions of a file of subtitles; `kind` is "srt" or "vtt".

    Raises:
        DataError: it has no captions, a time that cannot be read, or one that ends before it begins.
        ConfigurationError: pysubs2 is not installed.
    """
    library("pysubs2")
    from pysubs2 import SSAFile
    from pysubs2.formats import get_format_class

    is_vtt = kind == "vtt"
    if is_vtt and not text.removeprefix("\ufeff").startswith("WEBVTT"):
        raise refuse(name, text, 0, "expected WEBVTT at the beginning of the file")
    if gap := _GAP.search(text):
        raise refuse(name, text, gap.start(), "100 empty lines: remove them")
    # Times within a caption would look like those of another one.
    masked = _TIME_TAG.sub(lambda match: f"<{'c' * (len(match[0]) - 2)}>", text)
    stamps = get_format_class(kind).TIMESTAMP  # type: ignore[attr-defined]
    times: list[tuple[int, int]] = []  # where each line of times begins and ends
    end = 0
    for line in masked.split("\n"):
        start, end = end, end + len(line) + 1
        timed = len(stamps.findall(line)) == 2
        if timed != (_ARROW in line):
            example = "00:00:01.000 --> 00:00:02.000".replace(".", "." if is_vtt else ",")
            raise refuse(name, text, start, f"expected two times, as in {example}")
        if timed:
            times.append((start, end))
    if not times and not is_vtt and text.strip("\ufeff \r\n"):
        raise refuse(name, text, 0, "no times, so these are no subtitles: add --input-format lines")
    captions: list[Caption] = []
    events = SSAFile.from_string(masked, kind, keep_html_tags=True)
    spans = pairwise([*times, (len(text), len(text))])
    for event, ((start, end), (stop, _)) in zip(events, spans, strict=True):
        if event.end < event.start:
            raise refuse(name, text, start, "the caption ends before it begins: mend its times")
        if event.text:
            # pysubs2 writes \N for a line break.
            breaks = event.text.count(r"\N") - text.count(r"\N", end, stop)
            captions += _captions(text, end, len(event.text) - breaks, is_vtt)
    return Document(text, list(_sentences(captions, is_vtt)))


def _captions(text: str, start: int, length: int, is_vtt: bool) -> Iterator[Caption]:
    """The captions after a line of times, in so many characters without the white space around them."""
    if is_vtt and not text[start : text.find("\n", start) + 1].strip():
        return  # an empty caption; what follows is a note or a name
    start = _end(_SPACE, text, start, len(text))
    stop = start + len(text[start : start + length].rstrip())
    paragraphs = _cut(text, start, stop, _EMPTY_LINE)
    for paragraph in islice(paragraphs, 1) if is_vtt else paragraphs:
        for begin, end in _cut(text, *paragraph, _SPEAKER):
            head = _end(_BEFORE, text, begin, end)
            tail = end - _end(_AFTER, text[head:end][::-1], 0, end - head)
            pieces = [
                *_pieces(text[begin:head], "alone"),
                *_pieces(text[head:tail], "text"),
                *_pieces(text[tail:end], "alone"),
            ]
            inside = bare(pieces)
            start = begin + sum(len(piece.text) for piece in pieces[: inside.start])
            content = "".join(piece.text for piece in pieces[inside])
            caption = Caption(
                start=start + len(content) - len(content.lstrip()),
                stop=start + len(content.rstrip()),
                pieces=tuple(decoded(pieces[inside]) if is_vtt else pieces[inside]),
                newline="\r\n" if "\r\n" in content else "\n",
            )
            if any(any(map(str.isalpha, line)) for line in caption.lines):
                yield caption


def _pieces(text: str, plain: Role) -> Iterator[Piece]:
    """The tags of a caption, and the text between them in the role `plain`."""
    for place, content in enumerate(_TAGS.split(text)):
        if content:
            yield Piece(content, _role(content) if place % 2 else plain)


def _role(tag: str) -> Role:
    if switch := _SWITCH.fullmatch(tag):
        return "opening" if switch[1] == "1" else "closing"
    if tag.startswith("{") or tag.endswith("/>") or _TIME_TAG.fullmatch(tag):
        return "alone"
    return "closing" if tag.startswith("</") else "opening"


def _end(pattern: re.Pattern[str], text: str, start: int, stop: int) -> int:
    """Where a match that begins at `start` ends; `start` without one."""
    match = pattern.match(text, start, stop)
    return match.end() if match else start


def _cut(text: str, start: int, stop: int, pattern: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """The beginning and end of each stretch between the matches of a pattern."""
    for match in pattern.finditer(text, start, stop):
        yield start, match.start()
        start = match.end()
    yield start, stop


def _sentences(captions: Sequence[Caption], escaped: bool) -> Iterator[Passage]:
    """Captions joined where a sentence continues in the next one."""

    def fits(sentence: list[Caption], caption: Caption) -> bool:
        length = sum(len(line) for each in (*sentence, caption) for line in each.lines)
        return sentence[-1].continues(caption) and length <= _LONGEST

    return (Sentence(tuple(sentence), escaped) for sentence in grouped(captions, fits))


SRT, VTT = partial(read, kind="srt"), partial(read, kind="vtt")
