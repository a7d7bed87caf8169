"""Checkpoints: whole or absent, checked before they are believed."""

from __future__ import annotations

import json
import random
import shutil

import pytest
import torch
from tests.translation.tiny import stop_at, trainer

from regard.translation import weights
from regard.translation.errors import CheckpointError, TrainingError
from regard.translation.training import checkpoints


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A trainer at step 3 with its checkpoint."""
    made = stop_at(trainer(tmp_path_factory.mktemp("saved")), 3)
    return made, made.run.newest_checkpoint()


@pytest.fixture
def copy(saved, tmp_path):
    return shutil.copytree(saved[1], tmp_path / "step-3")


def test_everything_comes_back(saved):
    made, folder = saved
    own = {name: tensor.clone() for name, tensor in weights.unique(made.model).items()}
    state = {
        k: v.clone() for k, v in checkpoints._optimiser_state(made.model, made.optimiser).items()
    }
    with torch.no_grad():
        for parameter in made.model.parameters():
            parameter.zero_()
    torch.manual_seed(99)
    progress = checkpoints.load(folder, made.model, made.optimiser)
    assert progress == made.progress
    assert all(torch.equal(own[n], t) for n, t in weights.unique(made.model).items())
    again = checkpoints._optimiser_state(made.model, made.optimiser)
    again["random.cpu"] = weights.load(folder / checkpoints.OPTIMISER)["random.cpu"]
    state["random.cpu"] = again["random.cpu"]
    assert all(torch.equal(state[name], tensor) for name, tensor in again.items())
    assert {name.split(".")[0] for name in state} == {"step", "exp_avg", "exp_avg_sq", "random"}


@pytest.mark.parametrize("name", [checkpoints.MODEL, checkpoints.OPTIMISER, checkpoints.PROGRESS])
def test_every_flip_truncation_and_loss_is_noticed(saved, copy, name):
    path, dice = copy / name, random.Random(name)
    whole = path.read_bytes()
    for _ in range(20):
        flipped = bytearray(whole)
        flipped[dice.randrange(len(whole))] ^= 1 << dice.randrange(8)
        path.write_bytes(flipped)
        with pytest.raises(CheckpointError, match=f"{name}: corrupted or truncated"):
            checkpoints.load(copy, saved[0].model)
    for share in range(0, 100, 10):
        path.write_bytes(whole[: len(whole) * share // 100])
        with pytest.raises(CheckpointError, match=f"{name}: corrupted or truncated"):
            checkpoints.load(copy, saved[0].model)
    path.unlink()
    with pytest.raises(CheckpointError, match=f"{name}: cannot be read"):
        checkpoints.load(copy, saved[0].model)


@pytest.mark.parametrize("sums", [b"", b"{", b"[]", b'{"a": 1}', b"\xff", b"[" * 100_000])
def test_broken_checksums_are_noticed(saved, copy, sums):
    (copy / "checksums.json").write_bytes(sums)
    with pytest.raises(CheckpointError, match=r"checksums\.json|model\.safetensors"):
        checkpoints.load(copy, saved[0].model)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": 999}, "written in format 999, this program reads format 1"),
        ({"stap": 3}, "corrupted or truncated"),
        (None, "corrupted or truncated"),
    ],
)
def test_progress_of_another_format(saved, copy, change, told):
    path = copy / checkpoints.PROGRESS
    table = json.loads(path.read_text())
    path.write_text(json.dumps([] if change is None else table | change))
    checkpoints.write_sums(copy, [checkpoints.MODEL, checkpoints.OPTIMISER, checkpoints.PROGRESS])
    with pytest.raises(CheckpointError, match=told):
        checkpoints.load(copy, saved[0].model)


def test_a_full_disk_leaves_the_earlier_checkpoints(saved, monkeypatch):
    made, folder = saved
    before = weights.sha256(folder / checkpoints.MODEL)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    made.progress.step = 4
    try:
        with pytest.raises(
            CheckpointError, match=r"step-4: cannot be saved: No space left on device"
        ):
            checkpoints.save(made.run, made.progress, made.model, made.optimiser)
    finally:
        made.progress.step = 3
    assert [p.name for p in folder.parent.iterdir()] == ["step-3"]
    assert weights.sha256(folder / checkpoints.MODEL) == before


def test_weights_that_are_no_numbers_are_not_saved(saved):
    made, folder = saved
    bias = next(p for n, p in made.model.named_parameters() if n.endswith("bias"))
    with torch.no_grad():
        bias[0] = torch.inf
        try:
            with pytest.raises(TrainingError, match="bias holds numbers that are not finite"):
                checkpoints.save(made.run, made.progress, made.model, made.optimiser)
        finally:
            bias[0] = 0
    checkpoints.load(folder, made.model)


def test_what_a_kill_left_is_removed(saved):
    run = saved[0].run
    torn, file = run.folder / "checkpoints" / ".step-9.1.tmp", run.folder / ".model.1.tmp"
    torn.mkdir()
    (torn / "model.safetensors").write_bytes(b"half")
    file.write_bytes(b"half")
    assert run.newest_checkpoint() == saved[1]
    checkpoints.clean(run)
    assert not torn.exists()
    assert not file.exists()


def test_the_mean_of_checkpoints(tmp_path):
    for step, value in ((1, 1.0), (2, 4.0)):
        (tmp_path / str(step)).mkdir()
        weights.save({"a": torch.full((2,), value)}, tmp_path / str(step) / checkpoints.MODEL)
    mean = checkpoints.mean([tmp_path / "1", tmp_path / "2"])["a"]
    assert mean.tolist() == [2.5, 2.5]
    assert mean.dtype == torch.float32
