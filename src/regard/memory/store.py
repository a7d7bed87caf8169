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

import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard import files
from regard.memory.records import TABLES, Kind, State, entry_rows, keep, sum_of
from regard.memory.snapshot import CURRENT, DATABASE, FORMAT, VERSION, Snapshot, blaming, refuse

LOCK = ".writing.lock"
FAR = 1000  # rows that a statement takes at a time


class Store(Snapshot):
    """The files of a memory, open for reading or writing.

    Raises:
        MemoryFileError: the folder is no memory, is damaged, or another process writes to it.
        OSError: it cannot be read or written.
    """

    def __init__(self, folder: Path, *, write: bool = False) -> None:
        super().__init__(folder, write=write)
        self._lock = ExitStack()
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

    def _hold(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if strangers := [each.name for each in self.folder.iterdir() if not _is_ours(each)]:
            refuse(
                self.folder,
                f"holds {strangers[0]}, which is no part of a memory: choose another folder",
            )
        try:
            self._lock.enter_context(files.locked(self.folder / LOCK))
        except files.HeldError as held:
            refuse(
                self.folder,
                f"process {held.holder} is writing to it: wait until it ends, or open it for reading",
            )

    def _begin(self) -> None:
        if any(self.folder.glob("*/keys")):
            refuse(self.folder, f"holds vectors, but its file {CURRENT!r} is missing: damaged")
        self._make("1", State())
        self._let_count("1")
        files.sync_folder(self.folder.parent)

    def _make(self, name: str, state: State) -> None:
        """Make a generation of the memory without entries."""
        place = self.folder / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        path = place / DATABASE
        with blaming(path), closing(sqlite3.connect(path)) as connection:
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

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if not self.write:
            refuse(self.folder, "opened for reading: open it with write=True")
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


def _is_ours(path: Path) -> bool:
    return path.name.isdecimal() or path.name.startswith(".") or path.name == CURRENT


def _portions(items: list[int]) -> Iterator[list[int]]:
    return (items[start : start + FAR] for start in range(0, len(items), FAR))
