"""The files of a memory in a folder (`store`), open at a commit: its counts, its vectors and its entries."""

import json
import os
import sqlite3
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from regard import files
from regard.memory.file import MemoryFileError
from regard.memory.records import (
    CODES,
    COLUMNS,
    STATEMENTS,
    VECTORS,
    Kind,
    digest,
    state_of,
    sum_of,
)
from regard.memory.vectors import VectorFile, block_rows, row_bytes

FORMAT, VERSION = "regard.memory", 2
CURRENT, DATABASE = "current", "memory.sqlite"
MANY = 8  # a block of codes has so many times the rows of a block of keys


class Snapshot:
    """A memory at its last commit, until `refresh`.

    Raises:
        MemoryFileError: the folder is no memory, or is damaged.
        OSError: it cannot be read.
    """

    def __init__(self, folder: Path, *, write: bool = False) -> None:
        self.folder, self.write = folder, write
        self._files = ExitStack()
        self._turn = threading.RLock()  # threads take turns at the database
        self._is_behind = False  # an interrupted commit may count without being seen
        self._leave()

    def _leave(self) -> None:
        self._files.close()
        self._vectors: dict[str, VectorFile] = {}
        self._database: sqlite3.Connection | None = None

    def _current(self) -> str:
        try:
            words = files.read(self.folder / CURRENT, 100).decode().split()
        except FileNotFoundError:
            refuse(self.folder, f"is no memory: it has no file {CURRENT!r}")
        except UnicodeDecodeError:
            words = []
        if words[:1] == [FORMAT] and len(words) == 3 and words[1] != str(VERSION):
            refuse(self.folder, f"is of version {words[1]}, this Regard reads {VERSION}")
        if len(words) != 3 or words[0] != FORMAT or not words[2].isdecimal():
            refuse(self.folder / CURRENT, "does not name a part of the memory: damaged")
        return words[2]

    def _enter_current(self) -> None:
        """Open the generation that counts: the next one where a compaction removed it meanwhile."""
        name = self._current()
        while True:
            try:
                self._enter(name)
                return
            except (MemoryFileError, OSError):
                self._leave()
                newer = self._current()
                if newer == name:
                    raise
                name = newer

    def _enter(self, name: str) -> None:
        """Open a generation at its last commit."""
        self.place = self.folder / name
        self._path = self.place / DATABASE
        for path in (self.place, self._path):
            if path.is_symlink():
                refuse(path, "is a link: damaged")
        if not self._path.is_file():
            refuse(self._path, "is missing: damaged")
        with blaming(self._path):
            self._database = self._connect()
            self._files.callback(self._database.close)
            for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "synchronous = FULL"):
                self._database.execute(f"PRAGMA {pragma}")
            query = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"
            if {statement for (statement,) in self._database.execute(query)} != STATEMENTS:
                self._damaged("its tables are not those of a memory")
        self._follow()

    def _connect(self) -> sqlite3.Connection:
        options = f"mode={'rw' if self.write else 'ro'}"
        has_log = self._path.with_name(f"{DATABASE}-wal").exists()
        if not (self.write or has_log or os.access(self.place, os.W_OK)):
            options += "&immutable=1"  # SQLite would make a log, which a read-only disk refuses
        return sqlite3.connect(
            f"{self._path.absolute().as_uri()}?{options}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
        )

    def refresh(self) -> None:
        """See what was committed since; after a compaction by another process the new files are opened."""
        self._connection()
        if self.write or self._current() == self.place.name:
            self._follow()
        else:
            self._leave()
            self._enter_current()

    def _follow(self) -> None:
        """Take the counts and checksums of the last commit."""
        with self._transaction() as database:
            row = database.execute("SELECT state, digest FROM about").fetchone()
            query = "SELECT position FROM deletions ORDER BY 1"
            deleted = [position for (position,) in database.execute(query)]
            query = "SELECT checksum FROM blocks WHERE vectors = ? ORDER BY block"
            checksums = {
                name: [check for (check,) in database.execute(query, (name,))] for name in COLUMNS
            }
        with blaming(self._path):
            state = state_of(row)
            if (len(deleted), sum_of(deleted)) != (state.deleted, state.deletions):
                self._damaged("its deletions are not those that it counts")
            if deleted and not 0 <= deleted[0] <= deleted[-1] < state.rows:
                self._damaged("it deletes entries that it does not have")
        for name, kind in state.kinds.items():
            if kind is not None:
                if name not in self._vectors:
                    self._open_vectors(name, state.kinds)
                self._vectors[name].follow(state.rows, checksums[name])
        self.state, self.deleted, self._is_behind = state, deleted, False

    def _open_vectors(self, name: str, kinds: dict[str, Kind | None]) -> None:
        """Open the file of a column, in place of one that an interrupted write opened."""
        if name in self._vectors:
            self._vectors.pop(name).close()
        present = [kind for column in VECTORS if (kind := kinds.get(column)) is not None]
        rows = block_rows(*(row_bytes(*kind) for kind in present)) * (MANY if name in CODES else 1)
        dtype, width = kinds[name]  # type: ignore[misc]
        file = VectorFile(self.place / name, dtype, width, rows, write=self.write)
        self._vectors[name] = file
        self._files.callback(file.close)
        if self.write:
            files.sync_folder(self.place)

    def spans(self, name: str = "keys") -> list[tuple[int, int]]:
        """The first row of each block of a column, and the one after its last."""
        self._connection()
        rows = self.state.rows
        block = self._vectors[name].block if rows else 1
        return [(start, min(start + block, rows)) for start in range(0, rows, block)]

    def vectors(self, name: str) -> VectorFile:
        """The file of the keys or the values; that of the keys where the values are the keys."""
        self._connection()
        return self._vectors["keys" if self.state.kinds[name] is None else name]

    def entry(self, position: int) -> tuple[str | None, Any]:
        """The name and the payload of an entry.

        Raises:
            MemoryFileError: they are damaged.
        """
        (entry,) = self.entries(position, position + 1)
        return entry

    def entries(self, start: int, stop: int) -> Iterator[tuple[str | None, Any]]:
        """The names and payloads of entries from `start` to before `stop`.

        Raises:
            MemoryFileError: they are damaged.
        """
        query = "SELECT position, name, payload, digest FROM entries WHERE position >= ? AND position < ?"
        with self._turn, blaming(self._path):
            rows = {row[0]: row for row in self._connection().execute(query, (start, stop))}
        for position in range(start, stop):
            if position not in rows:
                if self.state.rows_from is not None and position >= self.state.rows_from:
                    self._damaged(f"entry {position} is missing")
                yield None, None
                continue
            _, name, payload, checksum = rows[position]
            if checksum != digest(position, name, payload):
                self._damaged(f"the payload of entry {position} has another checksum")
            with blaming(self._path):
                yield (
                    None if name is None else str(json.loads(name)),
                    json.loads(payload) if isinstance(payload, str) else payload,
                )

    def place_of(self, name: str) -> int | None:
        """The first entry of this name that is not deleted, or None."""
        query = "SELECT position FROM entries WHERE name = ? AND position < ? ORDER BY position"
        with self._turn, blaming(self._path):
            rows = self._connection().execute(query, (json.dumps(name), self.state.rows))
            return next((place for (place,) in rows if not self._is_deleted(place)), None)

    def _is_deleted(self, position: int) -> bool:
        """Whether the snapshot is without this entry."""
        place = bisect_left(self.deleted, position)
        return self.deleted[place : place + 1] == [position]

    def verify(self) -> Iterator[str]:
        """Compare every checksum; yields the name of each part that is sound.

        Raises:
            MemoryFileError: a part is damaged.
        """
        report = self._row("PRAGMA integrity_check", ())[0]
        if report != "ok":
            self._damaged(report)
        rows = self.state.rows
        for position in range(rows if self.state.rows_from is None else self.state.rows_from, rows):
            self.entry(position)
        yield DATABASE
        for name in [name for name in COLUMNS if self.state.kinds[name] is not None]:
            for start, _ in self.spans(name):
                self._vectors[name].recheck(start)
            yield name

    @property
    def is_closed(self) -> bool:
        return self._database is None

    def _connection(self) -> sqlite3.Connection:
        if self._database is None:
            refuse(self.folder, "was closed: open it again")
        return self._database

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        database = self._connection()
        with self._turn, blaming(self._path):
            database.execute("BEGIN IMMEDIATE" if self.write else "BEGIN")
            try:
                yield database
                database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    database.execute("ROLLBACK")
                raise

    def _row(self, query: str, values: Sequence[Any]) -> Any:
        with self._turn, blaming(self._path):
            return self._connection().execute(query, values).fetchone()

    def _damaged(self, reason: str) -> NoReturn:
        refuse(self._path, f"damaged: {reason}")


@contextmanager
def blaming(path: Path) -> Iterator[None]:
    """Name the database in what its content or the disk raises."""
    try:
        yield
    except MemoryFileError:
        raise
    except sqlite3.OperationalError as fault:
        raise OSError(f"{path}: {fault}") from fault
    except (sqlite3.Error, ValueError, LookupError, TypeError, RecursionError) as fault:
        raise MemoryFileError(f"{path}: damaged: {fault}") from fault


def refuse(path: Path, reason: str) -> NoReturn:
    """Raise an error that names the file or folder."""
    raise MemoryFileError(f"{path}: {reason}")
