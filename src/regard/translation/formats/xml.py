"""XML that others wrote, read safely: entities stay as they are, no other file or address is read, memory is bounded.

lxml reads the file. It refuses elements that are nested more than 256 deep and texts of over 10 MB.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.translation.formats.document import library
from regard.translation.text.corpora import open_text, raw_blocks

# How lxml reads what others wrote. For `XMLParser`, `XMLPullParser` and `HTMLParser` alike.
SAFE: dict[str, bool] = {"no_network": True, "huge_tree": False, "remove_comments": True}
# A file with no end of an element in so many bytes is no list of short texts.
LARGEST_ELEMENT = 16 * 2**20


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
        **SAFE,
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
