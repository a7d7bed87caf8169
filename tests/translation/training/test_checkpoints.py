"""Checkpoints: whole or absent, checked before they are believed."""

from __future__ import annotations

import json
import os
import random
import shutil

import pytest
import torch
from tests.translation.tiny import resumed, stop_at, trainer

from regard.errors import CheckpointError, TrainingError
from regard.translation import checksums, weights
from regard.translation.runs import Run
from regard.translation.training import checkpoints
from regard.translation.training.preparation import prepare_resumed


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A trainer at step 3 with its checkpoint."""
    new_trainer = stop_at(trainer(tmp_path_factory.mktemp("saved")), 3)
    return new_trainer, new_trainer.run.newest_checkpoint()


@pytest.fixture
def copy(saved, tmp_path):
    return shutil.copytree(saved[1], tmp_path / "step-3")


def test_everything_comes_back(saved):
    new_trainer, folder = saved
    own_copies = {
        name: tensor.clone() for name, tensor in weights.unique(new_trainer.model).items()
    }
    state = {
        k: v.clone()
        for k, v in checkpoints._optimiser_state(new_trainer.model, new_trainer.optimiser).items()
    }
    with torch.no_grad():
        for parameter in new_trainer.model.parameters():
            parameter.zero_()
    torch.manual_seed(99)
    progress = checkpoints.load(folder, new_trainer.model, new_trainer.optimiser)
    assert progress == new_trainer.progress
    assert all(torch.equal(own_copies[n], t) for n, t in weights.unique(new_trainer.model).items())
    repetition = checkpoints._optimiser_state(new_trainer.model, new_trainer.optimiser)
    repetition["random.cpu"] = weights.load(folder / checkpoints.OPTIMISER)["random.cpu"]
    state["random.cpu"] = repetition["random.cpu"]
    assert all(torch.equal(state[name], tensor) for name, tensor in repetition.items())
    assert {name.split(".")[0] for name in state} == {"step", "exp_avg", "exp_avg_sq", "random"}


FILES = [checkpoints.MODEL, checkpoints.OPTIMISER, checkpoints.PROGRESS]


def flips(content: bytes, dice: random.Random) -> bytes:
    flipped = bytearray(content)
    flipped[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    assert flipped != content
    return bytes(flipped)


def test_each_of_two_hundred_flips_is_noticed(saved, copy):
    """Spread over the files as a bad disk would: by their sizes, but no file fewer than twenty times."""
    sizes = {name: (copy / name).stat().st_size for name in FILES}
    dice, noticed = random.Random(11), 0
    chosen_names = [name for name in FILES for _ in range(20)]
    chosen_names += dice.choices(FILES, list(sizes.values()), k=200 - len(chosen_names))
    copies_before = {
        name: tensor.clone() for name, tensor in weights.unique(saved[0].model).items()
    }
    for name in chosen_names:
        whole_content = (copy / name).read_bytes()
        (copy / name).write_bytes(flips(whole_content, dice))
        with pytest.raises(CheckpointError, match=f"{name}: corrupted or truncated"):
            checkpoints.load(copy, saved[0].model, saved[0].optimiser)
        (copy / name).write_bytes(whole_content)
        noticed += 1
    assert noticed == 200
    loaded = weights.unique(saved[0].model)
    assert all(torch.equal(copies_before[name], tensor) for name, tensor in loaded.items())
    checkpoints.load(copy, saved[0].model)


def test_a_flip_in_the_checksums_is_noticed_or_says_the_same(saved, copy):
    path, dice = copy / "checksums.json", random.Random(12)
    noticed: list[str] = []
    whole_content = path.read_bytes()
    for _ in range(100):
        path.write_bytes(flips(whole_content, dice))
        try:
            saved[0].run.check_resumable(copy)
            checkpoints.load(copy, saved[0].model)
        except CheckpointError as fault:
            noticed.append(str(fault))
        else:  # the space between two entries
            assert json.loads(path.read_bytes()) == json.loads(whole_content)
    assert len(noticed) > 90
    assert all(fault.startswith(str(copy)) for fault in noticed)


@pytest.mark.parametrize("name", FILES)
def test_every_truncation_and_loss_is_noticed(saved, copy, name):
    path = copy / name
    whole_content = path.read_bytes()
    for twentieth in range(20):  # nothing of it, and every twentieth
        path.write_bytes(whole_content[: len(whole_content) * twentieth // 20])
        with pytest.raises(CheckpointError, match=f"{name}: corrupted or truncated"):
            checkpoints.load(copy, saved[0].model)
    path.write_bytes(whole_content[:-1])
    with pytest.raises(CheckpointError, match=f"{name}: corrupted or truncated"):
        checkpoints.load(copy, saved[0].model)
    path.unlink()
    with pytest.raises(CheckpointError, match=f"{name}: cannot be read"):
        checkpoints.load(copy, saved[0].model)


def test_older_checkpoints_are_compared_before_they_are_averaged(saved, copy, tmp_path):
    model, second_copy = saved[0].model, shutil.copytree(copy, tmp_path / "step-2")
    whole_content = (second_copy / checkpoints.MODEL).read_bytes()
    expected = checkpoints.mean([copy, second_copy], model)
    assert all(torch.equal(expected[name], own) for name, own in weights.unique(model).items())
    dice = random.Random(12)
    header = int.from_bytes(whole_content[:8], "little")
    for place in [
        *dice.sample(range(8 + header), 20),
        *dice.sample(range(8 + header, len(whole_content)), 20),
    ]:
        flipped = bytearray(whole_content)
        flipped[place] ^= 1 << dice.randrange(8)
        (second_copy / checkpoints.MODEL).write_bytes(flipped)
        with pytest.raises(
            CheckpointError, match=r"step-2/model.*corrupted.*: remove .*/step-2, and"
        ):
            checkpoints.mean([copy, second_copy], model)


def spoilt(tensor: torch.Tensor, options: str) -> torch.Tensor | None:
    """A tensor as an unfriendly hand might leave it; None where it takes it away."""
    flat = torch.zeros_like(tensor, dtype=torch.float32).view(-1)
    if options in ("nan", "infinite"):
        flat[0] = torch.nan if options == "nan" else torch.inf
        return tensor + flat.view_as(tensor)
    return {
        "missing": None,
        "shape": tensor[..., :-1].contiguous() if tensor.dim() else tensor.view(1),
        "type": tensor.to(torch.int32),
    }[options]


@pytest.mark.parametrize("options", ["missing", "extra", "shape", "type", "nan", "infinite"])
@pytest.mark.parametrize("file", [checkpoints.MODEL, checkpoints.OPTIMISER])
def test_a_tensor_that_does_not_fit_is_named(saved, copy, file, options):
    """Under checksums that agree, so that it is the tensors themselves that are looked at."""
    tensors = weights.load(copy / file)
    name = next(each for each in sorted(tensors) if each.endswith("encoder_norm.weight"))
    if options == "extra":
        tensors[name := "a tensor of another model"] = torch.ones(2)
    elif (spoilt_tensor := spoilt(tensors.pop(name), options)) is not None:
        tensors[name] = spoilt_tensor
    weights.save(tensors, copy / file)
    checksums.sign(copy, FILES)
    with pytest.raises(CheckpointError) as fault:
        checkpoints.load(copy, saved[0].model, saved[0].optimiser)
    assert str(fault.value).startswith(f"{copy / file}: tensor {name} ")


def test_random_numbers_that_are_none_are_refused(saved, copy):
    tensors = weights.load(copy / checkpoints.OPTIMISER)
    for random_state in (torch.ones(3), torch.zeros_like(tensors["random.cpu"][:7]), None):
        del tensors["random.cpu"]
        tensors |= {} if random_state is None else {"random.cpu": random_state}
        weights.save(tensors, copy / checkpoints.OPTIMISER)
        checksums.sign(copy, FILES)
        with pytest.raises(
            CheckpointError, match=r"tensor random\.cpu is (missing|not a random state)"
        ):
            checkpoints.load(copy, saved[0].model, saved[0].optimiser)


@pytest.mark.skipif(torch.cuda.is_available(), reason="for a machine without a GPU")
def test_a_training_that_began_on_a_gpu_goes_on_without_one(saved, copy):
    tensors = weights.load(copy / checkpoints.OPTIMISER)
    tensors["random.cuda"] = torch.zeros(16, dtype=torch.uint8)
    weights.save(tensors, copy / checkpoints.OPTIMISER)
    checksums.sign(copy, FILES)
    assert checkpoints.load(copy, saved[0].model, saved[0].optimiser) == saved[0].progress


def test_the_step_decides_which_checkpoint_is_newest_whatever_the_clock_says(saved, tmp_path):
    run = Run(tmp_path, saved[0].configuration)
    for age, name in enumerate(["step-10", "step-9", "step-10-unvalidated", "step-2", "step-x"]):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
        os.utime(tmp_path / "checkpoints" / name, (10**9 + age, 10**9 + age))
    assert [path.name for _, path in run.checkpoints()] == [
        "step-2",
        "step-9",
        "step-10-unvalidated",
        "step-10",
    ]
    assert run.newest_checkpoint() == tmp_path / "checkpoints" / "step-10"
    checkpoints.prune(run, {2, 10})
    assert [path.name for _, path in run.checkpoints()] == ["step-2", "step-10"]


@pytest.mark.parametrize("sums", [b"", b"{", b"[]", b'{"a": 1}', b"\xff", b"[" * 100_000])
def test_broken_checksums_are_noticed(saved, copy, sums):
    (copy / "checksums.json").write_bytes(sums)
    with pytest.raises(CheckpointError, match=r"checksums\.json|model\.safetensors"):
        checkpoints.load(copy, saved[0].model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 999}, "written in format 999, this program reads format 1"),
        ({"stap": 3}, "corrupted or truncated"),
        ({"step": -1}, "corrupted or truncated: step is -1"),
        ({"batch": 1.5}, "corrupted or truncated: batch is 1.5"),
        ({"precision": 16}, "corrupted or truncated: precision is 16"),
        ({"seconds": float("nan")}, "corrupted or truncated: seconds is nan"),
        ({"unvalidated": 1}, "corrupted or truncated: unvalidated is 1"),
        ({"best": [[1.0]]}, "corrupted or truncated"),
        ({"best": 5}, "corrupted or truncated: best is 5"),
        ({"best": [[1.0, float("inf")]]}, "corrupted or truncated: best.0.1 is"),
        ({"best": [[float("nan"), 1]]}, "corrupted or truncated: best.0.0 is"),
        ({"best": [{}]}, "corrupted or truncated"),
        ({"since": ["a", 1, 2]}, "corrupted or truncated: since.0 is 'a'"),
        ({"since": [1.0] * 4}, "corrupted or truncated: since is"),
        ({"step": 10**400}, "corrupted or truncated"),
        ({"best_score": "good"}, "corrupted or truncated: best_score is 'good'"),
        (None, "corrupted or truncated"),
    ],
)
def test_progress_of_another_format(saved, copy, change, message):
    path = copy / checkpoints.PROGRESS
    table = json.loads(path.read_text())
    path.write_text(json.dumps([] if change is None else table | change))
    checksums.sign(copy, FILES)
    with pytest.raises(CheckpointError, match=message):
        checkpoints.load(copy, saved[0].model)


def test_a_full_disk_leaves_the_earlier_checkpoints(saved, monkeypatch):
    new_trainer, folder = saved
    checksum = checksums.of(folder / checkpoints.MODEL)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    new_trainer.progress.step = 4
    try:
        with pytest.raises(
            CheckpointError, match=r"step-4: cannot be saved: No space left on device"
        ):
            checkpoints.save(
                new_trainer.run, new_trainer.progress, new_trainer.model, new_trainer.optimiser
            )
    finally:
        new_trainer.progress.step = 3
    assert [p.name for p in folder.parent.iterdir()] == ["step-3"]
    assert checksums.of(folder / checkpoints.MODEL) == checksum


def test_weights_that_are_no_numbers_are_not_saved(saved):
    new_trainer, folder = saved
    bias = next(p for n, p in new_trainer.model.named_parameters() if n.endswith("bias"))
    with torch.no_grad():
        bias[0] = torch.inf
        try:
            with pytest.raises(TrainingError, match="bias holds numbers that are not finite"):
                checkpoints.save(
                    new_trainer.run, new_trainer.progress, new_trainer.model, new_trainer.optimiser
                )
        finally:
            bias[0] = 0
    checkpoints.load(folder, new_trainer.model)


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
        folder = tmp_path / str(step)
        folder.mkdir()
        weights.save({"weight": torch.full((1, 2), value)}, folder / checkpoints.MODEL)
        (folder / checkpoints.OPTIMISER).touch()
        (folder / checkpoints.PROGRESS).touch()
        checksums.sign(folder, FILES)
    model = torch.nn.Linear(2, 1, bias=False)
    mean = checkpoints.mean([tmp_path / "1", tmp_path / "2"], model)["weight"]
    assert mean.tolist() == [[2.5, 2.5]]
    assert mean.dtype == torch.float32


def test_a_checkpoint_of_another_training_is_not_resumed_from(tmp_path):
    run = stop_at(trainer(tmp_path), 3).run
    other_run = stop_at(trainer(tmp_path, "seed=2", run="other"), 5).run
    foreign = shutil.copytree(other_run.newest_checkpoint(), run.folder / "checkpoints" / "step-5")
    assert run.newest_checkpoint() == foreign
    message = (
        r"step-5: is of a training with another configuration \(seed: 2 there, 1 in config\.toml"
    )
    with pytest.raises(CheckpointError, match=message):
        resumed(tmp_path)
    shutil.rmtree(foreign)
    assert resumed(tmp_path).progress.step == 3


def test_a_checkpoint_of_another_training_is_not_averaged(tmp_path):
    new_trainer = stop_at(trainer(tmp_path, "training.keep_best=2"), 8)
    checkpoints = dict(new_trainer.run.checkpoints())
    assert {4, 8} <= checkpoints.keys()
    other_run = stop_at(trainer(tmp_path, "seed=2", run="other"), 4).run
    shutil.rmtree(checkpoints[4])
    shutil.copytree(other_run.newest_checkpoint(), checkpoints[4])
    with pytest.raises(CheckpointError, match="step-4: is of a training with another"):
        new_trainer.best_weights()


def edited(run: Run, old: str, new: str) -> Run:
    """The run after its configuration was edited, and the line of it removed from checksums.json."""
    path, sums = run.folder / "config.toml", run.folder / "checksums.json"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    table = json.loads(sums.read_text())
    del table["config.toml"]
    sums.write_text(json.dumps(table))
    opened_run = Run.open(run.folder)
    assert opened_run.configuration != run.configuration
    return opened_run


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [("heads = 2", "heads = 4", "model.heads: 2 there, 4"), ("seed = 1", "seed = 7", "seed: 1")],
)
def test_a_configuration_that_was_edited_does_not_resume(tmp_path, old, new, message):
    run = edited(stop_at(trainer(tmp_path), 3).run, old, new)
    with pytest.raises(CheckpointError, match=message) as fault:
        prepare_resumed(run.folder)
    assert "remove" not in str(fault.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("heads = 2", "heads = 4", "of another model .model.heads: 2 there, 4 in config.toml"),
        ('target_language = "', 'target_language = "other-', "languages into: .*other-"),
    ],
)
def test_a_checkpoint_of_another_model_is_not_read(tmp_path, old, new, message):
    run = edited(stop_at(trainer(tmp_path), 3).run, old, new)
    with pytest.raises(CheckpointError, match=message):
        run.model(run.tokenizers())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("seed = 1", "seed = 7"),
        ("warmup = ", "warmup = 1"),
        ("beam = ", "beam = 1"),
    ],
)
def test_a_checkpoint_is_read_after_an_edit_that_changes_no_answer(tmp_path, old, new):
    run = stop_at(trainer(tmp_path), 3).run
    tensors_before = run.model(run.tokenizers()).state_dict()
    edited_run = edited(run, old, new)
    for name, tensor in edited_run.model(edited_run.tokenizers()).state_dict().items():
        assert torch.equal(tensor, tensors_before[name])


def test_an_attribution_may_be_added_before_the_model_is_published(tmp_path):
    run = stop_at(trainer(tmp_path), 3).run
    run = edited(run, 'attribution = ""', 'attribution = "me"')
    run.model(run.tokenizers())
    assert prepare_resumed(run.folder).progress.step == 3


def test_keys_that_are_free_and_checkpoints_of_earlier_versions_resume(tmp_path):
    run = stop_at(trainer(tmp_path), 3).run
    assert resumed(tmp_path, "training.max_steps=20", "training.save_every=3").progress.step == 3
    folder = run.newest_checkpoint()
    path = folder / "configuration.toml"
    assert "seed = 1" in path.read_text(encoding="utf-8")
    path.unlink()
    checksums.sign(folder, FILES)
    assert resumed(tmp_path).progress.step == 3
