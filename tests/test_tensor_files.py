"""Headers of safetensors files are checked before a tensor is read, and no file is mapped."""

from __future__ import annotations

import json
import os
import struct

import numpy as np
import pytest
import torch
from safetensors.torch import load, save, save_file

from regard import tensor_files
from regard.tensor_files import PickledError, TensorFileError, UnreadTypeError


def entry(first: int, last: int, shape: list[int], dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, last]}


def written(path, header: object, data: bytes = b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def test_the_tensors_and_metadata_of_a_file_come_back(tmp_path):
    tensors = {
        "a": torch.randn(2, 3),
        "empty": torch.zeros(0, 4),
        "one": torch.tensor(1, dtype=torch.int64),
        "half": torch.ones(3, dtype=torch.bfloat16),
    }
    save_file(tensors, tmp_path / "f", {"by": "us"})
    found, metadata = tensor_files.read(tmp_path / "f")
    assert metadata == {"by": "us"}
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    with (tmp_path / "f").open("rb") as file:
        entries = tensor_files.header(file).entries
    content = (tmp_path / "f").read_bytes()
    a = entries["a"]
    assert (a.dtype, a.shape, a.size) == ("F32", (2, 3), 24)
    numbers = np.frombuffer(content[a.offset : a.offset + a.size], "<f4")
    assert numbers.tolist() == tensors["a"].flatten().tolist()


ONE = json.dumps(entry(0, 4, [1])).encode()
SECOND = json.dumps(entry(4, 8, [1])).encode()
FAULTS = {
    "a name twice": (b'{"a": %s, "a": %s}' % (ONE, ONE), 4, "a name stands twice"),
    "a name twice, elsewhere": (b'{"a": %s, "a": %s}' % (ONE, SECOND), 8, "a name stands twice"),
    "a key twice": (ONE.replace(b"{", b'{"a": {"shape": [2], ') + b"}", 4, "stands twice"),
    "metadata twice": (b'{"__metadata__": {"b": "c", "b": "d"}}', 0, "stands twice"),
    "metadata of numbers": ({"__metadata__": {"b": 1}}, 0, "no table of texts"),
    "an axis too large": ({"a": entry(0, 4, [10**30])}, 4, "has a shape that cannot be"),
    "an axis of text": ({"a": entry(0, 4, ["1"])}, 4, "has a shape that cannot be"),  # type: ignore[list-item]
    "an axis of truth": ({"a": entry(0, 4, [True])}, 4, "has a shape that cannot be"),
    "many axes": ({"a": entry(0, 4, [1] * 1000)}, 4, "has a shape that cannot be"),
    "an enormous power": (b'{"a": 1e100000000}', 0, "is not described by type, shape and place"),
    "a place of text": ({"a": entry("0", 4, [1])}, 4, "has a place that cannot be"),  # type: ignore[arg-type]
    "a place that ends before it begins": (
        {"a": entry(4, 0, [1])},
        4,
        "has a place that cannot be",
    ),
    "a place of another size": ({"a": entry(0, 8, [1])}, 8, "has 8 bytes, its shape needs others"),
    "a key too many": ({"a": {**entry(0, 4, [1]), "b": 1}}, 4, "is not described by"),
    "a hole": ({"a": entry(0, 4, [1]), "b": entry(8, 12, [1])}, 12, "does not begin where"),
    "overlap": ({"a": entry(0, 4, [1]), "b": entry(0, 4, [1])}, 4, "does not begin where"),
    "bytes left over": ({"a": entry(0, 4, [1])}, 5, "its tensors end at byte"),
    "cut short": ({"a": entry(0, 400, [100])}, 5, "its tensors end at byte"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_headers_are_refused_with_the_reason(tmp_path, fault):
    header, size, reason = FAULTS[fault]
    path = written(tmp_path / "f", header, bytes(size))
    with pytest.raises(TensorFileError, match=reason):
        tensor_files.read(path)


def test_a_tensor_of_a_type_that_is_not_read_stands_beside_others(tmp_path):
    table = {"a": entry(0, 4, [1]), "scale": entry(4, 6, [4], "F4"), "b": entry(6, 7, [1], "U8")}
    path = written(tmp_path / "f", table, struct.pack("<f", 2.5) + bytes([9, 9, 7]))
    tensors, _ = tensor_files.read(path, ("a", "b", "no such tensor"))
    assert {name: tensor.tolist() for name, tensor in tensors.items()} == {"a": [2.5], "b": [7]}
    for names in (None, ("a", "scale")):
        with pytest.raises(UnreadTypeError, match="tensor 'scale' has type F4, which is not read"):
            tensor_files.read(path, names)


def test_tensors_of_every_type_come_back_as_the_format_itself_reads_them(tmp_path):
    path = tmp_path / "f"
    tensors = {
        name: torch.arange(16, dtype=torch.uint8).view(dtype)
        for name, dtype in tensor_files._TYPES.items()
        if name != "BOOL"
    }
    save_file(tensors, path)
    found, _ = tensor_files.read(path)
    for name, expected in load(path.read_bytes()).items():
        assert found[name].dtype == expected.dtype
        assert torch.equal(found[name].view(torch.uint8), expected.view(torch.uint8))


def test_the_format_itself_takes_the_last_of_two_names(tmp_path):
    """So the check above is needed."""
    content = written(tmp_path / "f", *FAULTS["a name twice"][:1], bytes(4)).read_bytes()
    assert load(content).keys() == {"a"}


def test_a_file_that_is_cut_short_after_it_was_opened_changes_nothing(tmp_path):
    path = tmp_path / "f"
    save_file({"a": torch.ones(1 << 16)}, path)
    found, _ = tensor_files.read(path)
    os.truncate(path, 10)
    assert path.stat().st_size == 10
    assert float(found["a"].sum()) == 1 << 16  # with a mapped file, SIGBUS


def test_pipes_and_pickles_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not an ordinary file"):
        tensor_files.read(tmp_path / "pipe")
    (tmp_path / "f").write_bytes(b"PK\x03\x04" + save({"a": torch.ones(1)}))
    with pytest.raises(PickledError, match="refusing to unpickle"):
        tensor_files.read(tmp_path / "f")
