"""Files of formats: a format reads a file into passages of text and writes it with their translations."""

from collections.abc import Callable, Mapping

from regard.translation.formats import markdown, messages, pages, subtitles, xliff
from regard.translation.formats.document import Document, decode

__all__ = ["FORMATS", "Document", "decode"]

# The reader of each format, by the ending of its files: from the decoded text and the name of a file.
FORMATS: Mapping[str, Callable[[str, str], Document]] = {
    "srt": subtitles.SRT,
    "vtt": subtitles.VTT,
    "po": messages.read,
    "html": pages.read,
    "htm": pages.read,
    "xlf": xliff.read,
    "xliff": xliff.read,
    "md": markdown.read,
    "markdown": markdown.read,
}
