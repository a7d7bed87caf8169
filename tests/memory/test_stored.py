"""A memory on the disk answers as one in RAM, and keeps what was committed."""

import os
import random
import signal
import sqlite3
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

from regard import masks
from regard.memory import CharacterNgrams, EmptyMemoryError, Memory, MemoryFileError, StoredMemory
from regard.memory import vectors as vector_files
from regard.memory.stored_entries import StoredEntries
from regard.normalisers import Softmax
from regard.scores import Additive, Cosine

ROWS, WIDTH = 300, 8


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(vector_files, "BLOCK", 64 * WIDTH * 4)


def stored(folder: Path, memory: Memory, **options: object) -> StoredMemory:
    new_memory = Memory.open(folder, write=True, **options)
    assert isinstance(new_memory, StoredMemory)
    new_memory.update(memory)
    return new_memory


def in_ram(dtype: torch.dtype = torch.float32, **options: object) -> Memory:
    memory = Memory(**options)
    generator = torch.Generator().manual_seed(1)
    keys, values = (torch.randn(ROWS, width, generator=generator) for width in (WIDTH, 3))
    memory.write(keys.to(dtype), values.to(dtype), payloads=[{"line": n} for n in range(ROWS)])
    return memory


@pytest.mark.parametrize(
    "normaliser",
    ["softmax", Softmax(0.3), "hard", "sparsemax", "entmax", lambda rows: rows.softmax(-1)],
)
@pytest.mark.parametrize(
    "score", [None, Cosine(5.0), Additive(WIDTH, WIDTH, 4)], ids=["dot", "cosine", "additive"]
)
def test_it_reads_and_finds_as_one_in_ram(tmp_path, normaliser, score):
    memory = in_ram(score=score, normaliser=normaliser)
    queries = torch.randn(4, WIDTH)
    with (
        torch.no_grad(),
        stored(tmp_path / "m", memory, score=score, normaliser=normaliser) as disk,
    ):
        torch.testing.assert_close(disk.read(queries), memory.read(queries))
        torch.testing.assert_close(disk.look(queries).entropy(), memory.look(queries).entropy())
        ours, theirs = disk.find(queries, 9), memory.find(queries, 9)
        assert ours.positions.tolist() == theirs.positions.tolist()
        assert ours.payloads == theirs.payloads
        torch.testing.assert_close(ours.weights, theirs.weights)
        torch.testing.assert_close(disk.find(queries[0], 2 * ROWS).weights.sum(), torch.tensor(1.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precisions_are_kept_and_computed_in_float32(tmp_path, dtype):
    memory = in_ram(dtype)
    with stored(tmp_path / "m", memory) as disk:
        assert disk.keys.dtype == dtype
        assert torch.equal(disk.keys, memory.keys)
        queries = torch.randn(4, WIDTH)
        wide = Memory()
        wide.write(memory.keys.float(), memory.values.float())
        torch.testing.assert_close(disk.read(queries), wide.read(queries))


def test_a_softmax_over_many_blocks_is_exact(tmp_path):
    memory = in_ram()
    queries = 3 * torch.randn(6, WIDTH)
    weights = (queries.double() @ memory.keys.double().T / WIDTH**0.5).softmax(-1)
    with stored(tmp_path / "m", memory) as disk:
        reading = disk.read(queries).double()
    torch.testing.assert_close(reading, weights @ memory.values.double(), rtol=1e-5, atol=1e-6)


def test_a_mask_and_deletions_exclude_entries(tmp_path):
    memory, queries = in_ram(), torch.randn(5, WIDTH)
    mask = torch.rand(5, ROWS) > 0.5
    mask[0] = False
    deleted_places = [0, 63, 64, 299]
    with stored(tmp_path / "m", memory) as disk:
        torch.testing.assert_close(disk.read(queries, mask=mask), memory.read(queries, mask=mask))
        disk.delete(deleted_places)
        assert len(disk) == ROWS - len(deleted_places)
        live = torch.ones(ROWS, dtype=torch.bool)
        live[deleted_places] = False
        for normaliser in ("softmax", "sparsemax", "hard"):
            disk.normaliser = memory.normaliser = normaliser
            torch.testing.assert_close(
                disk.read(queries, mask=mask), memory.read(queries, mask=mask & live)
            )
            assert not set(disk.find(queries, 50).positions.flatten().tolist()) & set(
                deleted_places
            )
        with pytest.raises(IndexError, match="no entry 300: positions go from 0 to 299"):
            disk.delete(300)
        matches_before = disk.find(queries, 5)
        disk.compact()
        matches_after = disk.find(queries, 5)
        assert matches_before.payloads == matches_after.payloads
        assert len(disk) == len(disk.payloads) == ROWS - len(deleted_places)
        disk.verify()
    with Memory.open(tmp_path / "m") as repetition:
        assert repetition.find(queries, 5).payloads == matches_before.payloads


def test_a_compaction_is_a_change_though_as_many_entries_stay(tmp_path):
    with Memory.open(tmp_path / "m", write=True) as memory:
        memory.write(torch.eye(5))
        at_first = memory.entries.changes
        memory.delete(0)
        memory.write(torch.ones(1, 5))
        memory.compact()
        assert memory.entries.rows == len(memory) == 5
        assert memory.entries.changes != at_first


def test_it_is_a_dictionary_of_strings(tmp_path):
    with Memory.open(tmp_path / "m", write=True, encoder=CharacterNgrams()) as memory:
        with pytest.raises(EmptyMemoryError):
            memory["nothing"]
        memory.write(["Subject", "Pronoun"], payloads=["Professor Perry", "he"])
        memory["Object"] = "the lecture"
        memory["Pronoun"] = "she"
        memory["raw \ud800"] = b"\x00\xff"
    with Memory.open(tmp_path / "m") as memory:
        assert isinstance(memory.score, Cosine)
        assert dict(memory.items()) == {
            "Subject": "Professor Perry",
            "Object": "the lecture",
            "Pronoun": "she",
            "raw \ud800": b"\x00\xff",
        }
        assert "Object" in memory
        assert "object" not in memory
        assert memory.get("Pronoun") == "she"
        assert memory["the subjects"].payloads == ["Professor Perry"]
        with pytest.raises(MemoryFileError, match="opened for reading"):
            memory["Subject"] = "x"


def test_readers_keep_their_snapshot_until_they_refresh(tmp_path):
    memory = in_ram()
    with stored(tmp_path / "m", memory) as writer, Memory.open(tmp_path / "m") as reader:
        query = torch.randn(WIDTH)
        reading_before = reader.read(query)
        writer.write(torch.randn(70, WIDTH), torch.randn(70, 3))
        writer.delete(5)
        assert len(reader) == ROWS
        assert torch.equal(reader.read(query), reading_before)
        reader.refresh()
        assert len(reader) == ROWS + 69
        torch.testing.assert_close(reader.read(query), writer.read(query))


def test_one_process_writes_at_a_time(tmp_path):
    with (
        Memory.open(tmp_path / "m", write=True),
        pytest.raises(MemoryFileError, match=f"process {os.getpid()} is writing to it"),
    ):
        Memory.open(tmp_path / "m", write=True)
    Memory.open(tmp_path / "m", write=True).close()


def test_what_does_not_fit_is_refused_and_nothing_is_written(tmp_path):
    with stored(tmp_path / "m", in_ram()) as memory:
        cases = [
            ((torch.ones(2, WIDTH + 1), torch.ones(2, 3)), "pass keys of width 8"),
            ((torch.ones(2, WIDTH), torch.ones(2, 4)), "pass values of width 3"),
            ((torch.ones(2, WIDTH), torch.ones(3, 3)), "one value for each key"),
            ((torch.full((2, WIDTH), torch.nan), torch.ones(2, 3)), "infinities or NaN"),
            (
                (torch.ones(2, WIDTH), torch.ones(2, 3), ["one"]),
                "payloads is a list of 1: pass a list of 2",
            ),
            ((torch.ones(2, WIDTH), torch.ones(2, 3), [1, {2}]), "entry 301"),
        ]
        for arguments, message in cases:
            with pytest.raises((ValueError, TypeError), match=message):
                memory.write(*arguments)
            assert len(memory) == ROWS
        memory.verify()


def test_a_memory_that_is_not_there(tmp_path):
    with pytest.raises(
        FileNotFoundError, match="no such file or folder: write=True makes a folder"
    ):
        Memory.open(tmp_path / "m")


def test_the_text_of_a_closed_memory(tmp_path):
    memory = stored(tmp_path / "m", in_ram())
    assert "entries=" in repr(memory)
    memory.close()
    assert repr(memory) == f"StoredMemory('{tmp_path / 'm'}', closed)"


def test_folders_that_are_no_memories_are_refused(tmp_path):
    with pytest.raises(MemoryFileError, match="it has no file 'current'"):
        Memory.open(tmp_path)
    (tmp_path / "letter.txt").touch()
    with pytest.raises(MemoryFileError, match=r"holds letter\.txt, which is no part of a memory"):
        Memory.open(tmp_path, write=True)
    assert [each.name for each in tmp_path.iterdir()] == ["letter.txt"]
    stored(tmp_path / "m", in_ram()).close()
    for content, message in (
        (b"regard.memory 3 1\n", "is of version 3, this Regard reads 2"),
        (b"regard.memory 2 ../m/1\n", "damaged"),
        (b"\xff", "damaged"),
        (b"regard.memory 2 7\n", "is missing"),
    ):
        (tmp_path / "m" / "current").write_bytes(content)
        with pytest.raises(MemoryFileError, match=message):
            Memory.open(tmp_path / "m")


@pytest.mark.parametrize(
    "mask",
    [masks.band(2, 90), masks.causal(align="end"), masks.padding(torch.tensor(70))],
    ids=["band", "causal", "padding"],
)
@pytest.mark.parametrize("normaliser", ["softmax", "hard"])
@torch.no_grad()
def test_masks_of_the_package_count_positions(tmp_path, mask, normaliser):
    memory, queries = in_ram(normaliser=normaliser), torch.randn(ROWS, WIDTH)
    with stored(tmp_path / "m", memory, normaliser=normaliser) as disk:
        torch.testing.assert_close(disk.read(queries, mask=mask), memory.read(queries, mask=mask))
        torch.testing.assert_close(
            disk.look(queries, mask=mask).entropy(), memory.look(queries, mask=mask).entropy()
        )
        disk.delete(3)
        live = torch.arange(ROWS) != 3
        readable = masks.as_mask(mask).dense((), ROWS, ROWS) & live
        torch.testing.assert_close(
            disk.read(queries, mask=mask), memory.read(queries, mask=readable)
        )


@pytest.mark.parametrize("normaliser", ["softmax", Softmax(0.3), "hard", "sparsemax"])
def test_a_look_takes_no_keys_into_ram(tmp_path, monkeypatch, normaliser):
    memory = in_ram(normaliser=normaliser)
    queries = torch.randn(40, WIDTH, requires_grad=True)
    mask = torch.rand(40, ROWS) < 0.8
    with stored(tmp_path / "m", memory, normaliser=normaliser) as disk:
        monkeypatch.delattr(StoredEntries, "_tensor")
        ours, theirs = disk.look(queries, mask=mask), memory.look(queries, mask=mask)
        assert ours.shape == theirs.shape
        assert ours.top(5)[1].tolist() == theirs.top(5)[1].tolist()
        torch.testing.assert_close(ours.received(), theirs.received())
        torch.testing.assert_close(ours.weights(rows=[3]), theirs.weights(rows=[3]))
        if normaliser != "hard":  # which has no gradient
            gradients = [
                torch.autograd.grad(side.entropy().sum(), queries)[0] for side in (ours, theirs)
            ]
            torch.testing.assert_close(*gradients)


def answers(folder: Path, queries: Tensor) -> tuple[list[object], Tensor]:
    with Memory.open(folder) as memory:
        result = memory.find(queries, ROWS)
        return [result.payloads, len(memory)], memory.read(queries)


def test_cut_and_changed_vectors_are_named_with_their_block(tmp_path):
    folder, queries = tmp_path / "m", torch.randn(2, WIDTH)
    stored(folder, in_ram()).close()
    path = folder / "1" / "keys"
    content = path.read_bytes()
    for length in range(0, len(content), len(content) // 20):
        path.write_bytes(content[:length])
        with pytest.raises(MemoryFileError, match=r"keys: has .* it was cut"):
            Memory.open(folder)
    chance = random.Random(0)
    for _ in range(100):
        bit = chance.randrange(8 * len(content))
        spoilt = bytearray(content)
        spoilt[bit // 8] ^= 1 << bit % 8
        path.write_bytes(spoilt)
        block = bit // 8 // (64 * WIDTH * 4)
        with (
            Memory.open(folder) as memory,
            pytest.raises(MemoryFileError, match=f"keys: damaged in block {block},"),
        ):
            memory.read(queries)
    path.write_bytes(content[4:] + content[:4])
    with Memory.open(folder) as memory, pytest.raises(MemoryFileError, match="damaged in block 0"):
        memory.verify()


def test_a_changed_bit_of_the_database_changes_no_answer(tmp_path):
    folder, queries = tmp_path / "m", torch.randn(2, WIDTH)
    with stored(folder, in_ram()) as memory:
        memory.delete([3, 200])
    expected = answers(folder, queries)
    path = folder / "1" / "memory.sqlite"
    content = path.read_bytes()
    chance, refused = random.Random(0), 0
    for _ in range(100):
        spoilt = bytearray(content)
        spoilt[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(spoilt)
        try:
            matches, reading = answers(folder, queries)
        except (MemoryFileError, OSError) as fault:
            assert "memory.sqlite" in str(fault) or "keys" in str(fault)  # noqa: PT017
            refused += 1
        else:
            assert matches == expected[0]
            assert torch.equal(reading, expected[1])
    assert refused > 10


def test_a_tail_after_the_last_commit_is_ignored_and_removed_by_the_next_writer(tmp_path):
    folder, queries = tmp_path / "m", torch.randn(2, WIDTH)
    stored(folder, in_ram()).close()
    expected = answers(folder, queries)
    path = folder / "1" / "keys"
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"\x07" * 1000)
    assert torch.equal(answers(folder, queries)[1], expected[1])
    Memory.open(folder, write=True).close()
    assert path.stat().st_size == size


@pytest.mark.parametrize("readings", [0, 1, 2], ids=["unread", "checked", "mapped"])
@pytest.mark.parametrize("key_precision", [None, "int8"])
def test_a_file_that_is_cut_while_it_is_open_is_named(tmp_path, readings, key_precision):
    folder, query = tmp_path / "m", torch.randn(1, WIDTH)
    stored(folder, in_ram(), key_precision=key_precision).close()
    with Memory.open(folder) as memory:
        look = memory.look(query)
        uses = (
            lambda: memory.read(query),
            lambda: memory.find(query),
            lambda: memory.keys,
            lambda: memory.entries.key_at(ROWS - 1),
            lambda: memory.entries.store.vectors("keys").pick(torch.tensor([1, ROWS - 1])),
            look.entropy,
        )
        for use in uses * readings:
            use()
        os.truncate(folder / "1" / "keys", 100)
        for use in uses:
            with pytest.raises(MemoryFileError, match="keys: was cut while it was open"):
                use()


def test_a_block_is_compared_once_and_again_by_verify(tmp_path):
    folder, query = tmp_path / "m", torch.ones(1, WIDTH)
    stored(folder, in_ram()).close()
    path = folder / "1" / "keys"
    with Memory.open(folder) as memory:
        memory.read(query)
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        with path.open("r+b") as file:
            file.write(content)
        memory.read(query)
        for _ in range(2):
            with pytest.raises(MemoryFileError, match=r"keys: damaged in block 4, rows 256 to 299"):
                memory.verify()
        with pytest.raises(MemoryFileError, match="keys: damaged in block 4"):
            memory.read(query)


def test_a_reader_is_not_disturbed_by_writers_and_compactions(tmp_path):
    folder, query = tmp_path / "m", torch.randn(2, WIDTH)
    writer = stored(folder, in_ram())
    readers = [Memory.open(folder) for _ in range(2)]
    expected = readers[0].read(query)  # the blocks of the other are not compared yet
    for step in range(5):
        writer.write(torch.randn(50, WIDTH), torch.randn(50, 3))
        writer.delete(range(step, 50))
        if step % 2:
            writer.compact()
        assert torch.equal(writer.read(query), writer.read(query))
        for reader in readers:
            assert torch.equal(reader.read(query), expected)
            reader.verify()
    for reader in readers:
        reader.refresh()
        assert torch.equal(reader.read(query), writer.read(query))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_a_closed_memory_has_no_files_open(tmp_path):
    folder = tmp_path / "m"
    stored(folder, in_ram()).close()

    def count() -> int:
        links = [os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
        return f"{links} {Path('/proc/self/maps').read_text()}".count(str(folder))

    memory = Memory.open(folder)
    for _ in range(3):
        kept = [memory.read(torch.randn(1, WIDTH)), memory.keys, *memory]
    assert count() > 4
    memory.close()
    assert len(kept) > ROWS
    assert not count()


def test_what_is_handed_out_may_be_written_to(tmp_path):
    with stored(tmp_path / "m", in_ram()) as memory:
        expected = memory.keys
        for _ in range(2):
            for vectors in (memory.keys, memory.entries.key_at(3), next(iter(memory))):
                vectors.zero_()
        assert torch.equal(memory.keys, expected)


def test_a_disk_that_fails_is_named(tmp_path, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    stored(tmp_path / "m", in_ram()).close()
    monkeypatch.setattr(vector_files.VectorFile, "_read_at", fail)
    with (
        Memory.open(tmp_path / "m") as memory,
        pytest.raises(OSError, match=r"Input/output error: '.*keys'"),
    ):
        memory.read(torch.ones(1, WIDTH))


def test_a_file_system_without_mappings(tmp_path, monkeypatch):
    queries = torch.randn(2, WIDTH)
    with stored(tmp_path / "m", in_ram()) as memory:
        expected = memory.read(queries)
    monkeypatch.setattr(vector_files, "mmap", lambda *_, **__: os.open("/nowhere", os.O_RDONLY))
    with Memory.open(tmp_path / "m") as memory:
        for _ in range(2):
            assert torch.equal(memory.read(queries), expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork, to kill a writer at any moment")
@pytest.mark.parametrize(
    "kills", [pytest.param(5, id="quick"), pytest.param(50, marks=pytest.mark.slow, id="fifty")]
)
def test_kills_at_any_moment_lose_nothing_that_was_committed(tmp_path, kills):
    folder, log = tmp_path / "m", tmp_path / "committed"
    log.touch()
    chance = random.Random(kills)
    for _ in range(kills):
        child = os.fork()
        if not child:  # the writer: it appends, deletes and compacts until it is killed
            try:
                append_for_ever(folder, log)
            finally:
                os._exit(1)
        size = log.stat().st_size
        while log.stat().st_size == size and chance.random() > 0.01:
            time.sleep(0.01)
        time.sleep(0.02 * chance.random())
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        committed = log.read_text().splitlines()
        if not (folder / "current").exists():
            assert not committed
            continue
        with Memory.open(folder) as memory:
            memory.verify()
            payloads = memory.payloads
            numbers = [payloads[place] for place in memory.entries.places()]
            assert numbers == sorted(set(numbers))
            alive = {int(line[1:]) for line in committed if line[0] == "+"}
            deleted = {int(line[1:]) for line in committed if line[0] == "-"}
            announced = {int(line[1:]) for line in committed if line[0] == "?"}
            assert alive - announced <= set(numbers)
            assert not deleted & set(numbers)
            for place, number in zip(memory.entries.places(), numbers, strict=True):
                assert memory.entries.key_at(place).tolist() == [number] * WIDTH
    assert len(log.read_text().splitlines()) > kills


def append_for_ever(folder: Path, log: Path) -> None:
    torch.set_num_threads(1)
    with Memory.open(folder, write=True) as memory, log.open("a", buffering=1) as file:
        payloads = memory.payloads
        number = max([payloads[place] for place in memory.entries.places()], default=-1) + 1
        while True:
            rows = range(number, number + 1 + number % 5)
            memory.write(torch.tensor([[float(n)] * WIDTH for n in rows]), payloads=list(rows))
            file.write("".join(f"+{n}\n" for n in rows))
            number = rows.stop
            if number % 3 == 0:  # the oldest go, so that each check reads few
                payloads = memory.payloads
                for place in list(memory.entries.places())[: max(1, len(memory) - 50)]:
                    payload = payloads[place]
                    file.write(f"?{payload}\n")
                    memory.delete(place)
                    file.write(f"-{payload}\n")
            if number % 7 == 0:
                memory.compact()


def test_the_database_of_another_program_is_refused(tmp_path):
    folder = tmp_path / "m"
    stored(folder, in_ram()).close()
    path = folder / "1" / "memory.sqlite"
    path.unlink()
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE letters (text)")
    database.commit()
    database.close()
    with pytest.raises((MemoryFileError, OSError), match=r"memory\.sqlite"):
        Memory.open(folder)


@pytest.mark.parametrize("normaliser", ["softmax", "hard"])
@pytest.mark.parametrize("score", [None, Cosine(5.0)], ids=["dot", "cosine"])
def test_keys_of_8_bits_are_read_as_what_they_stand_for(tmp_path, score, normaliser):
    memory = in_ram(score=score, normaliser=normaliser)
    queries = torch.randn(4, WIDTH)
    options = {"score": score, "normaliser": normaliser}
    with Memory.open(tmp_path / "m", write=True, key_precision="int8", **options) as folder:
        folder.update(memory)
        keys = folder.keys
        error = (keys - memory.keys).abs().amax(-1)
        assert (error <= memory.keys.abs().amax(-1) / 254 * (1 + 1e-5)).all()
        assert folder.get(memory.keys[7]) == {"line": 7}
        size = (tmp_path / "m" / "1" / "keys").stat().st_size
        assert size == ROWS * (WIDTH + 4)
        coarse = Memory(**options)
        coarse.write(keys, memory.values, memory.payloads)
        torch.testing.assert_close(folder.read(queries), coarse.read(queries))
        assert folder.find(queries, 3).payloads == coarse.find(queries, 3).payloads
        torch.testing.assert_close(folder.look(queries).top(3), coarse.look(queries).top(3))
        answer = folder.read(queries, tolerance=0.1)
        assert ((answer.reading - folder.read(queries)).norm(dim=-1) <= answer.error + 1e-6).all()
        folder[memory.keys[5]] = memory.values[6]
        folder.delete(0)
        folder.compact()
        folder.verify()
    with Memory.open(tmp_path / "m") as folder:
        torch.testing.assert_close(folder.keys[:4], keys[1:5])


def test_keys_and_values_of_8_bits(tmp_path):
    keys = in_ram().keys
    with Memory.open(tmp_path / "m", write=True, key_precision="int8") as folder:
        folder.write(keys[:200])
        folder.write(keys[200:], -keys[200:])
        torch.testing.assert_close(folder.values[200:], -folder.keys[200:])
        torch.testing.assert_close(folder.values[:200], folder.keys[:200])
        with pytest.raises(ValueError, match="a key holds infinities or NaN in int8"):
            folder.write(torch.full((1, WIDTH), torch.inf))


def test_precisions_that_do_not_fit(tmp_path):
    with pytest.raises(ValueError, match="key_precision is 'int4': pass one of float32, float16"):
        Memory.open(tmp_path / "m", write=True, key_precision="int4")
    with Memory.open(tmp_path / "m", write=True, key_precision="float16") as folder:
        folder.write(torch.ones(1, 4))
        assert folder.keys.dtype == torch.float16
    with pytest.raises(ValueError, match="this memory has keys in float16: leave it out"):
        Memory.open(tmp_path / "m", write=True, key_precision="int8")
