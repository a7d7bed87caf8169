"""Packed text: gzip, bzip2, xz and zstd, told by their first bytes and unpacked as they are read."""

import bz2
import io
import lzma
import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any, BinaryIO, cast

from regard.errors import ConfigurationError

# A file may ask for any room to be unpacked.
_ROOM = 2**27
_READ = 2**16
ENDINGS = (".gz", ".bz2", ".xz", ".zst")


class Unpacked(io.BufferedReader):
    """The bytes of a packed file; closing it closes the file.

    Attributes:
        kind: of the packing, for messages.
    """

    def __init__(self, kind: str, stream: Any, packed: BinaryIO) -> None:
        super().__init__(stream, _READ)
        self.kind, self.packed = kind, packed

    def close(self) -> None:
        try:
            super().close()
        finally:
            self.packed.close()


class _Stream(io.RawIOBase):
    """Streams of a decompressor of the standard library, one after the other."""

    def __init__(self, file: BinaryIO, start: Callable[[], Any]) -> None:
        self._file, self._start, self._decompressor = file, start, start()
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while self._decompressor is not None:
            data, self._rest = self._rest, b""
            if not data and self._decompressor.needs_input:
                data = self._file.read(_READ)
                if not data:
                    raise EOFError("the file ends before its data")
            unpacked = self._decompressor.decompress(data, len(buffer))
            if self._decompressor.eof:
                self._rest = self._decompressor.unused_data or self._file.read(_READ)
                # Zeros are padding of xz.
                self._decompressor = self._start() if self._rest.strip(b"\0") else None
            if unpacked:
                buffer[: len(unpacked)] = unpacked
                return len(unpacked)
        return 0


class _Gzip:
    """zlib's decompressor with the attributes of the others."""

    needs_input = True

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(16 + zlib.MAX_WBITS)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, length: int) -> bytes:
        result = self._zlib.decompress(self._zlib.unconsumed_tail + data, length)
        self.needs_input = not self._zlib.unconsumed_tail
        return result


def _zstd() -> Any:
    for module in ("compression.zstd", "backports.zstd"):  # of Python 3.14, and for older ones
        try:
            zstd = import_module(module)
        except ImportError:
            continue
        return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: 27})
    raise ConfigurationError(
        "backports.zstd is not installed, which reads zstd: pip install 'regard[formats]'"
    )


# The first bytes of packed files, and what unpacks one of their streams.
_KINDS: dict[bytes, tuple[str, Callable[[], Any]]] = {
    b"\x1f\x8b": ("gzip", _Gzip),
    b"BZh": ("bzip2", bz2.BZ2Decompressor),
    b"\xfd7zXZ\0": ("xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _ROOM)),
    b"\x28\xb5\x2f\xfd": ("zstd", _zstd),
}


def unpacked(file: BinaryIO) -> BinaryIO:
    """The bytes of an open file that can be peeked into, unpacked where it is packed."""
    head = cast(io.BufferedReader, file).peek(6)[:6]
    for start, (kind, open_stream) in _KINDS.items():
        if head.startswith(start):
            return Unpacked(kind, _Stream(file, open_stream), file)
    return file


def is_damage(error: Exception) -> bool:
    """Whether an error tells that packed data are damaged."""
    return isinstance(error, EOFError | zlib.error | lzma.LZMAError) or (
        type(error).__name__ == "ZstdError"  # of a library that may be absent
    )


def bare_name(name: str) -> str:
    """The name of a file without the ending of its packing: film.srt of film.srt.gz."""
    for ending in ENDINGS:
        if name.lower().endswith(ending):
            return name[: -len(ending)]
    return name
