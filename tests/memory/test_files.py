"""Memories on disk: whole or not there, and never trusted."""

from __future__ import annotations

import json
import os
import pickle
import signal
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from regard.attention import normalisers, scores
from regard.memory import CharacterNgrams, Memory, MemoryFileError

PAYLOADS = [{"line": 1, "text": "日本 \ud800"}, ["a", None, 2.5], "Professor Perry", None]


def full(**options: object) -> Memory:
    memory = Memory(**options)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(0)
    memory.write(
        torch.randn(4, 3, generator=generator), torch.randn(4, 5, generator=generator), PAYLOADS
    )
    return memory


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_what_is_opened_is_what_was_saved(tmp_path, dtype):
    memory = full(normaliser=normalisers.Hard(), score=scores.Cosine(2.0)).to(dtype)
    memory.save(tmp_path / "m.safetensors")
    opened_memory = Memory.open(tmp_path / "m.safetensors")
    assert torch.equal(opened_memory.keys, memory.keys)
    assert torch.equal(opened_memory.values, memory.values)
    assert opened_memory.keys.dtype == dtype
    assert opened_memory.payloads == PAYLOADS
    assert opened_memory.normaliser == normalisers.Hard()
    assert opened_memory.score == scores.Cosine(2.0)
    assert os.listdir(tmp_path) == ["m.safetensors"]
    opened_memory.write(torch.zeros(1, 3, dtype=dtype), torch.zeros(1, 5, dtype=dtype))
    assert opened_memory.payloads[-1] is None


def test_strings_are_found_again_in_a_memory_that_was_opened(tmp_path):
    memory = Memory(encoder=CharacterNgrams(128, 2, 3), normaliser=normalisers.Hard())
    memory.write(["Subject", "Date"], ["Professor Perry", "14 July"])
    memory.save(tmp_path / "m")
    assert Memory.open(tmp_path / "m")["subjct"] == "Professor Perry"


def test_values_that_are_the_keys_are_stored_once_and_trainable_is_asked_for_anew(tmp_path):
    memory = Memory(trainable=True)
    memory.write(torch.eye(3))
    memory.write(torch.ones(1, 3))
    memory.save(tmp_path / "m")
    with safe_open(str(tmp_path / "m"), framework="pt") as file:
        assert list(file.keys()) == ["key"]
    assert not list(Memory.open(tmp_path / "m").parameters())
    opened_memory = Memory.open(tmp_path / "m", trainable=True)
    assert [tuple(p.shape) for p in opened_memory.parameters()] == [(4, 3)]
    Memory().save(tmp_path / "empty")
    assert len(Memory.open(tmp_path / "empty")) == 0


def test_a_score_with_parameters_comes_back_through_one_of_its_kind(tmp_path):
    memory = full(score=scores.General(2, 3))
    memory.save(tmp_path / "m")
    with pytest.raises(MemoryFileError, match="pass score= to open it"):
        Memory.open(tmp_path / "m")
    with pytest.raises(MemoryFileError, match="size mismatch"):
        Memory.open(tmp_path / "m", score=scores.General(4, 3))
    opened_memory = Memory.open(tmp_path / "m", score=scores.General(2, 3))
    query = torch.ones(1, 2)
    torch.testing.assert_close(opened_memory.read(query), memory.read(query))


def test_an_unfinished_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "m"
    full().save(path)
    content_before = path.read_bytes()
    memory = full()
    memory.write(torch.zeros(1, 3), torch.zeros(1, 5), payloads=[object()])
    with pytest.raises(ValueError, match=r"payloads cannot be saved as JSON: entry [0-9]+: "):
        memory.save(path)
    spoilt = Memory()
    spoilt.write(torch.tensor([[float("nan")]]))
    with pytest.raises(ValueError, match="key holds infinities or NaN"):
        spoilt.save(path)

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        full().save(path)
    assert path.read_bytes() == content_before
    assert os.listdir(tmp_path) == ["m"]
    monkeypatch.undo()
    with pytest.raises(OSError, match="nowhere"):
        full().save(tmp_path / "nowhere" / "m")


def test_every_truncation_is_refused_by_name(tmp_path):
    full().save(tmp_path / "m")
    whole_content = (tmp_path / "m").read_bytes()
    for twentieth in range(20):
        cut = tmp_path / "cut"
        cut.write_bytes(whole_content[: len(whole_content) * twentieth // 20])
        with pytest.raises(MemoryFileError, match=str(cut)):
            Memory.open(cut)


def without_checksum(path: Path) -> Path:
    """A copy as earlier versions saved it."""
    with safe_open(str(path), framework="pt") as file:
        metadata = {name: text for name, text in file.metadata().items() if name != "sha256"}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        assert len(metadata) < len(file.metadata())
    older = path.with_name("older")
    save_file(tensors, older, metadata)
    return older


def flipped(path: Path, position: int, bit: int) -> Path:
    damaged = bytearray(path.read_bytes())
    damaged[position] ^= 1 << bit
    copy = path.with_name("flipped")
    copy.write_bytes(damaged)
    return copy


def same(memory: Memory, expected: Memory) -> bool:
    return (
        torch.equal(memory.keys, expected.keys)
        and torch.equal(memory.values, expected.values)
        and (memory.payloads, memory.normaliser, memory.score)
        == (expected.payloads, expected.normaliser, expected.score)
    )


def test_every_flipped_bit_is_refused_or_changes_nothing(tmp_path):
    path = tmp_path / "m"
    full(normaliser=normalisers.Softmax(2.0)).save(path)
    memory, differing, refused = Memory.open(path), 0, []
    for position in range(0, path.stat().st_size, 2):
        try:
            assert same(Memory.open(flipped(path, position, position % 8)), memory), position
        except MemoryFileError as problem:
            refused.append(str(problem))
    assert all(problem.startswith(str(tmp_path / "flipped")) for problem in refused)
    older = without_checksum(path)
    for position in range(0, older.stat().st_size, 2):
        with suppress(MemoryFileError):
            differing += not same(Memory.open(flipped(older, position, position % 8)), memory)
    assert differing > 30  # without a checksum, so many are other memories


def test_files_of_earlier_versions_open_and_get_a_checksum_when_they_are_saved(tmp_path):
    full().save(tmp_path / "m")
    memory = Memory.open(without_checksum(tmp_path / "m"))
    assert same(memory, Memory.open(tmp_path / "m"))
    memory.save(tmp_path / "older")
    with safe_open(str(tmp_path / "older"), framework="pt") as file:
        assert len(file.metadata()["sha256"]) == 64


@pytest.mark.parametrize("shape", [(0, 3), (2, 0, 3)])
def test_a_memory_without_entries_has_a_checksum_too(tmp_path, shape):
    memory = Memory()
    memory.write(torch.zeros(shape))
    memory.save(tmp_path / "m")
    assert Memory.open(tmp_path / "m").keys.shape == shape


KILLED = """
import os, pathlib, signal, sys, torch
from regard import Memory
from regard.memory import file
save, path = file.save_file, pathlib.Path(sys.argv[1])

def killed(tensors, unfinished, metadata):
    save(tensors, unfinished, metadata)
    os.truncate(unfinished, 100)
    os.kill(os.getpid(), signal.SIGKILL)

memory = Memory()
memory.write(torch.eye(3))
memory.save(path)
file.save_file = killed
memory.save(path)
"""


def test_a_save_that_was_killed_leaves_the_old_file_and_its_rest_is_removed_a_day_later(tmp_path):
    path = tmp_path / "m"
    completed = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert completed.returncode == -signal.SIGKILL
    remaining_paths = set(tmp_path.iterdir()) - {path}
    assert [each.stat().st_size for each in remaining_paths] == [100]
    memory = Memory.open(path)
    assert torch.equal(memory.keys, torch.eye(3))
    for path_left in remaining_paths:
        os.utime(path_left, (0, 0))
    memory.save(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_memory_does_not_change_when_its_file_is_cut_short(tmp_path):
    path, memory = tmp_path / "m", Memory()
    memory.write(torch.ones(2048, 64))
    memory.save(path)
    opened_memory = Memory.open(path)
    os.truncate(path, 0)
    assert float(opened_memory.keys.sum()) == 2048 * 64


def header(described: object, data: bytes = b"") -> bytes:
    text = described if isinstance(described, bytes) else json.dumps(described).encode()
    return struct.pack("<Q", len(text)) + text + data


NGRAMS = {"shortest": 1, "longest": 3}
METADATA = {"format": "regard.memory", "version": "1"}
ONE = {"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]}
HOSTILE = {
    "empty": b"",
    "a long header": struct.pack("<Q", 1 << 63),
    "a header beyond the file": struct.pack("<Q", 1000) + b"{}",
    "a pickle": pickle.dumps({"key": [1.0]}),
    "a zip": b"PK\x03\x04" + bytes(100),
    "deep nesting": header(b"[" * 100_000),
    "no utf-8": header(b'{"\xff\xfe": 1}'),
    "another format": header({"__metadata__": {"format": "pt"}, "key": ONE}, bytes(4)),
    "overlap": header({"__metadata__": METADATA, "key": ONE, "value": ONE}, bytes(4)),
    "out of bounds": header(
        {"__metadata__": METADATA, "key": {**ONE, "data_offsets": [0, 1 << 40]}}, bytes(4)
    ),
    "an overflowing shape": header(
        {
            "__metadata__": METADATA,
            "key": {**ONE, "shape": [4194305, 4194305, 211106198978564]},
        },
        bytes(4),
    ),
    "an unknown type": header({"__metadata__": METADATA, "key": {**ONE, "dtype": "F99"}}, bytes(4)),
    "a name twice": header(
        b'{"__metadata__": %s, "key": %s, "key": %s}'
        % tuple(json.dumps(part).encode() for part in (METADATA, ONE, ONE)),
        bytes(4),
    ),
    "metadata twice": header(
        b'{"__metadata__": {"format": "regard.memory", "version": "1", "format": "regard.memory"}}'
    ),
    "unknown metadata": header({"__metadata__": {**METADATA, "sha257": "0"}}),
    "a hole": header({"__metadata__": METADATA, "key": ONE}, bytes(40)),
}


@pytest.mark.parametrize("attack", HOSTILE)
def test_hostile_bytes_are_refused_by_name(tmp_path, attack):
    path = tmp_path / "m"
    path.write_bytes(HOSTILE[attack])
    with pytest.raises(MemoryFileError, match=str(path)):
        Memory.open(path)


def test_contents_that_do_not_belong_together_are_refused(tmp_path):
    def saying(**parts: object) -> dict[str, str]:
        return {**METADATA, **{name: json.dumps(part) for name, part in parts.items()}}

    key = torch.zeros(2, 3)
    payloads = torch.frombuffer(bytearray(b"[1]"), dtype=torch.uint8)
    deep = torch.frombuffer(bytearray(b"[" * 100_000), dtype=torch.uint8)
    cases = [
        ({"key": key}, {**METADATA, "version": "999"}, "format version 999, this Regard reads 1"),
        ({"value": key}, METADATA, "values without keys"),
        ({"key": key, "value": torch.zeros(3, 3)}, METADATA, "'value' has shape"),
        ({"key": torch.zeros(3)}, METADATA, "'key' has shape"),
        ({"key": key.long()}, METADATA, "'key' has type"),
        ({"key": key / 0}, METADATA, "'key' holds infinities or NaN"),
        ({"key": key, "more": key.clone()}, METADATA, "unexpected tensor 'more'"),
        ({"key": key, "payloads": payloads}, METADATA, "not a list of 2"),
        ({"key": key, "payloads": deep}, METADATA, "damaged"),
        ({"key": key, "payloads": key.clone()}, METADATA, "not bytes"),
        ({"key": key}, saying(score={"name": "Bomb", "fields": {}}), "unknown score 'Bomb'"),
        ({"key": key}, saying(normaliser=3), "its normaliser is not described"),
        ({"key": key}, saying(normaliser={"name": "custom"}), "pass normaliser="),
        (
            {"key": key},
            saying(normaliser={"name": "Softmax", "fields": {"temperature": "x"}}),
            "temperature 'x'",
        ),
        (
            {"key": key},
            saying(normaliser={"name": "Softmax", "fields": {"temperature": 10**4000}}),
            "has temperature 10000",
        ),
        (
            {},
            saying(encoder={"name": "CharacterNgrams", "fields": {**NGRAMS, "width": 10**12}}),
            "width 1000000000000, at most",
        ),
        (
            {"key": key},
            saying(encoder={"name": "CharacterNgrams", "fields": {"width": 10**12}}),
            "other settings",
        ),
        (
            {"key": key},
            saying(encoder={"name": "CharacterNgrams", "fields": {**NGRAMS, "width": 10**12}}),
            "its encoder makes vectors of width 1000000000000, its keys have 3",
        ),
    ]
    path = tmp_path / "m"
    for tensors, metadata, message in cases:
        save_file(tensors, path, metadata)
        with pytest.raises(MemoryFileError, match=message) as caught:
            Memory.open(path)
        assert str(caught.value).startswith(str(path))


def test_an_enormous_power_in_a_setting_is_refused(tmp_path):
    saved = '{"name": "Softmax", "fields": {"temperature": 1e100000000}}'
    assert float("1e100000000") == float("inf")
    save_file({"key": torch.zeros(2, 3)}, tmp_path / "m", {**METADATA, "normaliser": saved})
    with pytest.raises(MemoryFileError, match="has temperature inf"):
        Memory.open(tmp_path / "m")


def test_an_encoder_of_enormous_ngrams_ends(tmp_path):
    long = {"name": "CharacterNgrams", "fields": {"width": 64, "shortest": 1, "longest": 10**15}}
    save_file({}, tmp_path / "m", {**METADATA, "encoder": json.dumps(long)})
    memory = Memory.open(tmp_path / "m")
    memory.write(["abc"], ["payload"])
    assert len(memory) == 1


def test_what_cannot_be_read_is_an_oserror_with_its_name(tmp_path):
    with pytest.raises(OSError, match="missing"):
        Memory.open(tmp_path / "missing")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(MemoryFileError, match="not a regular file"):
        Memory.open(tmp_path / "pipe")


def test_a_score_by_name_takes_the_saved_parameters(tmp_path):
    memory = Memory(d_key=3, score="general")
    memory.write(torch.eye(3), torch.ones(3, 2))
    memory.save(tmp_path / "m")
    opened_memory = Memory.open(tmp_path / "m", score="general", normaliser="hard")
    assert torch.equal(opened_memory.score.weight, memory.score.weight)
    assert opened_memory.normaliser == normalisers.Hard()


def test_what_was_saved_with_the_default_reads_the_same_with_any_encoder(tmp_path):
    memory = Memory()
    memory.write(CharacterNgrams()(["Subject", "Object"]))
    memory.save(tmp_path / "m")
    opened_memory = Memory.open(tmp_path / "m", encoder=CharacterNgrams())
    query = CharacterNgrams()(["Subject"])
    assert torch.equal(opened_memory.look("Subject").weights(), memory.look(query).weights())
    strings = Memory(encoder=CharacterNgrams())
    strings.write(["Subject", "Object"])
    strings.save(tmp_path / "s")
    assert torch.equal(
        Memory.open(tmp_path / "s").look(query).weights(), strings.look("Subject").weights()
    )
