"""Files of a model that were cut, flipped, swapped or forged: refused by name, never half loaded."""

from __future__ import annotations

import io
import json
import pickle
import random
import resource
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from tests.journeys.commands import check_refused, leftovers, run, run_here

from regard.translation import weights

TEXT = "El gato ve el mar."


def translate(model: Path):
    return run("translate", "--model", model, "--beam", "1", TEXT)


def translate_here(model: Path):
    """In this process: a quarter of the time, for a file that is damaged at many places."""
    return run_here("translate", "--model", model, "--beam", "1", TEXT)


def unsigned(model: Path) -> Path:
    """Without checksums: what somebody gets who makes a folder by hand, so that the checks behind them count."""
    (model / "checksums.json").unlink()
    return model


def test_a_file_that_was_cut_anywhere_is_refused(model):
    path = model / "model.safetensors"
    whole_content = path.read_bytes()
    for twentieth in range(21):
        cut = whole_content[: len(whole_content) * twentieth // 21]
        path.write_bytes(cut)
        check_refused(translate_here(model), path, "corrupted or truncated")
    check_refused(translate(model), path, "corrupted or truncated", seconds=5)
    path.write_bytes(whole_content)
    assert translate(model).code == 0


def test_a_file_that_was_cut_is_refused_without_checksums_too(model):
    path = unsigned(model) / "model.safetensors"
    whole_content = path.read_bytes()
    for twentieth in range(21):
        path.write_bytes(whole_content[: len(whole_content) * twentieth // 21])
        check_refused(translate_here(model), path, "corrupted or truncated")
    check_refused(translate(model), path, "corrupted or truncated", seconds=5)


FILES = ["model.safetensors", "optimiser.safetensors", "progress.json", "configuration.toml"]


@pytest.mark.parametrize("name", FILES)
def test_a_checkpoint_that_was_cut_is_not_resumed_from(name, model, corpus):
    path = model / "checkpoints" / "step-12" / name
    whole_content = path.read_bytes()
    for twentieth in range(0, 21, 4):
        path.write_bytes(whole_content[: len(whole_content) * twentieth // 21])
        result = run("train", model, "--resume", "--data", corpus)
        check_refused(
            result, path, "corrupted or truncated", f"remove {path.parent} to go on from step 6"
        )
    shutil.rmtree(path.parent)
    on = run("train", model, "--resume", "--data", corpus)
    assert on.code == 0, on
    assert (model / "checkpoints" / "step-12").is_dir()


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.model", "checksums.json"])
def test_a_flipped_bit_is_noticed(name, model):
    path = model / name
    content, dice = path.read_bytes(), random.Random(5)
    for _ in range(20):
        flipped = bytearray(content)
        flipped[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        path.write_bytes(flipped)
        result = translate_here(model)
        # A flip in the space between two entries of the table changes nothing that it says.
        harmless = name == "checksums.json" and json_equal(content, bytes(flipped))
        assert harmless or result.code == 1, (name, result)
        assert harmless or not result.out
        assert "Traceback" not in result.err


def json_equal(content: bytes, expected: bytes) -> bool:
    try:
        return bool(json.loads(content) == json.loads(expected))
    except ValueError:
        return False


def spoil(tensors: dict[str, torch.Tensor], fault: str) -> str:
    name = sorted(tensors)[1]
    tensor = tensors.pop(name)
    spoilt = {
        "missing": None,
        "other name": tensor,
        "shape": tensor[..., :-1].contiguous(),
        "type": tensor.to(torch.int32),
        "nan": tensor.clone().view(-1).index_fill(0, torch.tensor([0]), torch.nan).view_as(tensor),
        "infinite": tensor.clone().fill_(torch.inf),
    }[fault]
    if spoilt is not None:
        tensors["unknown" if fault == "other name" else name] = spoilt
    return name


@pytest.mark.parametrize("fault", ["missing", "other name", "shape", "type", "nan", "infinite"])
def test_a_tensor_that_does_not_fit_is_named(fault, model):
    path = unsigned(model) / "model.safetensors"
    tensors = weights.load(path)
    name = spoil(tensors, fault)
    weights.save(tensors, path)
    check_refused(translate(model), path, f"tensor {name}")


class Bomb:
    def __reduce__(self):
        return (open, ("PWNED", "w"))


def bombs() -> dict[str, bytes]:
    saved, zipped = io.BytesIO(), io.BytesIO()
    torch.save({"weight": Bomb()}, saved)
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Bomb()))
    return {"torch": saved.getvalue(), "pickle": pickle.dumps(Bomb()), "zip": zipped.getvalue()}


@pytest.mark.parametrize("kind", ["torch", "pickle", "zip"])
def test_nothing_is_ever_unpickled(kind, model, corpus, tmp_path):
    bomb = bombs()[kind]
    (model / "model.safetensors").write_bytes(bomb)
    test = ["--source", corpus / "valid.es", "--target", corpus / "valid.en"]
    for command in (["translate", TEXT], ["look", TEXT], ["evaluate", *test]):
        check_refused(run(*command, "--model", model), model, "refusing to unpickle")
    checkpoint = model / "checkpoints" / "step-12" / "model.safetensors"
    checkpoint.write_bytes(bomb)
    check_refused(run("train", model, "--resume", "--data", corpus), checkpoint)
    assert not (tmp_path / "PWNED").exists()


def forged(header: object, data: bytes = b"\0" * 8) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def tensor(start: int, end: int, shape: list[int] | None = None, kind: str = "F32") -> object:
    return {"dtype": kind, "shape": shape or [(end - start) // 4], "data_offsets": [start, end]}


# Written here: json takes a second for them, whenever the tests are collected.
MANY = (
    b'"t%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % number for number in range(100_000)
)
ATTACKS = {
    "length 2^63": (2**63).to_bytes(8, "little") + b"{}",
    "a length beyond the file": (10**8).to_bytes(8, "little") + b"{}" * 50,
    "many entries": forged(b"{%b}" % b",".join(MANY), b""),
    "a name twice": forged(b'{"a":%b,"a":%b}' % ((json.dumps(tensor(0, 8)).encode(),) * 2)),
    "overlapping": forged({"a": tensor(0, 8), "b": tensor(4, 8)}),
    "out of bounds": forged({"a": tensor(0, 80)}),
    "a hole": forged({"a": tensor(4, 8)}),
    "overflow": forged({"a": tensor(0, 8, [4194305, 4194305, 211106198978564])}),
    "no type": forged({"a": tensor(0, 8, kind="F31")}),
    "not UTF-8": forged(b'{"\xff":1}'),
    "deep": forged(b'{"a":' + b"[" * 100_000),
    "no table": forged([1, 2]),
    "negative": forged({"a": tensor(-8, 0)}, b""),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_forged_header_is_refused(name, model):
    path = unsigned(model) / "model.safetensors"
    path.write_bytes(ATTACKS[name])
    check_refused(translate(model), path, seconds=2, megabytes=300)


def test_a_header_of_100_megabytes_is_not_read(model):
    path = unsigned(model) / "model.safetensors"
    with path.open("wb") as file:
        file.write((10**8).to_bytes(8, "little"))
        file.truncate(10**8 + 8)
    assert path.stat().st_size > 10**8
    check_refused(translate(model), path, "corrupted or truncated", seconds=2, megabytes=50)


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 100, b"\x0a\xff\xff\xff\xff\x0f", b"[" * 10**6, bytes(range(256)) * 8, None],
    ids=["empty", "zeros", "length", "deep", "noise", "archive"],
)
def test_a_forged_tokenizer_is_refused(content, model):
    path = unsigned(model) / "tokenizer.model"
    if content is None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("../../PWNED", bytes(2**20))
    else:
        path.write_bytes(content)
    check_refused(translate(model), path)
    assert not (model.parent.parent / "PWNED").exists()


def other_tokenizer(size: int, **more: object) -> bytes:
    import sentencepiece

    stream = io.BytesIO()
    lines = ["the quick brown fox jumps over the lazy dog", "pack my box with five jugs"] * 20
    settings = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, **more}
    ours = {
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=stream,
        vocab_size=size,
        minloglevel=2,
        **ours,
        **settings,
    )
    return stream.getvalue()


def test_a_tokenizer_of_another_vocabulary_is_refused(model):
    path = model / "tokenizer.model"
    path.write_bytes(other_tokenizer(290))
    check_refused(translate(model), path, "sha256")
    check_refused(translate(unsigned(model)), model / "model.safetensors", "(290, 16)")


def test_a_tokenizer_with_other_special_pieces_is_refused(model):
    path = unsigned(model) / "tokenizer.model"
    path.write_bytes(other_tokenizer(290, pad_id=-1, unk_id=0, bos_id=1, eos_id=2))
    check_refused(translate(model), path, "ids 0, 1, 2, 3")


def test_tokenizers_that_changed_places_are_noticed(corpus, tmp_path):
    folder = tmp_path / "run"
    apart = ["tokenizer.joint=false", 'model.tied="target"', "training.max_steps=3"]
    sets = [part for each in apart for part in ("--set", each)]
    assert run("train", corpus / "tiny.toml", "--run", folder, *sets).code == 0
    source, target = folder / "source.model", folder / "target.model"
    assert source.read_bytes() != target.read_bytes()
    source.rename(folder / "kept")
    target.rename(source)
    (folder / "kept").rename(target)
    check_refused(translate(folder), source, "sha256")
    resumed = ["train", folder, "--resume", "--data", corpus, "--set", "training.max_steps=6"]
    check_refused(run(*resumed), source, "sha256")
    (folder / "model.safetensors").unlink()  # as before a training has ended
    check_refused(translate(folder), source, "sha256")


def test_a_checkpoint_of_another_format_is_refused_with_both_versions(model, corpus):
    from regard.translation import checksums

    checkpoint = model / "checkpoints" / "step-12"
    progress = json.loads((checkpoint / "progress.json").read_text(encoding="utf-8"))
    (checkpoint / "progress.json").write_text(json.dumps({**progress, "version": 999}))
    checksums.sign(checkpoint, FILES)
    check_refused(run("train", model, "--resume", "--data", corpus), checkpoint, "999", "format 1")


def test_what_a_killed_process_left_is_ignored_and_cleaned(model, corpus):
    unfinished = model / "checkpoints" / ".step-99.1.tmp"
    shutil.copytree(model / "checkpoints" / "step-6", unfinished)
    (model / ".card.md.1.tmp").write_text("half", encoding="utf-8")
    assert translate(model).code == 0
    result = run("train", model, "--resume", "--data", corpus)
    assert "finished at step 12" in result.out
    assert leftovers(model) == []


def test_a_full_disk_keeps_the_checkpoint_there_is(corpus, tmp_path):
    folder = tmp_path / "run"
    steps = ["--set", "training.max_steps=3"]
    assert run("train", corpus / "tiny.toml", "--run", folder, *steps).code == 0
    contents_before = {path: path.read_bytes() for path in folder.rglob("*.safetensors")}
    more = ["--resume", "--data", corpus, "--set", "training.max_steps=6"]
    # Files may grow no further than this.
    result = run("train", folder, *more, limits={resource.RLIMIT_FSIZE: 20_000})
    check_refused(result, folder / "checkpoints" / "step-6", "File too large")
    assert {path: path.read_bytes() for path in folder.rglob("*.safetensors")} == contents_before
    assert leftovers(folder) == []


LINKED = ["metrics.jsonl", "commands.txt", "model.safetensors", "card.md", "checksums.json"]


@pytest.mark.parametrize("name", [*LINKED, "checkpoints"])
def test_a_link_in_a_run_folder_leads_no_write_out_of_it(name, model, corpus, tmp_path):
    elsewhere = tmp_path / "elsewhere" / name
    elsewhere.parent.mkdir()
    (model / name).rename(elsewhere)
    (model / name).symlink_to(elsewhere)
    contents_before = {
        path: path.read_bytes() for path in elsewhere.parent.rglob("*") if path.is_file()
    }
    more = ["--set", "training.max_steps=13", "--set", "training.keep_best=1"]
    result = run("train", model, "--resume", "--data", corpus, *more)
    check_refused(result, model / name, "is a link")
    contents_after = {
        path: path.read_bytes() for path in elsewhere.parent.rglob("*") if path.is_file()
    }
    assert contents_after == contents_before


def test_a_file_of_words_that_is_a_link_is_not_written_through(model, corpus, tmp_path):
    mine = tmp_path / "mine"
    mine.write_bytes(b"mine")
    (model / "words.json").unlink(missing_ok=True)
    (model / "words.json").symlink_to(mine)
    check_refused(run("doubts", "--model", model, "--data", corpus), "words.json", "is a link")
    assert mine.read_bytes() == b"mine"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_standard_output_on_a_full_disk_is_a_clean_failure(trained):
    from tests.journeys.commands import Bytes, main, standing_in

    err = Bytes()
    with open("/dev/full", "wb", buffering=0) as full, standing_in(b"", full, err):
        code = main(["translate", "--model", str(trained), TEXT])
        sys.stdout.detach()
        sys.stdout = sys.stderr
    assert code == 1
    assert "error: standard output: No space left on device" in err.getvalue().decode()
