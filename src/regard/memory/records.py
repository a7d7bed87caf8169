"""What SQLite holds of a memory in a folder: counts and kinds, and a row with its checksum for each entry."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

from regard.memory.lists import no_constant
from regard.memory.vectors import kind_objection

VECTORS, CODES = ("keys", "values"), ("codes", "lengths")
COLUMNS = VECTORS + CODES
TABLES = """
CREATE TABLE about (id INTEGER PRIMARY KEY CHECK (id = 1), state TEXT, digest BLOB);
CREATE TABLE entries (position INTEGER PRIMARY KEY, name TEXT, payload, digest BLOB);
CREATE INDEX names ON entries (name) WHERE name IS NOT NULL;
CREATE TABLE deletions (position INTEGER PRIMARY KEY);
CREATE TABLE blocks (vectors TEXT, block INTEGER, checksum BLOB, PRIMARY KEY (vectors, block)) WITHOUT ROWID;
"""
STATEMENTS = {statement.strip() for statement in TABLES.split(";") if statement.strip()}

Kind = tuple[str, int]  # a name in `DTYPES`, and a width


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
        codes, lengths: of the columns for bounded readings; None before the first of these.
        components: score, normaliser and encoder, as `file.describe` gives them.
    """

    rows: int = 0
    deleted: int = 0
    named: int = 0
    rows_from: int | None = None
    deletions: int = 0
    keys: Kind | None = None
    values: Kind | None = None
    codes: Kind | None = None
    lengths: Kind | None = None
    components: dict[str, Any] | None = None

    @property
    def kinds(self) -> dict[str, Kind | None]:
        """Precision and width of each column."""
        return {name: getattr(self, name) for name in COLUMNS}


def state_of(row: Any) -> State:
    """The state that `keep` wrote.

    Raises:
        ValueError, TypeError: it is damaged.
    """
    if row is None or not isinstance(row[0], str) or row[1] != digest(row[0]):
        raise ValueError("its counts have another checksum")
    content = json.loads(row[0], parse_constant=no_constant)
    kinds = {name: tuple(content[name]) for name in COLUMNS if content.get(name)}
    state = State(**(content | kinds))
    for kind in state.kinds.values():
        if problem := kind and kind_objection(*kind):
            raise ValueError(problem)
    counts = (state.rows, state.deleted, state.named, state.deletions, state.rows_from or 0)
    if any(type(count) is not int or count < 0 for count in counts):
        raise ValueError("its counts are no whole numbers")
    if (state.rows and state.keys is None) or not isinstance(state.components, dict | None):
        raise ValueError("its counts do not fit each other")
    return state


def keep(database: sqlite3.Connection, state: State) -> None:
    """Write the state, with its checksum."""
    content = asdict(state)
    for name in CODES:  # earlier versions of Regard read folders without them
        if content[name] is None:
            del content[name]
    text = json.dumps(content, sort_keys=True)
    database.execute("INSERT OR REPLACE INTO about VALUES (1, ?, ?)", (text, digest(text)))


def entry_rows(
    start: int, count: int, payloads: Sequence[Any] | None, names: Sequence[str | None] | None
) -> Iterator[tuple[Any, ...]]:
    """The rows of entries in the database."""
    for position in range(start, start + count):
        name = None if names is None else names[position - start]
        payload = None if payloads is None else _stored(position, payloads[position - start])
        text = None if name is None else json.dumps(name)
        yield position, text, payload, digest(position, text, payload)


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


def digest(*items: Any) -> bytes:
    """A checksum of numbers, strings and bytes."""
    return blake2b(repr(items).encode("utf-8", "surrogatepass"), digest_size=8).digest()


def sum_of(positions: list[int], start: int = 0) -> int:
    """The sum of the digests of positions."""
    digests = (int.from_bytes(digest(each)) for each in positions)
    return sum(digests, start) % 2**64
