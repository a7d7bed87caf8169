"""Translation memories in TMX: reads sentence pairs, one unit after the other, and writes pairs with links.

lxml reads the file: entities stay as they are, no other file or address is read, and memory is bounded. It refuses
elements that are nested more than 256 deep and texts of over 10 MB.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from regard.errors import ConfigurationError, DataError, library
from regard.translation.text.corpora import open_text, raw_blocks
from regard.translation.text.packed import bare_name

# A file with no end of an element in so many bytes is no list of short texts.
LARGEST_ELEMENT = 16 * 2**20
# Text in this element of a segment belongs to the sentence. Text in any other element is code of another format.
_HIGHLIGHT = "hi"
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


def is_tmx(path: Path) -> bool:
    """Whether a file is a translation memory, by its name: .tmx, or packed, .tmx.gz."""
    return bare_name(path.name).lower().endswith(".tmx")


@dataclass(frozen=True)
class Tmx:
    """A translation memory. "en" reads "en", "en-GB" and "EN_us".

    Of a unit with several variants of a language, say es-ES and es-MX, it reads the one that is named exactly, else
    that of the file's srclang, else the first.

    Attributes:
        source_language, target_language: by default that of the file's srclang, and its only other one.
    """

    path: Path
    source_language: str | None = None
    target_language: str | None = None

    @property
    def paths(self) -> list[Path]:
        return [self.path]

    def rows(self) -> Iterator[tuple[str, str]]:
        """Source and target of every unit; a language that a unit lacks is an empty text.

        Raises:
            DataError: the file is no TMX, is damaged or hostile; names the line.
            ConfigurationError: it has more languages than two, or two regions of one, and they are not named.
        """
        source, target = self.source_language, self.target_language
        main = ""
        language_codes: dict[str, None] = {}  # an ordered set
        units = 0
        for line, element in elements(self.path, "header", "tu"):
            if name_of(element) == "header":
                main = element.get("srclang", "")
                source = source or _main(main)
                continue
            units += 1
            texts = dict(_texts(element))
            language_codes |= dict.fromkeys(texts)
            languages = dict.fromkeys(map(_main, language_codes))
            source = source or next(iter(languages), None)
            target_languages = [
                language for language in languages if language != _main(source or "")
            ]
            if self.target_language is None and len(target_languages) > 1:
                raise ConfigurationError(
                    f"{self.path}:{line}: has the languages {', '.join(languages)}: "
                    "name two with --source-language and --target-language"
                )
            target = target or next(iter(target_languages), None)
            yield _text_of(texts, source, main), _text_of(texts, target, main)
        for language in (self.source_language, self.target_language):
            if language and units and not any(_matches(code, language) for code in language_codes):
                raise ConfigurationError(
                    f"{self.path}: has no {language}, but {', '.join(language_codes) or 'no language'}"
                )
        if units and not target:
            raise ConfigurationError(
                f"{self.path}: has one language, {', '.join(language_codes) or 'of no name'}: for two regions of it, "
                "name them with --source-language and --target-language"
            )
        if not units:
            raise DataError(f"{self.path}: has no translation unit: no TMX")


def elements(path: Path, *names: str) -> Iterator[tuple[int, Any]]:
    """The line and the element of each of some names, in any namespace, when it has ended; then it is forgotten.

    Raises:
        DataError: no file, XML that is broken or nested too deep, entities of the file's own, or an element of over
            `LARGEST_ELEMENT` bytes; names the line.
    """
    etree = library("lxml.etree")
    parser = etree.XMLPullParser(
        events=("end",),
        tag=[f"{{*}}{name}" for name in names],
        resolve_entities=False,
        load_dtd=False,
        remove_pis=True,
        no_network=True,
        huge_tree=False,
        remove_comments=True,
    )
    line = 1
    with open_text(path) as file:
        try:
            unread = 0
            for block in raw_blocks(file, str(path)):
                parser.feed(block)
                unread += len(block)
                for _, element in parser.read_events():
                    line, unread = element.sourceline, 0
                    _refuse_entities(element, f"{path}:{line}")
                    yield line, element
                    element.clear()
                    while element.getprevious() is not None:
                        del element.getparent()[0]
                if unread > LARGEST_ELEMENT:
                    raise DataError(
                        f"{path}:{line}: no <{names[-1]}> ends in the {LARGEST_ELEMENT:,} bytes after this line"
                    )
            parser.close()
        except etree.XMLSyntaxError as fault:
            errors = [(error.line, error.message) for error in parser.feed_error_log]
            place, message = (errors or [(fault.lineno or line, fault.msg)])[0]
            raise DataError(f"{path}:{place}: not well-formed XML: {message}") from None


def name_of(element: Any) -> str:
    """The name of an element without its namespace; empty for what is no element."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _refuse_entities(element: Any, place: str) -> None:
    declared = element.getroottree().docinfo.internalDTD
    if declared is not None and next(declared.iterentities(), None) is not None:
        raise DataError(f"{place}: the file declares entities of its own: write their text instead")
    for entity in element.iter(library("lxml.etree").Entity):
        raise DataError(f"{place}: {entity.text} is not read: write the character itself")


def _texts(unit: Any) -> Iterator[tuple[str, str]]:
    """The language and the text of each variant of a unit."""
    for variant in unit:
        if name_of(variant) == "tuv":
            language = variant.get(_LANGUAGE) or variant.get("lang") or ""
            segments = (child for child in variant if name_of(child) == "seg")
            yield language, "".join(map(_plain, segments))


def _plain(element: Any) -> str:
    """The text of a segment, without codes."""
    pieces = [element.text or ""]
    for child in element:
        if name_of(child) == _HIGHLIGHT:
            pieces.append(_plain(child))
        pieces.append(child.tail or "")
    return "".join(pieces)


def _main(language: str) -> str:
    """The language without region and script; empty for TMX's *all*."""
    return language.replace("_", "-").partition("-")[0].lower().strip("*").replace("all", "")


def _matches(language: str, pattern: str) -> bool:
    ours, theirs = (name.replace("_", "-").lower() for name in (language, pattern))
    return ours == theirs or ours.startswith(f"{theirs}-")


def _text_of(texts: Mapping[str, str], language: str | None, main: str) -> str:
    """The text of a language: see `Tmx` for the order of its regions."""
    names = [name for name in texts if _matches(name, language or "")]
    names.sort(key=lambda name: (not _matches(language or "", name), not _matches(main, name)))
    return texts[names[0]] if names else ""


@dataclass(frozen=True)
class LinkedUnit:
    """A sentence pair with its words and the links between them.

    Attributes:
        texts: source and target.
        words: of each; links count them from 0.
        links: as `regard align` writes them.
    """

    texts: tuple[str, str]
    words: tuple[Sequence[str], Sequence[str]]
    links: str


def tmx_lines(units: Iterator[LinkedUnit], languages: tuple[str, str]) -> Iterator[str]:
    """The lines of a translation memory. Words and links are properties: "x-words" and "x-links"."""
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield '<tmx version="1.4">'
    yield (
        '<header creationtool="regard" creationtoolversion="1" segtype="sentence" o-tmf="text" '
        f'adminlang="en" srclang={quoteattr(languages[0])} datatype="plaintext"/>'
    )
    yield "<body>"
    for unit in units:
        yield f'<tu><prop type="x-links">{escape(unit.links)}</prop>'
        for language, text, words in zip(languages, unit.texts, unit.words, strict=True):
            yield (
                f'<tuv xml:lang={quoteattr(language)}><prop type="x-words">{_escaped(" ".join(words))}</prop>'
                f"<seg>{_escaped(text)}</seg></tuv>"
            )
        yield "</tu>"
    yield "</body>"
    yield "</tmx>"


# Characters that no XML file may hold, even as references.
_FORBIDDEN = dict.fromkeys(
    [*(n for n in range(32) if n not in (9, 10, 13)), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF], " "
)


def _escaped(text: str) -> str:
    return escape(text.translate(_FORBIDDEN), {"\r": "&#13;"})  # not the line end of the file
