"""Parallel text from files; errors name the file, the line and the byte."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from regard.errors import DataError
from regard.translation.text.normalisation import normalise
from regard.translation.text.packed import Unpacked, is_damage, unpacked

BOM = b"\xef\xbb\xbf"
# The marks of other encodings, the longer ones first: that of UTF-32 begins like one of UTF-16.
_FOREIGN = {
    b"\xff\xfe\0\0": "UTF-32",
    b"\0\0\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
# The first bytes of fastText's binary vectors and of pickles.
_BINARY = (b"\xba\x16\x4f\x2f", *(b"\x80%c" % n for n in range(2, 6)))
# Files that hold no lines of text: a place and the bytes there, what they are, and what to do.
_ZIP, _SAVE = b"PK\x03\x04", "save its sentences as text"
_KINDS = (
    (0, b"\x89PNG\r\n", "a picture", _SAVE),
    (0, b"\xff\xd8\xff", "a picture", _SAVE),
    (0, b"GIF89a", "a picture", _SAVE),
    (0, b"%PDF-", "a PDF document", _SAVE),
    (0, _ZIP, "a zip archive", "unpack it with `unzip`"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it with `7z x`"),
    (257, b"ustar", "a tar archive", "unpack it with `tar -xf`"),
)
# Documents of Word, Excel and LibreOffice are zip archives, whose first entry has one of these names.
_OFFICE = (
    *(b"[Content_Types].xml", b"_rels/", b"docProps/", b"word/", b"xl/"),
    b"mimetypeapplication/",
)
# A file with a longer line is hardly text with one sentence a line.
LONGEST_LINE = 64 * 2**20
# Text is packed to a tenth at best, a file that is made to fill the memory to a thousandth. Small ones are not checked.
_MOST_UNPACKED = 250
_UNSUSPECTED = 8 * 2**20
_BLOCK = 2**16


class Pair(NamedTuple):
    """A sentence and its translation, normalised, with the settings of a pair in training.

    Attributes:
        tags: tags of the source (see `Tokenizer.tagged`).
        weight: how many times one pass over the corpus takes the pair.
        links: the links between its words, as `regard align` writes them.
        synthetic: whether a model made one side.
    """

    source: str
    target: str
    tags: tuple[str, ...] = ()
    weight: float = 1.0
    links: str = ""
    synthetic: bool = False


def by_people(pairs: Iterable[Pair]) -> list[Pair]:
    """The pairs of which no model made a side."""
    return [pair for pair in pairs if not pair.synthetic]


@dataclass
class Pairs:
    """Sentence pairs and how many were left out because a side was empty."""

    pairs: list[Pair] = field(default_factory=list)
    skipped: int = 0


@dataclass(frozen=True)
class Tsv:
    """A file of tab-separated columns, one sentence pair a line; columns count from 0."""

    path: Path
    source_column: int = 0
    target_column: int = 1

    @property
    def paths(self) -> list[Path]:
        return [self.path]

    @property
    def width(self) -> int:
        """The least number of columns."""
        return max(self.source_column, self.target_column) + 1

    def columns(self, line: str) -> tuple[str, str] | None:
        """Source and target of a line: empty for an empty line, None where it has too few columns."""
        if not line.strip():
            return "", ""
        columns = line.split("\t")
        if len(columns) < self.width:
            return None
        return columns[self.source_column], columns[self.target_column]

    def rows(self) -> Iterator[tuple[str, str]]:
        """Source and target of every line. Raises `DataError` for missing columns and unreadable text."""
        for number, line in enumerate(read_lines(self.path), start=1):
            row = self.columns(line)
            if row is None:
                raise DataError(
                    f"{self.path}:{number}: expected at least {self.width} tab-separated columns, "
                    f"got {line.count(chr(9)) + 1}"
                )
            yield row


@dataclass(frozen=True)
class Parallel:
    """Two files whose lines belong together."""

    source: Path
    target: Path

    @property
    def paths(self) -> list[Path]:
        return [self.source, self.target]

    def rows(self) -> Iterator[tuple[str, str]]:
        """Source and target of every line. Raises `DataError` for unequal line counts and unreadable text."""
        source, target = list(read_lines(self.source)), list(read_lines(self.target))
        if len(source) != len(target):
            raise DataError(
                f"{self.source} has {len(source)} lines and {self.target} has {len(target)}: "
                "line n of one must be the translation of line n of the other"
            )
        return zip(source, target, strict=True)


class Corpus(Protocol):
    """Sentence pairs in a file, or in two."""

    @property
    def paths(self) -> list[Path]:
        """Its files."""

    def rows(self) -> Iterator[tuple[str, str]]:
        """Source and target of every line or unit, empty sides included."""


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, plain or packed; only LF (or CRLF) ends a line.

    A byte order mark at the start is dropped. Raises `DataError` naming file, line and byte where the text is not
    UTF-8, and naming the file when it cannot be read.
    """
    with open_text(path) as file:
        yield from decoded_lines(file, str(path))


def decoded_lines(file: BinaryIO, name: str) -> Iterator[str]:
    """The lines of an open binary stream, decoded strictly (see `read_lines`)."""
    for number, raw in enumerate(raw_lines(file, name), start=1):
        line = raw.removeprefix(BOM) if number == 1 else raw
        try:
            yield line.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError as fault:
            raise DataError(
                f"{name}:{number}: byte {fault.start + 1} of the line (0x{line[fault.start]:02x}) is not UTF-8: "
                "convert the file to UTF-8 or mend the line"
            ) from None


def raw_lines(file: BinaryIO, name: str, longest: int = LONGEST_LINE) -> Iterator[bytes]:
    """The lines of an open binary stream. Raises `DataError` for a stream that is damaged or is not UTF-8."""
    reads = _reads(file, name, partial(file.readline, longest + 1), "line")
    for number, raw in enumerate(reads, start=1):
        if number == 1:
            _refuse_foreign(raw, name)
        if len(raw) > longest:
            raise DataError(f"{name}:{number}: the line is longer than {longest} bytes")
        yield raw


def raw_blocks(file: BinaryIO, name: str) -> Iterator[bytes]:
    """The bytes of an open binary stream, in blocks. Raises `DataError` for a stream that is damaged."""
    return _reads(file, name, partial(file.read, _BLOCK), "block")


def _reads(file: BinaryIO, name: str, read: Callable[[], bytes], unit: str) -> Iterator[bytes]:
    """What repeated calls of `read` give, until the end of a file, plain or packed."""
    number = size = 0
    packing = file if isinstance(file, Unpacked) else None
    try:
        while raw := read():
            number, size = number + 1, size + len(raw)
            if packing and size > max(_UNSUSPECTED, _MOST_UNPACKED * packing.packed.tell()):
                raise DataError(
                    f"{name}: {packing.kind} data that unpacks to more than {_MOST_UNPACKED} times its size is"
                    " not text"
                )
            yield raw
    except OSError as fault:
        if packing is None or fault.errno:
            raise DataError(f"{name}: cannot be read: {fault.strerror or fault}") from None
        raise DataError(
            f"{name}: broken {packing.kind} data after {unit} {number}: {fault}"
        ) from None
    except Exception as fault:
        if packing is None or not is_damage(fault):
            raise
        raise DataError(
            f"{name}: broken {packing.kind} data after {unit} {number}: {fault}"
        ) from None


def read_pairs(corpus: Corpus, links: Path | None = None) -> Pairs:
    """Every sentence pair of a corpus, normalised; pairs with an empty side are counted and left out.

    `links` is a file of word links, line for line. They are not parsed yet.

    Raises:
        DataError: unequal line counts, missing columns or unreadable text.
    """
    pairs = read_aligned(corpus)
    if links is not None:
        link_lines = list(read_lines(links))
        if len(pairs) != len(link_lines):
            raise DataError(
                f"{links} has {len(link_lines)} lines of word links for {len(pairs)} lines of text: "
                "line n must hold the links of pair n, and may be empty"
            )
        rows = zip(pairs, link_lines, strict=True)
        pairs = [pair._replace(links=line.strip()) for pair, line in rows]
    full = [pair for pair in pairs if pair.source and pair.target]
    return Pairs(full, len(pairs) - len(full))


def read_aligned(corpus: Corpus) -> list[Pair]:
    """Every line of a corpus, empty sides included, as an evaluation counts them."""
    return [Pair(normalise(source), normalise(target)) for source, target in corpus.rows()]


def open_text(path: Path) -> BinaryIO:
    """The bytes of a file, plain or packed. Raises `DataError` when it cannot be opened."""
    try:
        if path.is_dir():
            raise DataError(f"{path}: is a folder, expected a text file")
        return unpacked(path.open("rb"))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (OSError, ValueError) as fault:
        raise DataError(
            f"{path}: cannot be read: {getattr(fault, 'strerror', None) or fault}"
        ) from None


def _refuse_foreign(raw: bytes, name: str) -> None:
    """Raise `DataError` for binary files, and for UTF-16 and UTF-32: they begin with a mark or contain many NULs."""
    kinds = [(kind, advice) for place, mark, kind, advice in _KINDS if raw.startswith(mark, place)]
    if raw.startswith(_ZIP) and raw.startswith(_OFFICE, 30):
        kinds = [("a document of an office program", _SAVE)]
    for kind, advice in kinds:
        raise DataError(f"{name}: is {kind}, expected text: {advice}")
    if raw.startswith(_BINARY):
        raise DataError(f"{name}: a binary file, expected text")
    marked = [encoding for mark, encoding in _FOREIGN.items() if raw.startswith(mark)]
    if not marked and (len(raw) < 4 or 5 * raw.count(0) < 2 * len(raw)):
        return
    unmarked = "UTF-32LE", "UTF-32BE", "UTF-16LE", "UTF-16BE"
    encoding = max(marked or unmarked, key=lambda each: _letters(raw[:1000].decode(each, "ignore")))
    position = next(at for at, byte in enumerate(raw, start=1) if byte in b"\0\xfe\xff")
    raise DataError(
        f"{name}:1: byte {position} is not UTF-8, the file looks like {encoding}: "
        f"convert it with `iconv -f {encoding} -t UTF-8`"
    )


def _letters(text: str) -> int:
    return sum("!" <= character <= "~" for character in text)
