"""`regard explore FILE`: queries and keys of a file become a scene; bad files get one sentence."""

from __future__ import annotations

import importlib
import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from safetensors.torch import save_file

import regard
from regard import tensor_files
from regard.cli.main import main
from regard.explorer.stored import open_file

TOKENS = ["one", "two", "three"]


def saved(path, query=None, key=None, **metadata):
    tensors = {"query": torch.randn(4, 3, 8) if query is None else query}
    tensors["key"] = torch.randn(2, 3, 8) if key is None else key
    save_file(tensors, path, metadata or None)
    return path, tensors


def test_the_look_of_a_file_is_that_of_its_queries_and_keys(tmp_path):
    path, tensors = saved(tmp_path / "a.safetensors", tokens=json.dumps(TOKENS), mask="causal")
    scene = open_file(path)
    (attention,) = scene.attentions
    assert (scene.title, attention.name, attention.kind, attention.shape) == (
        "a.safetensors",
        "a",
        "causal",
        (4, 3, 3),
    )
    assert (
        scene.sequences[attention.rows].tokens
        == scene.sequences[attention.columns].tokens
        == TOKENS
    )
    expected = regard.look(
        tensors["query"],
        tensors["key"].repeat_interleave(2, 0),
        mask=regard.masks.causal(align="end"),
    )
    torch.testing.assert_close(attention.look.weights(), expected.weights())


def test_queries_of_another_sequence_have_positions(tmp_path):
    path, _ = saved(tmp_path / "a.safetensors", torch.randn(1, 2, 5, 8), torch.randn(1, 2, 3, 8))
    scene = open_file(path)
    (attention,) = scene.attentions
    assert (attention.kind, attention.shape) == ("cross", (2, 5, 3))
    assert [side.tokens for side in scene.sequences] == [list("01234"), list("012")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": torch.zeros(2, 3, 4)}, "expected one width"),
        ({"key": torch.zeros(3, 3, 8)}, "multiple of the key heads"),
        ({"key": torch.zeros(8)}, r"expected \(heads, tokens, width\)"),
        ({"key": torch.zeros(2, 0, 8)}, "none of them 0"),
        ({"key": torch.zeros(2, 3, 8, dtype=torch.int32)}, "expected floats"),
        ({"key": torch.full((2, 3, 8), torch.nan)}, "not finite"),
        ({"tokens": "[1]"}, "not a JSON list of strings"),
        ({"tokens": "{"}, "not a JSON list of strings"),
        ({"tokens": '["a"]'}, "1 strings for 3 keys"),
        ({"mask": "none"}, '"causal" is the only one'),
        ({"mask": "causal", "query": torch.zeros(2, 5, 8)}, "at least 5 keys"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, options, message):
    path, _ = saved(tmp_path / "a.safetensors", **options)
    with pytest.raises(regard.errors.DataError, match=message) as fault:
        open_file(path)
    assert "\n" not in str(fault.value)


def test_no_file_and_no_tensors_are_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.safetensors").write_text("no tensors here")
    save_file({"key": torch.zeros(2, 3)}, tmp_path / "half.safetensors")
    for name, message in [
        ("text", "not a safetensors file"),
        ("half", 'no tensor "query"'),
        ("missing", "cannot be read"),
    ]:
        assert main(["explore", f"{name}.safetensors"]) == 1
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    save_file(
        {"key": torch.zeros(2, 3), "query": torch.zeros(1, 3)}, tmp_path / "whole.safetensors"
    )
    assert main(["explore", "whole.safetensors", "whole.safetensors"]) == 2
    assert "file or program at a time" in capsys.readouterr().err
    (tmp_path / "model_here.py").write_text("def example():\n    pass\n", encoding="utf-8")
    (tmp_path / "failing_here").mkdir()
    (tmp_path / "failing_here" / "__init__.py").write_text("raise OSError('no disk')\n")
    (tmp_path / "failing_here" / "module.py").touch()
    importlib.invalidate_caches()
    for tile, message in [
        ("no_such_module:call", "there is no module no_such_module, here or installed"),
        ("no_such_package.module:call", "there is no module no_such_package, here or installed"),
        ("json.no_such_module:call", "there is no module json.no_such_module, here or installed"),
        ("json:nothing", "json has no function nothing"),
        ("model_here:exmaple", "model_here has no function exmaple"),
    ]:
        assert main(["explore", tile]) == 2
        # No server was started.
        assert capsys.readouterr() == ("", f"error: {tile}: {message}\n")
    for tile, code, message in [
        ("json:JSON", 2, "json has no function JSON"),  # a word of its comments
        ("os:getcwd", 1, "returned str"),
        ("failing_here.module:call", 1, "OSError: no disk (add --debug to see where)"),
        ("no such model", 1, "no such model or run folder"),
    ]:
        # A browser of other tests keeps a loop running in this thread.
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(main, ["explore", tile]).result() == code
        error = capsys.readouterr().err
        assert f"{tile}: {message}" in error or message in error
        assert "--watch" not in error


@pytest.mark.parametrize(
    ("query", "key", "message"),
    [
        ((1 << 20, 1, 1), (1, 1 << 20, 1), "1,099,511,627,776 weights"),
        ((4096, 1, 512), (2, 4096, 512), "8,589,934,592 numbers"),
    ],
)
def test_shapes_that_expand_are_refused_before_anything_is_computed(tmp_path, query, key, message):
    path, _ = saved(tmp_path / "a.safetensors", torch.ones(query), torch.ones(key))
    assert path.stat().st_size < 1 << 25
    with pytest.raises(regard.errors.DataError, match=message) as fault:
        open_file(path)
    assert str(path) in str(fault.value)


def test_tensors_of_types_that_are_not_read_may_stand_beside_queries_and_keys(tmp_path):
    path, _ = saved(tmp_path / "a.safetensors")
    expected = open_file(path).attentions[0].look.weights()
    content = path.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    table, size = json.loads(content[8:begin]), len(content) - begin
    scale = {"dtype": "F8_E8M0", "shape": [4], "data_offsets": [size, size + 4]}
    text = json.dumps({**table, "scale": scale}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[begin:] + bytes(4))
    assert torch.equal(open_file(path).attentions[0].look.weights(), expected)
    table["query"]["dtype"] = "F8_E8M0"
    text = json.dumps(table).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[begin:])
    with pytest.raises(
        regard.errors.DataError, match="'query' has type F8_E8M0, which is not read"
    ):
        open_file(path)


def test_keys_that_all_heads_share_are_not_copied(tmp_path):
    query, key = torch.randn(64, 3, 8), torch.randn(1, 5, 8)
    path, _ = saved(tmp_path / "a.safetensors", query, key)
    (attention,) = open_file(path).attentions
    assert attention.shape == (64, 3, 5)
    expected = regard.look(query, key.expand(64, 5, 8))
    torch.testing.assert_close(attention.look.weights(), expected.weights())
    torch.testing.assert_close(attention.look[7].weights(), expected[7].weights())


def test_the_file_is_named_when_memory_runs_out(tmp_path, monkeypatch):
    path, _ = saved(tmp_path / "a.safetensors")

    def header(file: object) -> None:
        raise MemoryError

    monkeypatch.setattr(tensor_files, "header", header)
    with pytest.raises(regard.errors.RegardError, match=rf"out of memory while reading {path}"):
        open_file(path)


def test_a_file_that_is_cut_short_while_it_is_shown_changes_nothing(tmp_path):
    path, tensors = saved(tmp_path / "a.safetensors", torch.randn(4, 512, 8))
    (attention,) = open_file(path).attentions
    os.truncate(path, 8)
    assert path.stat().st_size == 8
    expected = regard.look(tensors["query"], tensors["key"].repeat_interleave(2, 0))
    torch.testing.assert_close(
        attention.look.weights(), expected.weights()
    )  # SIGBUS where it is mapped


@pytest.mark.parametrize("name", ["pipe.safetensors", "PIPE.SAFETENSORS"])
def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(regard.errors.DataError, match=f"{name}: cannot be read: not an ordinary"):
        open_file(tmp_path / name)


def test_a_name_that_stands_twice_is_refused(tmp_path):
    path, _ = saved(tmp_path / "a.safetensors", torch.zeros(1, 1, 1), torch.zeros(1, 1, 1))
    content = path.read_bytes()
    spoilt = content.replace(b'"query"', b'"key"  ')
    assert spoilt != content
    path.write_bytes(spoilt)
    with pytest.raises(regard.errors.DataError, match="a name stands twice"):
        open_file(path)
