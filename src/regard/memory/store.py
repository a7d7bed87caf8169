"""A memory as a folder: vectors in files that only grow, and all else in SQLite.

    current             the name of the folder that counts, replaced as a whole when a memory is compacted
    1/memory.sqlite     counts, payloads, names, deletions, checksums (write-ahead log)
    1/keys, 1/values    vectors, one after another; no values where they are the keys
    1/codes, 1/lengths  keys in 8 bits and what bounds their errors, where they were asked for (`codes`)

A commit forces the vectors to the disk and then ends one transaction. Before that the vectors do not count, so a kill
or a power cut leaves the memory of the last commit. Readers keep the counts of their snapshot, and no entry changes
after its commit: another value or payload is a new entry, and the old one is deleted.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from regard import files
from regard.memory.file import MemoryFileError
from regard.memory.records import (
    CODES,
    COLUMNS,
    STATEMENTS,
    TABLES,
    VECTORS,
    Kind,
    State,
    digest,
    entry_rows,
    keep,
    state_of,
    sum_of,
)
from regard.memory.vectors import VectorFile, block_rows, row_bytes

FORMAT, VERSION = "regard.memory", 2
CURRENT, DATABASE, LOCK = "current", "memory.sqlite", ".writing.lock"
MANY = 8  # a block of codes has so many times the rows of a block of keys
FAR = 1000  # rows that a statement takes at a time


class Store:
    """The files of a memory, open for reading or writing.

    Raises:
        MemoryFileError: the folder is no memory, is damaged, or another process writes to it.
        OSError: it cannot be read or written.
    """

    def __init__(self, folder: Path, *, write: bool = False) -> None:
        self.folder, self.write = folder, write
        self._lock, self._files = ExitStack(), ExitStack()
        self._turn = threading.RLock()  # threads write one after another
        self._is_behind = False  # an interrupted commit may count without being seen
        self._leave()
        try:
            if write:
                self._hold()
                if not (folder / CURRENT).exists():
                    self._begin()
            self._enter_current()
            if write:
                self._remove_old()
                for each in self._vectors.values():
                    each.cut()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the files, and let others write."""
        self._leave()
        self._lock.close()

    def _leave(self) -> None:
        self._files.close()
        self._vectors: dict[str, VectorFile] = {}
        self._database: sqlite3.Connection | None = None

    def _hold(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if strangers := [each.name for each in self.folder.iterdir() if not _is_ours(each)]:
            _refuse(
                self.folder,
                f"holds {strangers[0]}, which is no part of a memory: choose another folder",
            )
        try:
            self._lock.enter_context(files.locked(self.folder / LOCK))
        except files.HeldError as held:
            _refuse(
                self.folder,
                f"process {held.holder} is writing to it: wait until it ends, or open it for reading",
            )

    def _begin(self) -> None:
        if any(self.folder.glob("*/keys")):
            _refuse(self.folder, f"holds vectors, but its file {CURRENT!r} is missing: damaged")
        self._make("1", State())
        self._let_count("1")
        files.sync_folder(self.folder.parent)

    def _make(self, name: str, state: State) -> None:
        """Make a generation of the memory without entries."""
        place = self.folder / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        path = place / DATABASE
        with _blaming(path), closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(TABLES)
            keep(connection, state)
            connection.commit()

    def _let_count(self, name: str) -> None:
        files.sync_folder(self.folder / name)
        files.write(self.folder / CURRENT, f"{FORMAT} {VERSION} {name}\n".encode())

    def _remove_old(self) -> None:
        """Remove the generations that do not count: those of an interrupted or a finished compaction."""
        name = self._current()
        for path in self.folder.iterdir():
            if path.name.isdecimal() and path.name != name:
                shutil.rmtree(path, ignore_errors=True)

    def _current(self) -> str:
        try:
            words = files.read(self.folder / CURRENT, 100).decode().split()
        except FileNotFoundError:
            _refuse(self.folder, f"is no memory: it has no file {CURRENT!r}")
        except UnicodeDecodeError:
            words = []
        if words[:1] == [FORMAT] and len(words) == 3 and words[1] != str(VERSION):
            _refuse(self.folder, f"is of version {words[1]}, this Regard reads {VERSION}")
        if len(words) != 3 or words[0] != FORMAT or not words[2].isdecimal():
            _refuse(self.folder / CURRENT, "does not name a part of the memory: damaged")
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
                _refuse(path, "is a link: damaged")
        if not self._path.is_file():
            _refuse(self._path, "is missing: damaged")
        with _blaming(self._path):
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
        with _blaming(self._path):
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

    def append(
        self,
        key: Tensor,
        value: Tensor | None,
        payloads: Sequence[Any] | None,
        names: Sequence[str | None] | None,
        kinds: dict[str, Kind | None],
        replaced: Iterable[int] = (),
        codes: dict[str, Tensor] | None = None,
    ) -> None:
        """Commit entries behind the last one, and the deletion of those that they replace.

        Args:
            key: vectors, in the precision of the file.
            value: likewise, or None where the keys are the values.
            payloads: one for each entry, or None.
            names: likewise.
            kinds: of the columns, for the first entries.
            replaced: positions.
            codes: the rows of the columns of `CODES`, for a memory that has them.

        Raises:
            ValueError: JSON cannot hold a payload.
            OSError: the disk is full, or a file cannot be written.
        """
        columns = {"keys": key} | ({} if value is None else {"values": value}) | (codes or {})
        with self._writing():
            start, count = self.state.rows, len(key)
            rows_from = self.state.rows_from
            if rows_from is None and (payloads is not None or names is not None):
                rows_from = start
            entries = [] if rows_from is None else list(entry_rows(start, count, payloads, names))
            named = self.state.named + sum(name is not None for name in names or ())
            state = replace(self.state, rows=start + count, named=named, rows_from=rows_from)
            if start == 0:
                described: dict[str, Any] = kinds
                state = replace(state, **described)
                for name in columns:
                    self._open_vectors(name, kinds)
                    self._vectors[name].follow(0, [])
            state, deletions = self._without(state, replaced)
            checksums = [
                (name, block, check)
                for name, rows in columns.items()
                for block, check in self._vectors[name].append(rows).items()
            ]
            with self._commit(state) as database:
                database.executemany("INSERT INTO entries VALUES (?, ?, ?, ?)", entries)
                database.executemany("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?)", checksums)
                database.executemany("INSERT INTO deletions VALUES (?)", deletions)

    def add_columns(
        self, kinds: dict[str, Any], rows: Callable[[int, int], dict[str, Tensor]]
    ) -> None:
        """Commit more columns for the entries so far.

        Args:
            kinds: those of the new columns.
            rows: computes them for the entries of a block.
        """
        with self._writing():
            checksums: dict[str, dict[int, bytes]] = {name: {} for name in kinds}
            for name in kinds:
                self._open_vectors(name, self.state.kinds | kinds)
                self._vectors[name].follow(0, [])
                self._vectors[name].cut()
            for start, stop in self.spans():
                for name, vectors in rows(start, stop).items():
                    checksums[name] |= self._vectors[name].append(vectors)
                    self._vectors[name].follow(stop, list(checksums[name].values()))
            with self._commit(replace(self.state, **kinds)) as database:
                checked = [
                    (name, block, check)
                    for name, blocks in checksums.items()
                    for block, check in blocks.items()
                ]
                database.executemany("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?)", checked)

    def delete(self, positions: Iterable[int]) -> None:
        """Commit the deletion of entries; their vectors stay in the files until the memory is compacted."""
        with self._writing():
            state, deletions = self._without(self.state, positions)
            with self._commit(state) as database:
                database.executemany("INSERT INTO deletions VALUES (?)", deletions)

    def _without(self, state: State, positions: Iterable[int]) -> tuple[State, list[tuple[int]]]:
        """The counts without these entries, and the new rows of the deletions."""
        new = sorted(set(positions) - set(self.deleted))
        named = state.named
        for portion in _portions(new):
            marks = ",".join("?" * len(portion))
            query = f"SELECT count(name) FROM entries WHERE position IN ({marks})"
            named -= self._row(query, portion)[0]
        total = sum_of(new, state.deletions)
        state = replace(state, deleted=state.deleted + len(new), deletions=total, named=named)
        return state, [(position,) for position in new]

    def set_components(self, components: dict[str, Any]) -> None:
        """Commit which score, normaliser and encoder read the memory."""
        with self._writing(), self._commit(replace(self.state, components=components)):
            pass

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
        with self._turn, _blaming(self._path):
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
            with _blaming(self._path):
                yield (
                    None if name is None else str(json.loads(name)),
                    json.loads(payload) if isinstance(payload, str) else payload,
                )

    def place_of(self, name: str) -> int | None:
        """The first entry of this name that is not deleted, or None."""
        query = "SELECT position FROM entries WHERE name = ? AND position < ? ORDER BY position"
        with self._turn, _blaming(self._path):
            rows = self._connection().execute(query, (json.dumps(name), self.state.rows))
            return next((place for (place,) in rows if not self._is_deleted(place)), None)

    def _is_deleted(self, position: int) -> bool:
        """Whether the snapshot is without this entry."""
        place = bisect_left(self.deleted, position)
        return self.deleted[place : place + 1] == [position]

    def compacted(self) -> None:
        """Write the entries that are not deleted into new files, which replace the old ones as a whole."""
        with self._writing():
            name = str(int(self.place.name) + 1)
            twin = object.__new__(Store)
            twin.__dict__ |= self.__dict__ | {"_files": ExitStack(), "_vectors": {}}
            try:
                self._make(name, State(components=self.state.components))
                with twin._files:
                    twin._enter(name)
                    self._copy(twin)
                self._let_count(name)
            except BaseException:
                if self._current() != name:
                    shutil.rmtree(self.folder / name, ignore_errors=True)
                raise
            self._leave()
            self._enter(name)
            self._remove_old()

    def _copy(self, twin: Store) -> None:
        """Append the entries that are not deleted to another store, block by block."""
        kinds = self.state.kinds
        deleted = set(self.deleted)
        for start, stop in self.spans():
            rows = [row for row in range(start, stop) if row not in deleted]
            if rows:
                picks = torch.tensor(rows) - start
                columns = {
                    name: self._vectors[name].read(start, stop)[picks]
                    for name, kind in kinds.items()
                    if kind is not None
                }
                names, payloads = zip(*map(self.entry, rows), strict=True)
                key, value = columns.pop("keys"), columns.pop("values", None)
                twin.append(key, value, payloads, names, kinds, codes=columns)

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

    def _connection(self) -> sqlite3.Connection:
        if self._database is None:
            _refuse(self.folder, "was closed: open it again")
        return self._database

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if not self.write:
            _refuse(self.folder, "opened for reading: open it with write=True")
        with self._turn:
            self._connection()
            if self._is_behind:
                self._follow()
            yield

    @contextmanager
    def _commit(self, state: State) -> Iterator[sqlite3.Connection]:
        self._is_behind = True
        with self._transaction() as database:
            yield database
            keep(database, state)
        self._follow()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        database = self._connection()
        with self._turn, _blaming(self._path):
            database.execute("BEGIN IMMEDIATE" if self.write else "BEGIN")
            try:
                yield database
                database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    database.execute("ROLLBACK")
                raise

    def _row(self, query: str, values: Sequence[Any]) -> Any:
        with self._turn, _blaming(self._path):
            return self._connection().execute(query, values).fetchone()

    def _damaged(self, reason: str) -> NoReturn:
        _refuse(self._path, f"damaged: {reason}")


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Name the database in what its content or the disk raises."""
    try:
        yield
    except MemoryFileError:
        raise
    except sqlite3.OperationalError as fault:
        raise OSError(f"{path}: {fault}") from fault
    except (sqlite3.Error, ValueError, LookupError, TypeError, RecursionError) as fault:
        raise MemoryFileError(f"{path}: damaged: {fault}") from fault


def _refuse(path: Path, reason: str) -> NoReturn:
    raise MemoryFileError(f"{path}: {reason}")


def _is_ours(path: Path) -> bool:
    return path.name.isdecimal() or path.name.startswith(".") or path.name == CURRENT


def _portions(items: list[int]) -> Iterator[list[int]]:
    return (items[start : start + FAR] for start in range(0, len(items), FAR))
