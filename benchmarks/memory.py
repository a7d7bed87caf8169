"""The dictionary beside the sums that it cannot do without: searches, strings as vectors, writes.

python benchmarks/memory.py [--rounds 5] [--entries 100000 1000000] [--rows searches writes ...]
    [--out benchmarks/results/memory.json]

Milliseconds of the processor on one thread, in turns. A search is beside `look.top`, a matrix product with torch.topk,
a sum of the keys, and faiss's flat index where faiss is installed, which gives no weights; among strings beside the
product alone. A folder, in three precisions, is beside the same vectors in RAM, and beside sums of its bytes, copied
from the file and mapped. Strings are hashed beside one call of zlib for each n-gram. `before` are milliseconds of the
versions that searched by two stable sorts, hashed strings in Python and kept every memory in one file. --rows measures
some tables, and keeps the others of --out. Readings with a tolerance are measured by bounds.py.
"""

from __future__ import annotations

import argparse
import json
import random
import string
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from _measure import interleaved, write
from torch import Tensor
from torch.nn import functional as F

import regard
from regard.memory import CharacterNgrams, Memory
from regard.memory.one_pass import LOOPS

WIDTH, STRINGS, BEST = 64, 100_000, 5
WIDE, PORTION, SCANNED = 256, 50_000, 1 << 21
TABLES = ["strings", "writes", "searches", "folders", "opening"]
BEFORE = {
    "find, 1 of 100,000 x 64": 17.0,
    "find, 32 of 100,000 x 64": 550.0,
    "find, 1 of 1,000,000 x 64": 200.0,
    "find, a string among 100,000": 310.0,
    "2,000 strings of 20 characters": 97.0,
    "2,000 strings of 83 characters": 328.0,
    "1,000 entries, one at a time": 43.0,
    "1,000 strings, one at a time": 180.0,
    "open, 1,000,000 x 64 with payloads": 900.0,
}


def texts(count: int, length: int) -> list[str]:
    letters = random.Random(length)
    alphabet = string.ascii_lowercase + " "
    return ["".join(letters.choices(alphabet, k=length)) for _ in range(count)]


def by_zlib(strings: list[str], encoder: CharacterNgrams) -> Tensor:
    """The same vectors, with one call of zlib for each n-gram."""
    counts = torch.zeros(len(strings), encoder.width)
    for row, text in zip(counts.numpy(), strings, strict=True):
        marked = f"\x02{text}\x03"
        for size in range(encoder.shortest, encoder.longest + 1):
            for start in range(len(marked) - size + 1):
                gram = marked[start : start + size]
                if gram not in ("\x02", "\x03"):
                    code = zlib.crc32(gram.encode())
                    row[(code >> 1) % encoder.width] += 1 if code & 1 else -1
        code = zlib.crc32(marked.encode())
        row[(code >> 1) % encoder.width] += 1 if code & 1 else -1
    return F.normalize(counts, dim=-1)


def searches(entries: int) -> dict[str, dict[str, Callable[[], Any]]]:
    memory = Memory()
    memory.write(torch.randn(entries, WIDTH), payloads=list(range(entries)))
    keys = memory.keys
    assert keys is not None
    flat = faiss_flat(keys)
    rows = {}
    for queries in (1, 32):
        query = torch.randn(queries, WIDTH)
        rows[f"find, {queries} of {entries:,} x {WIDTH}"] = {
            "find": lambda query=query: memory.find(query, BEST),
            "look.top": lambda query=query: regard.look(query, keys).top(BEST),
            "product, topk": lambda query=query: (query @ keys.T).topk(BEST),
            "sum": keys.sum,
        } | (
            {} if flat is None else {"faiss": lambda query=query: flat.search(query.numpy(), BEST)}
        )
    return rows


def faiss_flat(keys: Tensor) -> Any:
    """An exact index of faiss with these keys, or None where it is not installed."""
    try:
        import faiss
    except ImportError:
        return None
    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatIP(WIDTH)
    index.add(keys.numpy())
    return index


def spelling() -> dict[str, dict[str, Callable[[], Any]]]:
    encoder = CharacterNgrams()
    memory = Memory(encoder=encoder)
    memory.write(texts(STRINGS, 20))
    keys = memory.keys
    assert keys is not None
    rows: dict[str, dict[str, Callable[[], Any]]] = {
        f"find, a string among {STRINGS:,}": {
            "find": lambda: memory.find("a likely string", BEST),
            "product": lambda: keys @ keys[0],
        }
    }
    for length in (20, 83):
        strings = texts(2000, length)
        torch.testing.assert_close(encoder(strings), by_zlib(strings, encoder))
        rows[f"2,000 strings of {length} characters"] = {
            "encoder": lambda strings=strings: encoder(strings),
            "zlib": lambda strings=strings: by_zlib(strings, encoder),
        }
    return rows


def writes() -> dict[str, dict[str, Callable[[], Any]]]:
    vector, text = torch.randn(WIDTH), "a string to keep"

    def write_each(item: Any, memory: Memory) -> None:
        for _ in range(1000):
            memory.write(item)

    return {
        "1,000 entries, one at a time": {"write": lambda: write_each(vector, Memory())},
        "1,000 strings, one at a time": {
            "write": lambda: write_each(text, Memory(encoder=CharacterNgrams()))
        },
    }


def opening(entries: int, folder: Path) -> dict[str, dict[str, Callable[[], Any]]]:
    with Memory.open(folder, write=True) as stored:
        for start in range(0, entries, PORTION):
            count = min(PORTION, entries - start)
            stored.write(torch.randn(count, WIDTH), payloads=list(range(start, start + count)))

    def open_folder() -> None:
        Memory.open(folder).close()

    return {f"open, {entries:,} x {WIDTH} with payloads": {"open": open_folder}}


def folders(
    entries: int, dtype: torch.dtype, folder: Path
) -> dict[str, dict[str, Callable[[], Any]]]:
    """Vectors of width 256 on the disk, in the cache of its pages, beside a sum of their bytes."""
    with Memory.open(folder, write=True) as stored:
        for start in range(0, entries, PORTION):
            stored.write(torch.randn(min(PORTION, entries - start), WIDE).to(dtype))
    memory = Memory.open(folder)
    memory.verify()
    keys, path = memory.keys, folder / "1" / "keys"
    assert keys is not None
    in_ram = Memory()
    in_ram.write(keys)
    room = torch.empty(SCANNED, dtype=torch.uint8).numpy()
    mapped = torch.from_file(str(path), size=keys.nbytes // 4)

    def scan() -> None:
        with path.open("rb", 0) as file:
            while count := file.readinto(room):
                torch.from_numpy(room[:count]).view(torch.float32).sum()

    rows = {}
    for queries in (1, 32):
        query = torch.randn(queries, WIDE)
        near = query.to(dtype)
        name = str(dtype).removeprefix("torch.")
        rows[f"folder, {queries} of {entries:,} x {WIDE}, {name}"] = {
            "read": lambda query=query: memory.read(query),
            "find": lambda query=query: memory.find(query, BEST),
            "read in RAM": lambda query=query: in_ram.read(query),
            "attend in RAM": lambda near=near: regard.attend(near, keys, keys),
            "scan": scan,
            "scan of a mapping": mapped.sum,
        }
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--entries", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--rows", choices=TABLES, nargs="+", default=TABLES)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    LOOPS.wait()
    results: dict[str, dict[str, float]] = {}
    with TemporaryDirectory() as folder:
        tables: dict[str, list[Callable[[], dict[str, Any]]]] = {
            "strings": [spelling],
            "writes": [writes],
            "searches": [lambda n=n: searches(n) for n in options.entries],
            "folders": [
                lambda dtype=dtype: folders(
                    options.entries[0] * 4, dtype, Path(folder) / str(dtype)
                )
                for dtype in (torch.float32, torch.float16, torch.bfloat16)
            ],
            "opening": [lambda: opening(options.entries[-1], Path(folder) / "payloads")],
        }
        for name in options.rows:
            measure(tables[name], options.rounds, results)
    if options.out:
        keeps = None if options.rows == TABLES else options.out
        if keeps:
            results = json.loads(keeps.read_text())["milliseconds"] | results
        write(options.out, {"milliseconds": results}, keeps=keeps)


def measure(
    tables: list[Callable[[], dict[str, Any]]], rounds: int, results: dict[str, dict[str, float]]
) -> None:
    for table in tables:
        for name, runs in table().items():
            seconds = interleaved(runs, rounds, time.process_time)
            results[name] = {side: round(1e3 * median, 3) for side, median in seconds.items()}
            if name in BEFORE:
                results[name]["before"] = BEFORE[name]
            sides = ", ".join(f"{side} {ms:.2f}" for side, ms in results[name].items())
            print(f"{name:<40} {sides} ms", flush=True)


if __name__ == "__main__":
    main()
