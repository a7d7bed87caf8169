"""A folder of a memory that was interrupted, damaged, or changed by others."""

import json
import os
import sqlite3
import threading
from pathlib import Path

import pytest
import torch

from regard import files
from regard.memory import CharacterNgrams, EmptyMemoryError, Memory, MemoryFileError
from regard.memory import store as stores
from regard.memory import vectors as vector_files
from regard.memory.records import digest

WIDTH = 4


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(vector_files, "BLOCK", 16 * WIDTH * 4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A memory of a, b and c, from which b is deleted."""
    with Memory.open(tmp_path / "m", write=True, normaliser="hard") as memory:
        memory.write(torch.eye(WIDTH)[:3], payloads=["a", "b", "c"])
        memory.delete(1)
    return tmp_path / "m"


def test_a_deleted_entry_answers_no_lookup_and_is_not_copied(folder):
    with Memory.open(folder, write=True) as memory:
        assert memory[torch.eye(WIDTH)[1]] in ("a", "c")
        assert memory[torch.eye(WIDTH)[:3]][::2] == ["a", "c"]
        for twin in (Memory(), Memory.open(folder.parent / "twin", write=True)):
            twin.update(memory)
            assert twin.payloads == ["a", "c"]
            assert torch.equal(twin.keys, torch.eye(WIDTH)[[0, 2]])
        memory.delete([0, 2])
        for question in (memory.__getitem__, memory.look):
            with pytest.raises(EmptyMemoryError):
                question(torch.ones(WIDTH))


def test_positions_of_a_search_can_be_deleted(folder):
    with Memory.open(folder, write=True) as memory:
        memory.delete(memory.find(torch.eye(WIDTH)[:1], 1).positions)
        assert [memory.payloads[place] for place in memory.entries.places()] == ["c"]
        memory.delete([True, True])
    with Memory.open(folder) as memory:
        assert len(memory) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_those_of_a_memory_in_ram(tmp_path, dtype):
    keys, values = torch.randn(50, WIDTH).to(dtype), torch.randn(50, 3).to(dtype)
    in_ram = Memory()
    in_ram.write(keys.float(), values.float())
    with Memory.open(tmp_path / "m", write=True) as memory:
        memory.write(keys, values)
        query = torch.randn(2, WIDTH, requires_grad=True)
        for reading in (lambda m: m.read(query), lambda m: m.find(query, 3).weights):
            ours, theirs = (
                torch.autograd.grad(reading(each).square().sum(), query)[0]
                for each in (memory, in_ram)
            )
            torch.testing.assert_close(ours, theirs)


def test_queries_of_float64_are_computed_in_float32(folder):
    query = torch.rand(2, WIDTH)
    with Memory.open(folder, normaliser="softmax") as memory:
        reading = memory.read(query.double())
        assert reading.dtype == torch.float64
        torch.testing.assert_close(reading.float(), memory.read(query))
        assert memory.find(query.double(), 1).payloads == memory.find(query, 1).payloads


def test_a_number_too_large_for_the_precision_is_refused(tmp_path):
    with Memory.open(tmp_path / "m", write=True) as memory:
        memory.write(torch.ones(1, WIDTH).half())
        with pytest.raises(ValueError, match="a key holds infinities or NaN in float16"):
            memory.write(torch.full((1, WIDTH), 1e5))
    with (
        Memory.open(tmp_path / "n", write=True) as memory,
        pytest.raises(ValueError, match="in float32"),
    ):
        memory.write(torch.full((1, WIDTH), 1e200, dtype=torch.float64))


@pytest.mark.parametrize("width", [0, (1 << 20) + 1])
def test_widths_that_cannot_be_read_are_not_written(tmp_path, width):
    with Memory.open(tmp_path / "m", write=True) as memory:
        with pytest.raises(ValueError, match="pass 1 to 1,048,576"):
            memory.write(torch.zeros(1, width))
        memory.write(torch.ones(1, WIDTH))
        assert len(memory) == 1


def test_components_by_name_are_kept(tmp_path):
    Memory.open(tmp_path / "m", write=True, score="cosine", normaliser="hard").close()
    with Memory.open(tmp_path / "m") as memory:
        assert "Cosine" in repr(memory.score)
        assert "Hard" in repr(memory.normaliser)


def test_a_closed_memory_says_so(folder):
    memory = Memory.open(folder, write=True)
    memory.close()
    for use in (memory.read, memory.find, memory.write):
        with pytest.raises(MemoryFileError, match="was closed: open it again"):
            use(torch.ones(1, WIDTH))


def test_writing_does_not_cover_up_earlier_damage(folder):
    path = folder / "1" / "keys"
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)
    with (
        Memory.open(folder, write=True) as memory,
        pytest.raises(MemoryFileError, match="keys: damaged in block 0"),
    ):
        memory.write(torch.ones(1, WIDTH))


def test_a_first_write_that_failed_leaves_no_kind_behind(tmp_path, monkeypatch):
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with Memory.open(tmp_path / "m", write=True) as memory:
        with monkeypatch.context() as patch:
            patch.setattr(stores, "keep", full)
            with pytest.raises(OSError, match="No space"):
                memory.write(torch.randn(5, WIDTH), torch.randn(5, 7))
        keys = torch.randn(40, 3).half()
        memory.write(keys)
        assert torch.equal(memory.keys, keys)
        assert torch.equal(memory.values, keys)
        memory.verify()
        memory.write(keys, keys + 1)
    with Memory.open(tmp_path / "m") as memory:
        memory.verify()
        assert torch.equal(memory.values, torch.cat([keys, keys + 1]))


def test_separating_values_can_be_interrupted(tmp_path, monkeypatch):
    keys, query = torch.randn(40, WIDTH), torch.randn(1, WIDTH)
    with Memory.open(tmp_path / "m", write=True) as memory:
        memory.write(keys)
        expected = memory.read(query)
        with monkeypatch.context() as patch:
            patch.setattr(stores, "keep", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                memory.write(keys, keys)
        assert torch.equal(memory.values, keys)
        assert torch.equal(memory.read(query), expected)
        memory.write(keys[:1], keys[1:2])
        assert torch.equal(memory.values, torch.cat([keys, keys[1:2]]))


def test_an_interrupt_after_a_commit_loses_nothing(tmp_path, monkeypatch):
    with Memory.open(tmp_path / "m", write=True) as memory:
        memory.write(torch.ones(2, WIDTH))
        with monkeypatch.context() as patch:
            patch.setattr(
                stores.Store, "_follow", lambda _: (_ for _ in ()).throw(KeyboardInterrupt)
            )
            with pytest.raises(KeyboardInterrupt):
                memory.write(torch.full((1, WIDTH), 2.0))
        memory.write(torch.full((1, WIDTH), 3.0))
        assert memory.keys[:, 0].tolist() == [1, 1, 2, 3]


def test_a_reader_sees_its_snapshot_of_payloads_and_names(tmp_path):
    with Memory.open(tmp_path / "m", write=True, encoder=CharacterNgrams(WIDTH)) as writer:
        writer.write(["x", "y"], payloads=[1, 2])
        with Memory.open(tmp_path / "m") as reader:
            writer["x"] = {"new": 1}
            del writer["y"]
            assert dict(reader.items()) == {"x": 1, "y": 2}
            assert (reader.get("x"), reader.get("y")) == (1, 2)
            reader.refresh()
            assert dict(reader.items()) == {"x": {"new": 1}}
            assert "y" not in reader


def test_a_replacement_is_one_commit(tmp_path, monkeypatch):
    with Memory.open(tmp_path / "m", write=True, encoder=CharacterNgrams(WIDTH)) as memory:
        memory["x"] = "old"
        commits, keep = [], stores.keep
        monkeypatch.setattr(stores, "keep", lambda *a: (commits.append(a), keep(*a)))
        memory["x"] = "new"
        assert len(commits) == 1
        assert dict(memory.items()) == {"x": "new"}


def test_refresh_follows_a_compaction_and_opening_survives_one(folder, monkeypatch):
    with Memory.open(folder) as reader, Memory.open(folder, write=True) as writer:
        writer.compact()
        assert reader[torch.eye(WIDTH)[2]] == "c"
        reader.refresh()
        assert reader.payloads == ["a", "c"]
        current = stores.Store._current
        names = iter(["1"])  # read before the compaction
        monkeypatch.setattr(stores.Store, "_current", lambda self: next(names, current(self)))
        with Memory.open(folder) as late:
            assert late.payloads == ["a", "c"]


def test_a_compaction_that_fails_leaves_the_memory_and_no_files(folder, monkeypatch):
    with Memory.open(folder, write=True) as memory:
        with monkeypatch.context() as patch:
            patch.setattr(files, "write", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                memory.compact()
        assert memory[torch.eye(WIDTH)[2]] == "c"
        assert not (folder / "2").exists()
        memory.compact()
        assert memory.payloads == ["a", "c"]


def test_vectors_without_their_current_are_not_erased(folder):
    (folder / "current").unlink()
    with pytest.raises(MemoryFileError, match="its file 'current' is missing"):
        Memory.open(folder, write=True)
    assert (folder / "1" / "keys").stat().st_size


def test_a_current_that_names_another_folder_erases_nothing(folder):
    (folder / "current").write_text("regard.memory 2 3\n")
    with pytest.raises(MemoryFileError, match="is missing: damaged"):
        Memory.open(folder, write=True)
    assert (folder / "1" / "keys").stat().st_size


def test_threads_write_one_after_another(tmp_path):
    with Memory.open(tmp_path / "m", write=True) as memory:

        def write(number: float) -> None:
            for _ in range(5):
                memory.write(torch.full((2, WIDTH), number))

        threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        memory.verify()
        assert torch.equal(memory.keys[:, 0].long().bincount(), torch.full((4,), 10))


def state_with(folder: Path, **changes: object) -> None:
    """Put other counts into a database, with a fitting checksum."""
    database = sqlite3.connect(folder / "1" / "memory.sqlite")
    (text,) = database.execute("SELECT state FROM about").fetchone()
    text = json.dumps(json.loads(text) | changes)
    database.execute("UPDATE about SET state = ?, digest = ?", (text, digest(text)))
    database.commit()
    database.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"keys": ["float32", 1 << 40]},
        {"keys": ["float32", "4"]},
        {"keys": [[], 4]},
        {"keys": "f"},
        {"keys": None},
        {"rows": -3},
        {"rows": 10**30},
        {"rows": "many"},
        {"rows": 1},
        {"deleted": 0},
        {"components": "none"},
        {"components": {"encoder": {"name": "CharacterNgrams", "fields": {}}}},
        {
            "components": {
                "encoder": {
                    "name": "CharacterNgrams",
                    "fields": {"width": 1 << 40, "shortest": 1, "longest": 3},
                }
            }
        },
        {"unknown": 1},
    ],
    ids=str,
)
def test_hostile_counts_are_refused(folder, changes):
    state_with(folder, **changes)
    with pytest.raises(MemoryFileError, match=str(folder)):
        Memory.open(folder)


def test_hostile_entries_are_refused(folder):
    for name, payload in (("[" * 100_000, None), (None, "[" * 100_000), (b"\xff", None)):
        database = sqlite3.connect(folder / "1" / "memory.sqlite")
        row = (0, name, payload, digest(0, name, payload))
        database.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", row)
        database.commit()
        database.close()
        with Memory.open(folder) as memory, pytest.raises(MemoryFileError, match="damaged"):
            memory.verify()


def test_views_in_place_of_tables_are_not_run(folder):
    database = sqlite3.connect(folder / "1" / "memory.sqlite")
    database.execute("DROP TABLE about")
    database.execute(
        "CREATE VIEW about AS WITH RECURSIVE n(state) AS (SELECT 1 UNION ALL SELECT state + 1 FROM n)"
        " SELECT max(state) AS state, 1 AS digest FROM n"
    )
    database.commit()
    database.close()
    with pytest.raises(MemoryFileError, match="its tables are not those of a memory"):
        Memory.open(folder)


def test_a_missing_entry_is_noticed(folder):
    database = sqlite3.connect(folder / "1" / "memory.sqlite")
    database.execute("DELETE FROM entries WHERE position = 2")
    database.commit()
    database.close()
    with Memory.open(folder) as memory, pytest.raises(MemoryFileError, match="entry 2 is missing"):
        memory.verify()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("name", ["keys", "memory.sqlite"])
def test_pipes_folders_and_links_are_refused_at_once(folder, name):
    path, elsewhere = folder / "1" / name, folder.parent / "elsewhere"
    path.rename(elsewhere)
    for make, remove in (
        (lambda: os.mkfifo(path), path.unlink),
        (path.mkdir, path.rmdir),
        (lambda: path.symlink_to(elsewhere), path.unlink),
    ):
        make()
        for write in (False, True):
            with pytest.raises(MemoryFileError, match=name):
                Memory.open(folder, write=write)
        remove()


def test_a_failed_opening_holds_neither_files_nor_the_lock(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(stores.Store, "set_components", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            Memory.open(folder, write=True, score="cosine")
    Memory.open(folder, write=True).close()


def test_many_queries_are_searched_in_one_pass(tmp_path, monkeypatch):
    with Memory.open(tmp_path / "m", write=True) as memory:
        memory.write(torch.randn(160, WIDTH))
        queries, passes = torch.randn(8, WIDTH), []
        together = memory.find(queries, 3)
        monkeypatch.setattr("regard.memory.reading.ROOM", 8 * 16)  # scores of a block
        spans = memory.entries.store.spans
        monkeypatch.setattr(memory.entries.store, "spans", lambda: passes.append(1) or spans())
        assert torch.equal(memory.find(queries, 3).positions, together.positions)
        assert len(passes) == 1


def test_no_queries_give_no_answers():
    memory = Memory()
    memory.write(torch.randn(9, WIDTH))
    assert memory.find(torch.ones(0, 2, WIDTH)).weights.shape == (0, 2, 5)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is read-only for root"
)
def test_a_folder_that_may_only_be_read_opens(folder):
    for path in (folder, folder / "1"):
        path.chmod(0o555)
    try:
        with Memory.open(folder) as memory:
            assert memory[torch.eye(WIDTH)[2]] == "c"
    finally:
        for path in (folder, folder / "1"):
            path.chmod(0o755)
