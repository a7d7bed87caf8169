"""Vectors in a file that only grows, in blocks whose checksums are compared on their first reading.

The first reading copies a block: if the file was cut or damaged, or the disk fails, it raises an error. Later readings
take the block from a mapping of the file, which needs no copy. Before each block they look at the length of the file,
and raise an error if it was cut. Two faults are left that end the process without an error, as in all programs that map
files: another program cuts the file in the millisecond between this look and the end of the block, or the disk fails
when the system reads a page again that it had dropped. Regard itself never cuts vectors that were committed: a writer
appends, and a file that `compact` removes keeps its content until it is closed.
"""

import os
import threading
from contextlib import suppress
from hashlib import blake2b
from io import FileIO
from mmap import ACCESS_READ, mmap
from pathlib import Path
from stat import S_ISREG
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor

from regard.memory import codes
from regard.memory.file import WIDEST, MemoryFileError

# Bytes of the widest vectors in a block: smaller ones cost calls, larger ones leave the caches.
BLOCK = 1 << 21
LANES = 509  # a prime number of words, so that a shift of the content changes the sums
CODED = "int8"  # rows of `codes`, as bytes
DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "uint8": torch.uint8,  # rows of bytes, for packages above
    CODED: torch.uint8,
}
FLOATS = ("float32", "float16", "bfloat16")


def kind_objection(dtype: str, width: int) -> str | None:
    """Why vectors of this kind cannot be stored, or None."""
    if dtype not in DTYPES:
        return f"vectors of type {dtype}: pass {', '.join(FLOATS)}"
    if type(width) is not int or not 1 <= width <= WIDEST:
        return f"vectors of {width} numbers: pass 1 to {WIDEST:,}"
    return None


def row_bytes(dtype: str, width: int) -> int:
    """The bytes of a vector in its file."""
    return codes.row_bytes(width) if dtype == CODED else width * DTYPES[dtype].itemsize


def block_rows(*sizes: int) -> int:
    """How many vectors a block has."""
    return max(1, BLOCK // max(sizes))


def aligned(size: int) -> np.ndarray:
    """Room for bytes at a multiple of 64, where numpy's is not: there a file is read at a fifth of the speed."""
    return torch.empty(size, dtype=torch.uint8).numpy()


def checksum(content: np.ndarray) -> bytes:
    """A digest of bytes: of the sums of every 509th word, so that it is as fast as memory is.

    Any change of one word, and any shift, changes a sum. It guards against damage, not against forgery.
    """
    stop = len(content) // (8 * LANES) * 8 * LANES
    words = torch.from_numpy(content[:stop]).view(torch.int64).view(-1, LANES)
    digest = blake2b(words.sum(0).numpy().tobytes(), digest_size=8)
    digest.update(content[stop:].tobytes() + len(content).to_bytes(8, "little"))
    return digest.digest()


class _Mapping:
    """The bytes of a file where the system keeps them, until the last array of them is gone.

    They are said to be writable, though a write ends the process: loops are compiled for such arrays, and torch warns
    of others.
    """

    def __init__(self, handle: int, size: int) -> None:
        self._content = np.frombuffer(mmap(handle, size, access=ACCESS_READ), np.uint8)
        interface = self._content.__array_interface__
        self.__array_interface__ = interface | {"data": (interface["data"][0], False)}


class VectorFile:
    """The vectors of a column: keys or values.

    Args:
        path: the file.
        dtype: a name in `DTYPES`.
        width: numbers in a vector.
        rows_in_block: vectors in a block.
        write: whether vectors may be appended.

    Raises:
        MemoryFileError: the file is damaged, cut or not there.
    """

    def __init__(
        self, path: Path, dtype: str, width: int, rows_in_block: int, *, write: bool
    ) -> None:
        self.path, self.width, self.block = path, width, rows_in_block
        self.dtype = DTYPES[dtype]
        self.is_coded = dtype == CODED
        self.row_bytes = row_bytes(dtype, width)
        self.columns = self.row_bytes // self.dtype.itemsize
        self._checksums: list[bytes] = []
        self._checked: dict[int, bytes] = {}  # the checksum that the content of a block had
        self._mapped = np.empty(0, np.uint8)
        self._turn = threading.Lock()  # threads share the place in the file
        flags = os.O_RDWR | os.O_CREAT if write else os.O_RDONLY
        for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"):  # a pipe is opened without waiting
            flags |= getattr(os, name, 0)
        try:
            handle = os.open(path, flags, 0o644)
        except OSError as fault:
            raise MemoryFileError(f"{path}: cannot be opened: {fault.strerror}") from fault
        if not S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise MemoryFileError(f"{path}: is no ordinary file")
        self._file = FileIO(handle, "r+b" if write else "rb")

    def close(self) -> None:
        self._mapped = np.empty(0, np.uint8)
        self._file.close()

    def follow(self, rows: int, checksums: list[bytes]) -> None:
        """Read so many vectors from now on, whose blocks have these checksums.

        Raises:
            MemoryFileError: the file is shorter.
        """
        size, expected = os.fstat(self._file.fileno()).st_size, rows * self.row_bytes
        if size < expected:
            raise MemoryFileError(
                f"{self.path}: has {size:,} bytes, its {rows:,} vectors take {expected:,}: it was cut"
            )
        blocks = -(-rows // self.block)
        if len(checksums) != blocks:
            raise MemoryFileError(
                f"{self.path}: {len(checksums)} checksums for {blocks} blocks of vectors: damaged"
            )
        self.rows, self._checksums = rows, checksums

    def cut(self) -> None:
        """Remove what an interrupted writer left behind the last vector."""
        self._file.truncate(self.rows * self.row_bytes)

    def append(self, vectors: Tensor) -> dict[int, bytes]:
        """Write vectors behind the last one and force them to the disk; the checksums of the changed blocks.

        They count from the next call of `follow`.

        Raises:
            MemoryFileError: the last block is damaged.
            OSError: the disk is full, or the file cannot be written.
        """
        first_block, partial = divmod(self.rows, self.block)
        if partial and not self._is_checked(first_block):  # its new checksum covers the old rows
            self._check(first_block)
        content = _bytes(vectors.detach().to("cpu", self.dtype).contiguous())
        try:
            with self._turn:
                self._file.seek(self.rows * self.row_bytes)
                while content:
                    content = content[self._file.write(content) :]
                getattr(os, "fdatasync", os.fsync)(self._file.fileno())
        except OSError as fault:
            with suppress(OSError):
                self.cut()
            raise OSError(fault.errno, fault.strerror, str(self.path)) from fault
        stop = self.rows + len(vectors)
        checksums = {
            block: checksum(self._content(block * self.block, min(stop, (block + 1) * self.block)))
            for block in range(first_block, -(-stop // self.block))
        }
        self._checked |= checksums
        return checksums

    def _is_checked(self, block: int) -> bool:
        return self._checked.get(block) == self._checksums[block]

    def recheck(self, start: int) -> None:
        """Compare the checksum of a block again.

        Raises:
            MemoryFileError: the block is damaged.
        """
        self._check(start // self.block)

    def _check(self, block: int) -> np.ndarray:
        """A copy of a block whose checksum is right."""
        self._checked.pop(block, None)
        begin, end = block * self.block, min(self.rows, (block + 1) * self.block)
        content = self._content(begin, end)
        if checksum(content) != self._checksums[block]:
            raise MemoryFileError(
                f"{self.path}: damaged in block {block}, rows {begin:,} to {end - 1:,}:"
                " its checksum is not that of its vectors"
            )
        self._checked[block] = self._checksums[block]
        return content

    def read(self, start: int, stop: int) -> Tensor:
        """Vectors of one block, in the precision of the file, where they lie: nobody may write to them.

        Raises:
            MemoryFileError: the file was cut, or the block is damaged.
        """
        return torch.from_numpy(self.loaded(start, stop).reshape(-1, self.row_bytes)).view(
            self.dtype
        )

    def loaded(self, start: int, stop: int) -> np.ndarray:
        """The bytes of what `read` returns."""
        begin, end = start * self.row_bytes, stop * self.row_bytes
        if not self._is_checked(block := start // self.block):
            first = block * self.block * self.row_bytes
            return self._check(block)[begin - first : end - first]
        handle = self._file.fileno()
        if os.fstat(handle).st_size < end:
            self._was_cut()
        mapped = self._mapped
        if len(mapped) < end:
            try:
                mapped = self._mapped = np.asarray(_Mapping(handle, self.rows * self.row_bytes))
            except (OSError, ValueError):  # a file system without mappings, or cut since the look
                return self._content(start, stop)
        return mapped[begin:end]

    def widened(self, vectors: Tensor, out: Tensor | None = None) -> Tensor:
        """What `read` returns as numbers of a floating type: rows of codes as the vectors they stand for."""
        if self.is_coded:
            return codes.decode(vectors, self.width, out)
        return vectors if out is None else out[: len(vectors)].copy_(vectors)

    def pick(self, places: Tensor) -> Tensor:
        """A copy of the vectors at ascending places, as `read` returns them.

        Raises:
            MemoryFileError: the file was cut, or a block is damaged.
        """
        counts = (places // self.block).unique_consecutive(return_counts=True)[1].tolist()
        picked = [
            self.read(int(run[0]), int(run[-1]) + 1)[run - run[0]] for run in places.split(counts)
        ]
        return torch.cat([torch.empty(0, self.columns, dtype=self.dtype), *picked])

    def _content(self, start: int, stop: int) -> np.ndarray:
        """A copy of the bytes of vectors."""
        content = aligned((stop - start) * self.row_bytes)
        remaining, place = content.data, start * self.row_bytes
        while remaining:
            try:
                count = self._read_at(remaining, place)
            except OSError as fault:
                raise OSError(fault.errno, fault.strerror, str(self.path)) from fault
            if not count:
                self._was_cut()
            remaining, place = remaining[count:], place + count
        return content

    def _was_cut(self) -> NoReturn:
        raise MemoryFileError(f"{self.path}: was cut while it was open")

    def _read_at(self, out: memoryview, place: int) -> int:
        """Read bytes from a place on; threads read at the same time where the system can say the place in the call."""
        if hasattr(os, "preadv"):
            return os.preadv(self._file.fileno(), [out], place)
        with self._turn:
            self._file.seek(place)
            return self._file.readinto(out) or 0


def _bytes(vectors: Tensor) -> memoryview:
    return vectors.reshape(-1).view(torch.uint8).numpy().data
