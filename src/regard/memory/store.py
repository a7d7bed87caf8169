"""A memory as a folder: vectors in files that only grow, and all else in SQLite.

    current             the name of the folder that counts, replaced as a whole when a memory is compacted
    1/memory.sqlite     counts, payloads, names, deletions, checksums (write-ahead log)
    1/keys, 1/values    vectors, one after another; no values where they are the keys

A commit forces the vectors to the disk and then ends one transaction. Before that the vectors do not count, so a kill
or a power cut leaves the memory of the last commit. Readers keep the counts of their snapshot.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from regard import files
from regard.memory.file import MemoryFileError
from regard.memory.lists import no_constant
from regard.memory.vectors import DTYPES, VectorFile, block_rows

FORMAT, VERSION = "regard.memory", 2
CURRENT, DATABASE, LOCK = "current", "memory.sqlite", ".writing.lock"
WIDEST = 1 << 20
COLUMNS = ("keys", "values")
TABLES = """
CREATE TABLE about (id INTEGER PRIMARY KEY CHECK (id = 1), state TEXT, digest BLOB);
CREATE TABLE entries (position INTEGER PRIMARY KEY, name TEXT, payload, digest BLOB);
CREATE INDEX names ON entries (name) WHERE name IS NOT NULL;
CREATE TABLE deletions (position INTEGER PRIMARY KEY);
CREATE TABLE blocks (vectors TEXT, block INTEGER, checksum BLOB, PRIMARY KEY (vectors, block)) WITHOUT ROWID;
"""
FAR = 1000  # rows that a statement takes at a time


@dataclass(frozen=True)
class State:
    """The counts and kinds of a memory after a commit.

    Args:
        rows: vectors written, deleted ones too.
        deleted: how many of them are.
        named: entries with a name.
        rows_from: the first entry that has a row in the database, as all later ones have; None without any.
        deletions: the sum of the digests of the deleted positions.
        keys: precision and width of the keys; None before the first write.
        values: those of the values; None where they are the keys.
        components: score, normaliser and encoder, as `file.describe` gives them.
    """

    rows: int = 0
    deleted: int = 0
    named: int = 0
    rows_from: int | None = None
    deletions: int = 0
    keys: tuple[str, int] | None = None
    values: tuple[str, int] | None = None
    components: dict[str, Any] | None = None


class Store:
    """The files of a memory, open for reading or writing.

    Raises:
        MemoryFileError: the folder is no memory, is damaged, or another process writes to it.
        OSError: it cannot be read or written.
    """

    def __init__(self, folder: Path, *, write: bool = False, create: bool = True) -> None:
        self.folder, self.write = folder, write
        self._open = ExitStack()
        self._vectors: dict[str, VectorFile] = {}
        try:
            if write:
                self._hold()
                if create and not (folder / CURRENT).exists():
                    self._make("1", State())
                    self._let_count("1")
                self._remove_old()
            self._enter(self._current())
            if write:
                for each in self._vectors.values():
                    each.cut()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the files, and let others write."""
        self._open.close()
        self._vectors = {}

    def _hold(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if strangers := [each.name for each in self.folder.iterdir() if not _is_ours(each)]:
            _refuse(
                self.folder,
                f"holds {strangers[0]}, which is no part of a memory: choose another folder",
            )
        try:
            self._open.enter_context(files.locked(self.folder / LOCK))
        except files.HeldError as held:
            _refuse(
                self.folder,
                f"process {held.holder} is writing to it: wait until it ends, or open it for reading",
            )

    def _make(self, name: str, state: State) -> None:
        """Make a generation of the memory without entries."""
        place = self.folder / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        connection = sqlite3.connect(place / DATABASE)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(TABLES)
            _keep(connection, state)
            connection.commit()
        finally:
            connection.close()

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

    def _enter(self, name: str) -> None:
        """Open a generation at its last commit."""
        self.place = self.folder / name
        path = self.place / DATABASE
        if not path.is_file():
            _refuse(path, "is missing: damaged")
        with self._blaming():
            mode = "rw" if self.write else "ro"
            self._database = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode={mode}",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
            )
            self._open.callback(self._database.close)
            for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "synchronous = FULL"):
                self._database.execute(f"PRAGMA {pragma}")
        self.refresh()

    def refresh(self) -> None:
        """See what was committed since; after a compaction by another process the memory has to be opened again."""
        with self._transaction():
            row = self._database.execute("SELECT state, digest FROM about").fetchone()
            deleted = [
                row
                for (row,) in self._database.execute("SELECT position FROM deletions ORDER BY 1")
            ]
            checksums = {
                name: [
                    check
                    for (check,) in self._database.execute(
                        "SELECT checksum FROM blocks WHERE vectors = ? ORDER BY block", (name,)
                    )
                ]
                for name in COLUMNS
            }
        self.state = self._checked_state(row)
        if (len(deleted), _sum(deleted)) != (self.state.deleted, self.state.deletions):
            self._damaged("its deletions are not those that it counts")
        self.deleted = deleted
        for name in COLUMNS:
            kind = getattr(self.state, name)
            if kind is None:
                continue
            if name not in self._vectors:
                self._open_vectors(name, kind)
            self._vectors[name].follow(self.state.rows, checksums[name])

    def _open_vectors(self, name: str, kind: tuple[str, int]) -> None:
        kinds = [each for each in (self.state.keys, self.state.values) if each is not None]
        rows = block_rows(*(width * DTYPES[dtype].itemsize for dtype, width in kinds))
        self._vectors[name] = VectorFile(self.place / name, *kind, rows, write=self.write)
        self._open.callback(self._vectors[name].close)

    def _checked_state(self, row: Any) -> State:
        if row is None or not isinstance(row[0], str) or row[1] != _digest(row[0]):
            self._damaged("its counts have another checksum")
        content = json.loads(row[0], parse_constant=no_constant)
        kinds = {
            name: content[name] and (content[name][0], int(content[name][1])) for name in COLUMNS
        }
        for kind in kinds.values():
            if kind and (kind[0] not in DTYPES or not 1 <= kind[1] <= WIDEST):
                self._damaged(f"vectors of {kind[1]} numbers of type {kind[0]}")
        return State(**(content | kinds))

    def spans(self) -> list[tuple[int, int]]:
        """The first row of each block, and the one after its last."""
        rows = self.state.rows
        block = self._vectors["keys"].block if rows else 1
        return [(start, min(start + block, rows)) for start in range(0, rows, block)]

    def vectors(self, name: str) -> VectorFile:
        """The file of the keys or the values; that of the keys where the values are the keys."""
        return self._vectors.get(name) or self._vectors["keys"]

    def append(
        self,
        key: Tensor,
        value: Tensor | None,
        payloads: Sequence[Any] | None,
        names: Sequence[str | None] | None,
        kinds: dict[str, tuple[str, int] | None],
    ) -> None:
        """Commit entries behind the last one; they are on the disk when this returns.

        Raises:
            ValueError: JSON cannot hold a payload.
            OSError: the disk is full, or a file cannot be written.
        """
        self._check_writable()
        start, count = self.state.rows, len(key)
        rows_from = self.state.rows_from
        if rows_from is None and (payloads is not None or names is not None):
            rows_from = start
        entries = [] if rows_from is None else list(_entries(start, count, payloads, names))
        state = State(
            **(
                asdict(self.state)
                | {
                    "rows": start + count,
                    "named": self.state.named + sum(name is not None for name in names or ()),
                    "rows_from": rows_from,
                    **(kinds if start == 0 else {}),
                }
            )
        )
        if start == 0:
            self.state = State(**(asdict(self.state) | kinds))
            for name, kind in kinds.items():
                if kind is not None and name not in self._vectors:
                    self._open_vectors(name, kind)
                    self._vectors[name].follow(0, [])
        checksums = [
            (name, block, check)
            for name, rows in (("keys", key), ("values", value))
            if rows is not None
            for block, check in self._vectors[name].append(rows).items()
        ]
        with self._commit(state):
            self._database.executemany("INSERT INTO entries VALUES (?, ?, ?, ?)", entries)
            self._database.executemany("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?)", checksums)

    def separate_values(self) -> None:
        """Commit a file of values that are the keys so far, so that later ones can be others."""
        self._check_writable()
        self._open_vectors("values", kind := self.state.keys)  # type: ignore[arg-type]
        column, checksums = self._vectors["values"], dict[int, bytes]()
        column.follow(0, [])
        column.cut()
        for start, stop in self.spans():
            checksums |= column.append(self._vectors["keys"].read(start, stop))
            column.follow(stop, list(checksums.values()))
        with self._commit(State(**(asdict(self.state) | {"values": kind}))):
            rows = [("values", block, check) for block, check in checksums.items()]
            self._database.executemany("INSERT INTO blocks VALUES (?, ?, ?)", rows)

    def delete(self, positions: Iterable[int]) -> None:
        """Commit the deletion of entries; their vectors stay in the files until the memory is compacted."""
        new = sorted(set(positions) - set(self.deleted))
        named = 0
        for portion in _portions(new):
            marks = ",".join("?" * len(portion))
            query = f"SELECT count(name) FROM entries WHERE position IN ({marks})"
            named += self._row(query, portion)[0]
        content = asdict(self.state)
        content["deleted"] += len(new)
        content["deletions"] = _sum(new, content["deletions"])
        content["named"] -= named
        with self._commit(State(**content)):
            self._database.executemany(
                "INSERT INTO deletions VALUES (?)", [(each,) for each in new]
            )

    def set_payload(self, position: int, payload: Any) -> None:
        """Commit another payload of an entry."""
        (entry,) = _entries(position, 1, [payload], [self.entry(position)[0]])
        with self._commit(self.state):
            self._database.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", entry)

    def set_components(self, components: dict[str, Any]) -> None:
        """Commit which score, normaliser and encoder read the memory."""
        with self._commit(State(**(asdict(self.state) | {"components": components}))):
            pass

    def entry(self, position: int) -> tuple[str | None, Any]:
        """The name and the payload of an entry.

        Raises:
            MemoryFileError: they are damaged.
        """
        row = self._row("SELECT name, payload, digest FROM entries WHERE position = ?", (position,))
        if row is None:
            if self.state.rows_from is not None and position >= self.state.rows_from:
                self._damaged(f"entry {position} is missing")
            return None, None
        name, payload, digest = row
        if digest != _digest(position, name, payload):
            self._damaged(f"the payload of entry {position} has another checksum")
        return (
            None if name is None else json.loads(name),
            json.loads(payload) if isinstance(payload, str) else payload,
        )

    def place_of(self, name: str) -> int | None:
        """The first entry of this name that is not deleted, or None."""
        row = self._row(
            "SELECT position FROM entries WHERE name = ? AND position < ?"
            " AND position NOT IN (SELECT position FROM deletions) ORDER BY position LIMIT 1",
            (json.dumps(name), self.state.rows),
        )
        return None if row is None else int(row[0])

    def compacted(self) -> None:
        """Write the entries that are not deleted into new files, which replace the old ones as a whole."""
        self._check_writable()
        name = str(int(self.place.name) + 1)
        self._make(name, State(components=self.state.components))
        twin = object.__new__(Store)
        twin.folder, twin.write, twin._open, twin._vectors = self.folder, True, ExitStack(), {}
        try:
            twin._enter(name)
            self._copy(twin)
        finally:
            twin.close()
        self._let_count(name)
        for each in self._vectors.values():
            each.close()
        self._vectors = {}
        self._database.close()
        self._remove_old()
        self._enter(name)

    def _copy(self, twin: Store) -> None:
        """Append the entries that are not deleted to another store, block by block."""
        kinds = {name: getattr(self.state, name) for name in COLUMNS}
        deleted = set(self.deleted)
        for start, stop in self.spans():
            rows = [row for row in range(start, stop) if row not in deleted]
            if rows:
                picks = torch.tensor(rows) - start
                key, value = (
                    self._vectors[name].read(start, stop)[picks] if kinds[name] else None
                    for name in COLUMNS
                )
                names, payloads = zip(*map(self.entry, rows), strict=True)
                assert key is not None
                twin.append(key, value, payloads, names, kinds)

    def verify(self) -> Iterator[str]:
        """Compare every checksum; yields the name of each part that is sound.

        Raises:
            MemoryFileError: a part is damaged.
        """
        with self._blaming():
            report = self._row("PRAGMA integrity_check", ())[0]
        if report != "ok":
            self._damaged(report)
        for (position,) in self._database.execute(
            "SELECT position FROM entries ORDER BY 1"
        ).fetchall():
            self.entry(position)
        yield DATABASE
        for name, column in self._vectors.items():
            for start, _ in self.spans():
                column.recheck(start)
            yield name

    def _check_writable(self) -> None:
        if not self.write:
            _refuse(self.folder, "opened for reading: open it with write=True")

    @contextmanager
    def _commit(self, state: State) -> Iterator[None]:
        self._check_writable()
        with self._transaction():
            yield
            _keep(self._database, state)
        self.refresh()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._blaming():
            self._database.execute("BEGIN IMMEDIATE" if self.write else "BEGIN")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._database.execute("ROLLBACK")
                raise

    def _row(self, query: str, values: Sequence[Any]) -> Any:
        with self._blaming():
            return self._database.execute(query, values).fetchone()

    @contextmanager
    def _blaming(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as fault:
            raise OSError(f"{self.place / DATABASE}: {fault}") from fault
        except (sqlite3.DatabaseError, json.JSONDecodeError, KeyError, TypeError) as fault:
            raise MemoryFileError(f"{self.place / DATABASE}: damaged: {fault}") from fault

    def _damaged(self, reason: str) -> NoReturn:
        _refuse(self.place / DATABASE, f"damaged: {reason}")


def _refuse(path: Path, reason: str) -> NoReturn:
    raise MemoryFileError(f"{path}: {reason}")


def _is_ours(path: Path) -> bool:
    return path.name.isdecimal() or path.name.startswith(".") or path.name == CURRENT


def _keep(database: sqlite3.Connection, state: State) -> None:
    text = json.dumps(asdict(state), sort_keys=True)
    database.execute("INSERT OR REPLACE INTO about VALUES (1, ?, ?)", (text, _digest(text)))


def _entries(
    start: int, count: int, payloads: Sequence[Any] | None, names: Sequence[str | None] | None
) -> Iterator[tuple[Any, ...]]:
    """The rows of entries in the database."""
    for position in range(start, start + count):
        name = None if names is None else names[position - start]
        payload = None if payloads is None else _stored(position, payloads[position - start])
        text = None if name is None else json.dumps(name)
        yield position, text, payload, _digest(position, text, payload)


def _stored(position: int, payload: Any) -> str | bytes | None:
    """A payload as SQLite keeps it: bytes as they are, all else as JSON."""
    if payload is None or isinstance(payload, bytes):
        return payload
    try:
        return json.dumps(payload, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as problem:
        raise ValueError(
            f"payloads cannot be saved as JSON: entry {position}: {problem}"
        ) from problem


def _digest(*items: Any) -> bytes:
    return blake2b(repr(items).encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _sum(positions: list[int], start: int = 0) -> int:
    digests = (int.from_bytes(_digest(each)) for each in positions)
    return sum(digests, start) % 2**64


def _portions(items: list[int]) -> Iterator[list[int]]:
    return (items[start : start + FAR] for start in range(0, len(items), FAR))
