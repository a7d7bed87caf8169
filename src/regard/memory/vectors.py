"""Vectors in a file that only grows, read in blocks whose checksums are compared on their first reading."""

import os
import threading
from contextlib import suppress
from hashlib import blake2b
from io import FileIO
from pathlib import Path
from stat import S_ISREG

import numpy as np
import torch
from torch import Tensor

from regard.memory import codes
from regard.memory.file import WIDEST, MemoryFileError

# Bytes of the widest vectors in a block: smaller ones cost calls, larger ones leave the caches.
BLOCK = 1 << 21
GAP = 1 << 14  # bytes between vectors that are read over rather than in two calls
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
            self.read(self.rows - partial, self.rows)
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
        self._checked.pop(start // self.block, None)
        self.read(start, start + 1)

    def read(self, start: int, stop: int, out: np.ndarray | None = None) -> Tensor:
        """Vectors of one block, in the precision of the file.

        Args:
            start: the first row; that of a block where the block was not read before.
            stop: the row after the last.
            out: bytes to read into, so that no memory is taken for each block.

        Raises:
            MemoryFileError: the file was cut, or the block is damaged.
        """
        return torch.from_numpy(self.loaded(start, stop, out).reshape(-1, self.row_bytes)).view(
            self.dtype
        )

    def loaded(self, start: int, stop: int, out: np.ndarray | None = None) -> np.ndarray:
        """The bytes of what `read` returns."""
        block = start // self.block
        if not self._is_checked(block):
            begin, end = block * self.block, min(self.rows, (block + 1) * self.block)
            content = self._content(begin, end, out)
            if checksum(content) != self._checksums[block]:
                raise MemoryFileError(
                    f"{self.path}: damaged in block {block}, rows {begin:,} to {end - 1:,}:"
                    " its checksum is not that of its vectors"
                )
            self._checked[block] = self._checksums[block]
            return content[(start - begin) * self.row_bytes : (stop - begin) * self.row_bytes]
        return self._content(start, stop, out)

    def widened(self, vectors: Tensor, out: Tensor | None = None) -> Tensor:
        """What `read` returns as numbers of a floating type: rows of codes as the vectors they stand for."""
        if self.is_coded:
            return codes.decode(vectors, self.width, out)
        return vectors if out is None else out[: len(vectors)].copy_(vectors)

    def pick(self, places: Tensor) -> Tensor:
        """Vectors at ascending places, as `read` returns them; near ones are read together.

        Raises:
            MemoryFileError: the file was cut, or a block is damaged.
        """
        gap = max(1, GAP // self.row_bytes)
        starts_run = torch.ones(len(places), dtype=torch.bool)
        starts_run[1:] = (places[1:] - places[:-1] > gap) | (
            places[1:] // self.block != places[:-1] // self.block
        )
        runs = places.tensor_split(starts_run.nonzero().flatten()[1:]) if len(places) else ()
        picked = [
            self.read(int(run[0]), int(run[-1]) + 1)[run - run[0]] for run in runs if len(run)
        ]
        if not picked:
            return torch.empty(0, self.columns, dtype=self.dtype)
        return torch.cat(picked)

    def _content(self, start: int, stop: int, out: np.ndarray | None = None) -> np.ndarray:
        size = (stop - start) * self.row_bytes
        content = aligned(size) if out is None else out[:size]
        remaining, place = content.data, start * self.row_bytes
        while remaining:
            if not (count := self._read_at(remaining, place)):
                raise MemoryFileError(f"{self.path}: was cut while it was open")
            remaining, place = remaining[count:], place + count
        return content

    def _read_at(self, out: memoryview, place: int) -> int:
        """Read bytes from a place on; threads read at the same time where the system can say the place in the call."""
        if hasattr(os, "preadv"):
            return os.preadv(self._file.fileno(), [out], place)
        with self._turn:
            self._file.seek(place)
            return self._file.readinto(out) or 0


def _bytes(vectors: Tensor) -> memoryview:
    return vectors.reshape(-1).view(torch.uint8).numpy().data
