"""Weights: what was saved comes back, and no file is believed before it is checked."""

from __future__ import annotations

import io
import json
import pickle
import random
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from regard.errors import CheckpointError
from regard.translation import weights


def tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {
        "a": torch.randn(3, 4),
        "b.c": torch.arange(5),
        "half": torch.randn(2).half(),
        "none": torch.empty(0),
    }


def raw(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(
    start: int, stop: int, shape: list[int] | None = None, dtype: str = "F32"
) -> dict[str, object]:
    return {
        "dtype": dtype,
        "shape": [(stop - start) // 4] if shape is None else shape,
        "data_offsets": [start, stop],
    }


def test_what_was_saved_comes_back(tmp_path):
    path = tmp_path / "w.safetensors"
    weights.save(tensors(), path)
    actual_tensors = weights.load(path)
    assert actual_tensors.keys() == tensors().keys()
    assert all(torch.equal(actual_tensors[name], tensor) for name, tensor in tensors().items())
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_header_may_have_any_length(tmp_path):
    """One of 640 bytes begins with 80 02, like a pickle; one of 19,280 with PK, like an archive."""
    path = tmp_path / "w.safetensors"
    positions = set()
    for length in range(1, 300, 7):
        weights.save({"x" * length: torch.ones(1)}, path)
        positions.add(path.read_bytes()[0])
        assert weights.load(path)["x" * length].item() == 1
    assert 0x80 in positions
    padding = b" " * (0x4B50 - len(json.dumps({"a": entry(0, 4)})))
    path.write_bytes(raw(json.dumps({"a": entry(0, 4)}).encode() + padding, bytes(4)))
    assert path.read_bytes()[:2] == b"PK"
    assert weights.load(path)["a"].item() == 0


# Written here: json takes a second for them, whenever the tests are collected.
MANY = (
    b'"t%d":{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]}' % (i, 4 * i, 4 * i + 4)
    for i in range(100_000)
)
ATTACKS = {
    "empty": b"",
    "seven bytes": b"\x02\0\0\0\0\0\0",
    "length 2^63": raw({}, length=2**63),
    "length 2^64 - 1": raw({}, length=2**64 - 1),
    "header of 100 MB": raw({"a": entry(0, 4)}, bytes(4), length=100 * 2**20),
    "length past the end": raw({"a": entry(0, 4)}, bytes(4), length=10_000),
    "100,000 entries over nothing": raw(b"{%s}" % b",".join(MANY)),
    "duplicate key": raw(b'{"a":%s,"a":%s}' % ((json.dumps(entry(0, 4)).encode(),) * 2), bytes(4)),
    "overlap": raw({"a": entry(0, 8), "b": entry(4, 12)}, bytes(12)),
    "hole": raw({"a": entry(0, 4), "b": entry(8, 12)}, bytes(12)),
    "out of bounds": raw({"a": entry(0, 400)}, bytes(4)),
    "data left over": raw({"a": entry(0, 4)}, bytes(8)),
    "negative offset": raw({"a": entry(-4, 0)}, b""),
    "backwards": raw({"a": entry(4, 0)}, bytes(4)),
    "shape overflow": raw({"a": entry(0, 4, [4194305, 4194305, 211106198978564])}, bytes(4)),
    "shape and size differ": raw({"a": entry(0, 4, [2])}, bytes(4)),
    "negative shape": raw({"a": entry(0, 4, [-1])}, bytes(4)),
    "type missing": raw({"a": {"shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
    "offsets missing": raw({"a": {"dtype": "F32", "shape": [1]}}, bytes(4)),
    "offsets of text": raw({"a": {"dtype": "F32", "shape": [1], "data_offsets": "04"}}, bytes(4)),
    "entry no table": raw({"a": [0, 4]}, bytes(4)),
    "a list": raw([1, 2]),
    "a number": raw(b"12"),
    "no JSON": raw(b"{{{{"),
    "not UTF-8": raw(b'{"\xff": 1}'),
    "deep": raw(b"[" * 100_000),
    "deep table": raw(b'{"a":' * 100_000),
    "huge number": raw(b'{"a": ' + b"9" * 5000 + b"}"),
    "random": random.Random(0).randbytes(5000),
}


def test_a_type_that_is_not_read_is_named(tmp_path):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(raw({"a": entry(0, 4, [1]), "b": entry(4, 8, [8], "F4")}, bytes(8)))
    with pytest.raises(CheckpointError, match="tensor 'b' has type F4, which is not read"):
        weights.load(path)


@pytest.mark.parametrize("kind", sorted(ATTACKS))
def test_evil_headers_are_refused(tmp_path, kind):
    path = tmp_path / "evil.safetensors"
    path.write_bytes(ATTACKS[kind])
    with pytest.raises(
        CheckpointError, match=r"evil\.safetensors: corrupted or truncated"
    ) as fault:
        weights.load(path)
    assert len(str(fault.value)) < 1000


def test_a_large_sparse_file_is_refused_from_its_first_bytes(tmp_path):
    path = tmp_path / "sparse.safetensors"
    with path.open("wb") as file:
        file.write((100 * 2**20).to_bytes(8, "little"))
        file.truncate(200 * 2**20)
    with pytest.raises(CheckpointError, match="its header does not fit"):
        weights.load(path)


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path("PWNED"),)


def test_pickles_and_archives_are_not_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(Bomb()))
    saved = io.BytesIO()
    torch.save({"a": torch.ones(1)}, saved)
    for content in (
        archive.getvalue(),
        saved.getvalue(),
        *(pickle.dumps(Bomb(), p) for p in range(2, 6)),
    ):
        path = tmp_path / "model.safetensors"
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="refusing to unpickle"):
            weights.load(path)
    assert not (tmp_path / "PWNED").exists()


def test_every_truncation_is_refused(tmp_path):
    path = tmp_path / "w.safetensors"
    weights.save(tensors(), path)
    whole_content = path.read_bytes()
    for length in range(0, len(whole_content), max(1, len(whole_content) // 40)):
        path.write_bytes(whole_content[:length])
        with pytest.raises(CheckpointError, match="corrupted or truncated"):
            weights.load(path)


def test_flips_are_refused_or_load_as_other_numbers(tmp_path):
    path, dice = tmp_path / "w.safetensors", random.Random(1)
    weights.save(tensors(), path)
    content, refused = path.read_bytes(), 0
    for _ in range(200):
        flipped = bytearray(content)
        flipped[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        path.write_bytes(flipped)
        try:
            weights.load_into(nn.Linear(4, 3), weights.load(path), path)
        except CheckpointError:
            refused += 1
    assert refused == 200  # never the tensors of this module, however the file reads


def test_a_file_that_cannot_be_read(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(CheckpointError, match="cannot be read"):
            weights.load(path)


def wrong(name: str, tensor: torch.Tensor | None) -> str:
    module = nn.Linear(4, 3)
    state = dict(module.state_dict())
    if tensor is None:
        del state[name]
    else:
        state[name] = tensor
    copies_before = {key: value.clone() for key, value in module.state_dict().items()}
    with pytest.raises(CheckpointError) as fault:
        weights.load_into(module, state, Path("w.safetensors"))
    assert all(torch.equal(copies_before[key], value) for key, value in module.state_dict().items())
    return str(fault.value)


def test_tensors_that_do_not_fit_are_named_and_nothing_is_loaded():
    assert "tensor bias is missing" in wrong("bias", None)
    assert "tensor other has no place" in wrong("other", torch.ones(1))
    assert "tensor weight has shape (3, 5), the configuration asks for (3, 4)" in wrong(
        "weight", torch.ones(3, 5)
    )
    assert "tensor bias is torch.int64" in wrong("bias", torch.ones(3, dtype=torch.int64))
    assert "tensor bias is torch.complex64" in wrong("bias", torch.ones(3, dtype=torch.complex64))
    for number in (torch.nan, torch.inf, -torch.inf):
        assert "tensor weight holds numbers that are not finite" in wrong(
            "weight", torch.full((3, 4), number)
        )
    beyond = torch.full((3, 4), 1e300, dtype=torch.float64)
    assert "tensor weight holds numbers that are not finite" in wrong("weight", beyond)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn]
)
def test_any_floating_type_is_taken(dtype):
    module = nn.Linear(4, 3)
    inputs = {name: tensor.detach().to(dtype) for name, tensor in module.state_dict().items()}
    weights.load_into(module, inputs, Path("w"))
    assert module.weight.dtype == torch.float32
    assert torch.equal(module.weight, inputs["weight"].float())


def test_shared_tensors_are_kept_once():
    module = nn.ModuleDict(
        {"first": nn.Linear(2, 2, bias=False), "second": nn.Linear(2, 2, bias=False)}
    )
    module["second"].weight = module["first"].weight
    assert list(weights.unique(module)) == ["first.weight"]
    weights.load_into(module, {"first.weight": torch.ones(2, 2)}, Path("w"))
    assert module["second"].weight.sum() == 4


def test_rows_of_zeros_and_of_large_numbers_come_back(tmp_path):
    matrix = torch.tensor([[0.0, 0.0], [1e30, -2e30], [1e-40, 0.0]])
    weights.save(weights.rounded({"a": matrix, "b": torch.ones(2)}), tmp_path / "w.safetensors")
    actual_tensors = weights.load(tmp_path / "w.safetensors", check=lambda shapes: shapes["a"])
    assert actual_tensors.keys() == {"a", "b"}
    assert torch.allclose(actual_tensors["a"], matrix, rtol=0.008, atol=1e-39)


def test_scales_that_do_not_fit_are_refused(tmp_path):
    tensors = {"a": torch.ones(1, 4, dtype=torch.int8), "a.scale": torch.ones(1000)}
    weights.save(tensors, tmp_path / "w.safetensors")
    with pytest.raises(CheckpointError, match=r"a\.scale has not one number for each row of a"):
        weights.load(tmp_path / "w.safetensors")
