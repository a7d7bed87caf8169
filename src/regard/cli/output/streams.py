"""The three standard streams: their encoding, their errors, and streams that are closed."""

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from regard import files
from regard.errors import DataError

# Characters that control a terminal: escapes, marks of direction, and line ends.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
# The most sentences, and the most characters, that are translated together.
LINES, CHARACTERS = 256, 2**20


def claim() -> None:
    """Open the null device on standard descriptors that are closed, before some file gets their number."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def write_utf8() -> None:
    """Write UTF-8 in every locale; characters that cannot be encoded become escapes."""
    for stream, name in ((sys.stdout, "standard output"), (sys.stderr, "standard error")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
            _name_faults(stream, name)


def _name_faults(stream: io.TextIOWrapper, name: str) -> None:
    """Put the stream's name into its errors, as errors of files have the file's name."""

    def named(call: Callable[..., Any]) -> Callable[..., Any]:
        def write(*given: Any) -> Any:
            try:
                return call(*given)
            except OSError as fault:
                fault.filename = name
                raise

        return write

    for method in ("write", "flush"):
        setattr(stream, method, named(getattr(type(stream), method).__get__(stream)))


def printable(text: str) -> str:
    """Text in which control characters are shown as escapes, so that a terminal does not obey them.

    >>> printable("a\\x1b[31mb")
    'a\\\\u001b[31mb'
    """
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def abandon(*streams: TextIO | None) -> None:
    """Let the interpreter end without another attempt to write to a closed pipe or a full disk."""
    for stream in streams or (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())  # type: ignore[union-attr]
            os.close(null)


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def output() -> TextIO:
    """Standard output. Raises `DataError` when it is closed, before any work."""
    if sys.stdout is None:
        raise DataError("standard output is closed: redirect it to a file, or to /dev/null")
    return sys.stdout


@contextlib.contextmanager
def destination(path: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that gets its name only when the block ends without a fault."""
    if path is None:
        yield output()
        return
    with (
        files.replacing(path) as unfinished,
        open(unfinished, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as out,
    ):
        yield out


def standard_input() -> BinaryIO:
    """The bytes of standard input. Raises `DataError` when it is closed."""
    if sys.stdin is None or sys.stdin.closed:
        raise DataError(
            "standard input is closed: give sentences as arguments, or a file: "
            "regard translate --input text"
        )
    return sys.stdin.buffer


def argument(text: str) -> str:
    """An argument decoded as UTF-8 in every locale; invalid bytes become U+FFFD."""
    try:
        return os.fsencode(text).decode("utf-8", "replace")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")


def chunks(lines: Iterable[str], most_lines: int = LINES) -> Iterator[list[str]]:
    """Lines, a bounded number and length at a time."""
    chunk: list[str] = []
    characters = 0
    try:
        for line in lines:
            chunk.append(line)
            characters += len(line) + 1  # counted so that endless empty lines fill a chunk
            if len(chunk) >= most_lines or characters >= CHARACTERS:
                yield chunk
                chunk, characters = [], 0
    except DataError:  # the lines before the faulty one are still translated
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk
