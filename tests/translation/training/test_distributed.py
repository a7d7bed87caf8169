"""Two processes train as one: the same losses, the same norms, the same model, whole or in pieces."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.translation.tiny import configuration, resumed, stop_at, trainer
from tests.translation.training.ranks import forked, together

from regard.errors import TrainingError
from regard.translation import checksums, weights
from regard.translation.runs import Run
from regard.translation.runs.layout import MODEL
from regard.translation.training.epochs import Epochs
from regard.translation.training.loop import Trainer
from regard.translation.training.preparation import prepare, prepare_resumed
from regard.translation.training.processes import Processes

Start = Callable[[Processes], Trainer]
# Sums in another order differ in their last bits, and eight steps of Adam carry that on.
NEAR = 1e-5
SETTINGS = (
    "model.dropout=0",
    "training.accumulate=2",
    "training.clip=0.5",
    "training.schedule=plateau",
    "training.log_every=1",
)


def curve(folder: Path) -> list[tuple[float, ...]]:
    """Step, loss, rate and gradient norm of every report; loss and scores of every validation."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    names = ("step", "loss", "learning_rate", "gradient_norm", "chrf", "score")
    return [tuple(line[name] for name in names if name in line) for line in lines]


def final(folder: Path) -> dict[str, torch.Tensor]:
    newest = Run.open(folder).newest_checkpoint()
    assert newest is not None
    assert newest.name == "step-8"
    return weights.load(newest / MODEL)


def check_same(folder: Path, expected: Path, near: float = NEAR) -> None:
    assert len(curve(folder)) == len(curve(expected)) == 10
    for ours, theirs in zip(curve(folder), curve(expected), strict=True):
        assert ours == pytest.approx(theirs, rel=near, abs=near)
    ours, theirs = final(folder), final(expected)
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.allclose(ours[name], tensor, atol=10 * near), name


def tasks(folder: Path, *more: str, model: str = "transformer") -> tuple[Start, Start]:
    """A new run in `folder`, and going on with it: each rank calls them, the corpus is written here."""
    expected_settings = configuration(folder, *SETTINGS, *more, model=model)

    def start(processes: Processes) -> Trainer:
        return prepare(expected_settings, folder / "run", processes=processes)

    def go_on(processes: Processes) -> Trainer:
        return prepare_resumed(folder / "run", configuration=expected_settings, processes=processes)

    return start, go_on


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    """The folder of a run that one process made."""
    folder = tmp_path_factory.mktemp("alone")
    trainer(folder, *SETTINGS).train()
    return folder / "run"


def test_a_curve_that_is_another_is_noticed(alone, tmp_path):
    trainer(tmp_path, *SETTINGS, "training.label_smoothing=0.101").train()
    with pytest.raises(AssertionError):
        check_same(tmp_path / "run", alone)


@forked
def test_two_processes_make_the_run_of_one_and_one_goes_on(alone, tmp_path):
    start, _ = tasks(tmp_path)

    def work(processes: Processes) -> None:
        new_trainer = stop_at(start(processes), 3)
        if processes.is_first:
            shutil.copytree(tmp_path / "run", tmp_path / "stopped")
        assert new_trainer.train() == "finished"

    assert together(2, tmp_path / "ranks", work) == ["", ""]
    check_same(tmp_path / "run", alone)
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["step-4", "step-8"]
    second_trainer = prepare_resumed(tmp_path / "stopped")
    assert second_trainer.progress.step == 3
    second_trainer.train()
    check_same(tmp_path / "stopped", alone)


@forked
def test_one_process_makes_a_run_and_three_go_on(alone, tmp_path):
    stop_at(trainer(tmp_path, *SETTINGS), 3)
    _, go_on = tasks(tmp_path)

    def work(processes: Processes) -> None:
        new_trainer = go_on(processes)
        assert new_trainer.progress.step == 3
        assert new_trainer.train() == "finished"

    assert together(3, tmp_path / "ranks", work) == [""] * 3
    check_same(tmp_path / "run", alone)


@forked
def test_with_dropout_an_interruption_changes_no_bit(tmp_path):
    """Each process draws its own numbers, and the same ones when it goes on."""
    start, go_on = tasks(tmp_path, "model.dropout=0.3")

    def work(processes: Processes) -> None:
        assert start(processes).train() == "finished"
        if processes.is_first:
            shutil.move(tmp_path / "run", tmp_path / "straight")
        processes.wait()
        stop_at(start(processes), 5)
        processes.wait()
        assert go_on(processes).train() == "finished"

    assert together(2, tmp_path / "ranks", work) == ["", ""]
    hashes = {
        checksums.of(tmp_path / run / "checkpoints" / "step-8" / MODEL)
        for run in ("run", "straight")
    }
    assert len(hashes) == 1


@forked
@pytest.mark.parametrize("model", ["transformer", "recurrent"])
def test_pieces_make_the_run_of_a_whole(tmp_path, model):
    import torch.distributed.fsdp  # noqa: F401  (once here, and not in every child)

    (tmp_path / "alone").mkdir()
    trainer(tmp_path / "alone", *SETTINGS, model=model).train()
    # Each tensor of a checkpoint is a message: save at validations alone.
    start, _ = tasks(tmp_path, "training.shard=true", "training.save_every=8", model=model)

    def work(processes: Processes) -> None:
        new_trainer = stop_at(start(processes), 3)
        if processes.is_first:
            shutil.copytree(tmp_path / "run", tmp_path / "stopped")
        assert new_trainer.train() == "finished"
        pieces = list(new_trainer._learner.objective.parameters())
        held_total = sum(piece.to_local().numel() for piece in pieces)
        assert held_total < 0.6 * sum(piece.numel() for piece in pieces)
        processes.wait()
        second_trainer = prepare_resumed(tmp_path / "stopped", processes=processes)
        assert second_trainer.progress.step == 3
        assert second_trainer.train() == "finished"

    assert together(2, tmp_path / "ranks", work) == ["", ""]
    expected = tmp_path / "alone" / "run"
    check_same(tmp_path / "run", expected)
    check_same(tmp_path / "stopped", expected)
    shutil.rmtree(tmp_path / "stopped" / "checkpoints" / "step-8")
    whole_trainer = prepare_resumed(
        tmp_path / "stopped"
    )  # one process, which has no use for pieces
    assert whole_trainer.progress.step == 4
    whole_trainer.train()
    check_same(tmp_path / "stopped", expected)


@forked
def test_a_signal_in_one_process_stops_all_at_one_step(tmp_path):
    start, _ = tasks(tmp_path)

    def work(processes: Processes) -> None:
        new_trainer = start(processes)
        should_stop = (
            (lambda: new_trainer.progress.step >= 3) if processes.rank == 1 else (lambda: False)
        )
        assert new_trainer.train(should_stop) == "stopped"
        assert new_trainer.progress.step == 3

    assert together(2, tmp_path / "ranks", work) == ["", ""]
    assert resumed(tmp_path, *SETTINGS).progress.step == 3


@forked
def test_faults_of_one_process_end_all(tmp_path, monkeypatch):
    real = Epochs.part

    def spoilt(self: Epochs, epoch: int, number: int):
        if self._rank == 1 and number == 5:
            raise TrainingError("the fault of rank 1")
        return real(self, epoch, number)

    monkeypatch.setattr(Epochs, "part", spoilt)
    start, _ = tasks(tmp_path)

    def work(processes: Processes) -> None:
        start(processes).train()

    first_rank, second = together(2, tmp_path / "ranks", work)
    assert first_rank.startswith("another process of this training has ended")
    assert second == "the fault of rank 1"
    assert Run.open(tmp_path / "run").newest_checkpoint() is not None


@forked
def test_a_loss_that_is_no_number_in_one_process_stops_both(tmp_path):
    start, _ = tasks(tmp_path)

    def work(processes: Processes) -> None:
        new_trainer = stop_at(start(processes), 2)
        if processes.rank == 1:
            with torch.no_grad():
                next(new_trainer.model.parameters())[5:].fill_(torch.nan)
        new_trainer.train()

    first_rank, second = together(2, tmp_path / "ranks", work)
    assert first_rank.startswith("step 3: loss nan, gradient norm nan")
    assert first_rank == second
    assert resumed(tmp_path, *SETTINGS).progress.step == 2
