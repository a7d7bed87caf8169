"""Markdown: prose is translated; code, addresses, HTML and all marks are kept to the character.

markdown-it-py reads CommonMark, tables and ~~strikes~~. It tells the lines of a block, and the tokens inside it in
their order, of which the places of emphasis, links and code follow.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from regard.errors import library
from regard.translation.formats.document import Document
from regard.translation.formats.markup import Markup, Piece, Role, bare, tidied
from regard.translation.text.replacements import Replacement

_FRONT_MATTER = re.compile(
    r"\A\ufeff?---[ \t]*\r?\n.*?^(?:---|\.\.\.)[ \t]*\r?$", re.DOTALL | re.MULTILINE
)
_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)[^>]*?(/?)>")
_VOID = frozenset("br hr img input wbr".split())
_BREAK = re.compile(r"[ \t]*\\?\n[ \t]*")
_SPECIAL = re.compile(r"[\\`*_\[\]<>~|]")
# With these first, a paragraph would be another block.
_BLOCK = re.compile(r"(\d{0,9})(?=[-+#>=]|(?<=\d)[.)])")


@dataclass(frozen=True)
class Prose:
    """The text of a paragraph, a heading or a cell: one line, or several that become one."""

    start: int
    stop: int
    pieces: Sequence[Piece]

    @property
    def texts(self) -> Sequence[str]:
        return [Markup.of(self.pieces).text]

    def replacements(self, translations: Sequence[str]) -> Iterator[Replacement]:
        plain = "".join(piece.text for piece in self.pieces if piece.role == "text")

        def escaped(text: str) -> str:
            """Marks that the source has none of as plain characters."""
            return _SPECIAL.sub(lambda mark: mark[0] if mark[0] in plain else f"\\{mark[0]}", text)

        text = Markup.of(self.pieces).restored(translations[0], escaped)
        if self.pieces[0].role == "text" and not _BLOCK.match(plain):
            text = _BLOCK.sub(r"\1\\", text, count=1) if _BLOCK.match(text) else text
        yield Replacement(self.start, self.stop, text)


def read(text: str, name: str) -> Document:
    """The prose of a file; front matter, code blocks, HTML blocks and definitions of links are kept.

    Raises:
        ConfigurationError: markdown-it-py is not installed.
    """
    # Of the same length, with line ends that markdown-it-py would make of it.
    plain = re.sub(r"\r(?!\n)", " ", text)
    plain = _FRONT_MATTER.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), plain, count=1)
    plain = " " + plain[1:] if plain.startswith("\ufeff") else plain
    lines = plain.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    searched = [0] * len(lines)  # of each line, what has passages already
    passages = []
    container = ""
    for token in _parser().parse(plain):
        is_cell, container = container in ("td_open", "th_open"), token.type
        if token.type == "inline" and (places := _places(token, is_cell, lines, starts, searched)):
            prose = _prose(token, text, places)
            if prose is not None:
                passages.append(prose)
    return Document(text, passages)


def _parser() -> Any:
    """markdown-it-py, which notes where links, images and code end."""
    rules = library("markdown_it.rules_inline")
    parser = library("markdown_it").MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parser.disable("text_join")  # escapes and references stay by themselves
    for name, rule in (("link", rules.link), ("image", rules.image), ("backticks", rules.backtick)):
        parser.inline.ruler.at(name, _noting(rule))
    return parser


def _noting(rule: Callable[[Any, bool], bool]) -> Callable[[Any, bool], bool]:
    def noting(state: Any, silent: bool) -> bool:
        count = len(state.tokens)
        applies = rule(state, silent)
        if applies and len(state.tokens) > count:
            state.tokens[-1].meta["stop"] = state.pos
        return applies

    return noting


def _places(
    token: Any, is_cell: bool, lines: Sequence[str], starts: Sequence[int], searched: list[int]
) -> list[int]:
    """For each character of a block's content, and its end, the place in the file; [] where it cannot be told.

    The content of a cell of a table has "|" where the file has a backslash before it: such a cell stays.
    """
    places: list[int] = []
    for number, line in enumerate(token.content.split("\n"), token.map[0]):
        in_file = line.replace("|", "\\|") if is_cell else line
        column = lines[number].find(in_file, searched[number]) if number < len(lines) else -1
        if column < 0:
            return []
        searched[number] = column + len(in_file)
        if in_file != line:
            return []
        places += range(starts[number] + column, starts[number] + column + len(line) + 1)
    return places


def _prose(token: Any, text: str, places: Sequence[int]) -> Prose | None:
    """The text of a block with its codes; without codes where the order of the parser is not that of the text."""
    stretches = list(_stretches(token.children, token.content))
    if stretches[-1:] and stretches[-1][1] != len(token.content):
        stretches = [(0, len(token.content), "text")]
    pieces, links = list[Piece](), list[int]()
    for start, stop, role in stretches:
        content = (
            token.content[start:stop] if role == "text" else text[places[start] : places[stop]]
        )
        is_note = content.startswith("^") and pieces[-1:] == [Piece("[", "opening")]
        if content == "[" and role == "opening":
            links.append(stop)
        elif content[0] == "]" and role == "closing":
            label = token.content[links.pop() : start]
            if content in ("]", "][]") and not label.startswith("^"):
                content = f"][{label}]"  # else it would be lost
        if role == "text":
            content, role = " " if "\n" in content else content, "alone" if is_note else role
        pieces.append(Piece(content, role))
    inside = bare(pieces)
    if inside.start >= inside.stop or not Markup.of(tidied(pieces[inside])).has_words:
        return None
    start, stop = stretches[inside.start][0], stretches[inside.stop - 1][1]
    content = token.content[start:stop]
    start += len(content) - len(content.lstrip())
    stop -= len(content) - len(content.rstrip())
    edged = tidied(pieces[inside])
    edged[0] = edged[0]._replace(text=edged[0].text.lstrip())
    edged[-1] = edged[-1]._replace(text=edged[-1].text.rstrip())
    return Prose(places[start], places[stop - 1] + 1, edged)


def _stretches(children: Sequence[Any], content: str) -> Iterator[tuple[int, int, Role]]:
    """The stretches of a content, by the tokens inside it."""
    start, address = 0, False
    for token in children:
        role, stop = _stretch(token, content, start)
        if token.markup == "autolink":  # <address>: an opening, text and a closing
            address = token.type != "link_close"
            stop = start if token.type == "link_open" else content.find(">", start) + 1
            role = "alone"
            if token.type == "text" or address:
                continue
        if address:
            continue
        if stop > start:
            yield start, stop, role
        start = stop


def _stretch(token: Any, content: str, start: int) -> tuple[Role, int]:
    """The role of a token that begins at a place, and where it ends."""
    if token.type == "text":
        return "text", start + len(token.content)
    if token.type in ("softbreak", "hardbreak"):
        line_end = _BREAK.match(content, start)
        stop = line_end.end() if line_end else start
        return ("text" if token.type == "softbreak" else "alone"), stop
    if "stop" in token.meta:
        return ("closing" if token.type == "link_close" else "alone"), token.meta["stop"]
    if token.type == "link_open":
        return "opening", start + 1
    if token.type == "html_inline":
        return _half(token.content), start + len(token.content)
    role: Role = {1: "opening", -1: "closing"}.get(token.nesting, "alone")  # type: ignore[assignment]
    return role, start + len(token.markup)


def _half(tag: str) -> Role:
    match = _TAG.fullmatch(tag)
    if match is None or match[3] or match[2].lower() in _VOID:
        return "alone"
    return "closing" if match[1] else "opening"
