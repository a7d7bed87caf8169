"""The loop: it learns, it repeats itself from a seed, and it stops and goes on without a trace."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest
import torch
from tests.translation.tiny import PAIRS, configuration, resumed, stop_at, trainer

from regard.errors import TrainingError
from regard.translation import checksums, weights
from regard.translation.runs.layout import MODEL
from regard.translation.text.batches import collate
from regard.translation.training import checkpoints
from regard.translation.training.epochs import Part
from regard.translation.training.loop import Trainer
from regard.translation.training.preparation import prepare, prepare_resumed
from regard.translation.training.reporting import Observer, Quality, Validated

PATIENT = ("training.keep_best=2",)
STEADY = ("training.validate_every=8", "training.save_every=100")


def last_checkpoint(trainer: Trainer) -> str:
    return checksums.of(trainer.run.newest_checkpoint() / MODEL)


def metrics(trainer: Trainer) -> list[dict]:
    return [
        json.loads(line) for line in (trainer.run.folder / "metrics.jsonl").read_text().splitlines()
    ]


@pytest.mark.parametrize("model", ["transformer", "recurrent"])
def test_eight_pairs_are_learnt_by_heart(tmp_path, model):
    eight = tmp_path / "eight.tsv"
    settings = (
        [f"data.{split}.tsv={eight}" for split in ("train", "valid")]
        + "model.dropout=0 training.max_steps=70 training.validate_every=70 training.save_every=70".split()
    )
    settings += "tokenizer.sampling=0 training.batch_tokens=400 training.label_smoothing=0".split()
    settings += "training.schedule=constant training.learning_rate=2e-2 training.validate_sentences=0".split()
    expected_settings = configuration(tmp_path, *settings, model=model)
    eight.write_text("".join(f"{s}\t{t}\n" for s, t in PAIRS[::4]), encoding="utf-8")
    new_trainer = prepare(expected_settings, tmp_path / "run")
    assert new_trainer.train() == "finished"
    quality = new_trainer.validation.measure(new_trainer.model)
    assert quality.exact == 100
    assert quality.loss < 0.2


def test_one_seed_one_model(tmp_path):
    hashes = []
    for n, seed in enumerate((1, 1, 2)):
        torch.rand(n)  # nothing depends on what the process drew before
        new_trainer = trainer(tmp_path, f"seed={seed}", "training.max_steps=3", run=f"run{n}")
        new_trainer.train()
        hashes.append(last_checkpoint(new_trainer))
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_training_that_was_interrupted_is_the_one_that_was_not(tmp_path):
    straight = trainer(tmp_path, run="straight")
    straight.train()
    stop_at(trainer(tmp_path), 3)
    stop_at(resumed(tmp_path), 5)
    second_trainer = resumed(tmp_path)
    assert second_trainer.train() == "finished"
    assert last_checkpoint(second_trainer) == last_checkpoint(straight)
    assert [m["step"] for m in metrics(second_trainer) if m["kind"] == "step"] == list(range(1, 9))
    quiet = [
        {k: v for k, v in m.items() if k != "tokens_per_second"} for m in metrics(second_trainer)
    ]
    assert quiet == [
        {k: v for k, v in m.items() if k != "tokens_per_second"} for m in metrics(straight)
    ]


CHINESE = ("data.source_language=en", "data.target_language=zh")


@pytest.mark.parametrize(
    ("step", "paths", "tokenizer"),
    [(4, True, "zh"), (4, False, "13a"), (2, False, "zh")],
    ids=["new", "older", "older, without a validation"],
)
def test_validations_of_one_training_have_one_tokenizer(tmp_path, step, paths, tokenizer):
    """Scores of two tokenizers have two scales: the best of them would be of the larger scale."""
    stopped = trainer(tmp_path, *CHINESE)
    stopped.train(lambda: stopped.progress.step >= step and not stopped.progress.unvalidated)
    checkpoint = stopped.run.newest_checkpoint()
    if not paths:  # as releases before wrote it, whose validations had the usual tokenizer
        path = checkpoint / checkpoints.PROGRESS
        progress = json.loads(path.read_bytes())
        assert progress.pop("tokenizer") == "zh"
        path.write_text(json.dumps(progress))
        checksums.sign(checkpoint, checkpoints.CHECKPOINT_FILES)
    notes: list[str] = []

    class Noting(Observer):
        def note(self, text: str) -> None:
            notes.append(text)

    expected_settings = configuration(tmp_path, *CHINESE)
    second_trainer = prepare_resumed(
        tmp_path / "run", configuration=expected_settings, observer=Noting()
    )
    assert second_trainer.progress.step == step
    assert second_trainer.validation.tokenizer == second_trainer.progress.tokenizer == tokenizer
    assert any("keeps the tokenizer 13a" in note for note in notes) == (tokenizer == "13a")
    second_trainer.train()
    assert resumed(tmp_path, *CHINESE).validation.tokenizer == tokenizer


@pytest.mark.parametrize("step", [4, 8], ids=["in the middle", "at the end"])
def test_a_validation_that_was_stopped_is_made_before_anything_else(tmp_path, step):
    straight = trainer(tmp_path, *PATIENT, run="straight")
    straight.train()
    stopped = stop_at(trainer(tmp_path, *PATIENT), step)
    folder = stopped.run.newest_checkpoint()
    assert folder.name == f"step-{step}-unvalidated"
    assert [m["step"] for m in metrics(stopped) if m["kind"] == "validation"] == [4][: step // 8]
    second_trainer = resumed(tmp_path, *PATIENT)
    assert second_trainer.progress.unvalidated
    assert second_trainer.train(lambda: True) == "stopped"  # before its first batch
    assert second_trainer.run.newest_checkpoint() == folder
    second_trainer = resumed(tmp_path, *PATIENT)
    assert second_trainer.train() == "finished"
    assert last_checkpoint(second_trainer) == last_checkpoint(straight)
    assert [m["step"] for m in metrics(second_trainer) if m["kind"] == "validation"] == [4, 8]
    assert (second_trainer.progress.best, second_trainer.progress.step) == (
        straight.progress.best,
        8,
    )
    kept_names = [path.name for _, path in second_trainer.run.checkpoints()]
    assert (
        kept_names == [path.name for _, path in straight.run.checkpoints()] == ["step-4", "step-8"]
    )


def test_a_validation_that_was_told_but_not_saved_is_told_once(tmp_path):
    """A kill between the line of a validation that is made again and its checkpoint."""
    stop_at(trainer(tmp_path, *PATIENT), 4)
    second_trainer = resumed(tmp_path, *PATIENT)

    class Killed(Observer):
        def validated(self, event: Validated) -> None:
            raise KeyboardInterrupt

    second_trainer.observer = Killed()
    with pytest.raises(KeyboardInterrupt):
        second_trainer.train()
    assert metrics(second_trainer)[-1]["kind"] == "validation"
    with (second_trainer.run.folder / "metrics.jsonl").open("ab") as file:
        file.write(b"\xff\n")  # a block that a power cut spoilt
    second_trainer = resumed(tmp_path, *PATIENT)
    second_trainer.train()
    assert [m["step"] for m in metrics(second_trainer) if m["kind"] == "validation"] == [4, 8]


def test_steps_after_the_checkpoint_are_made_again_and_counted_once(tmp_path):
    """A kill at step 3, when step 2 was the last one saved."""
    new_trainer = trainer(tmp_path, "training.save_every=2")

    class Killed(Observer):
        def advanced(self, step: int, total: int) -> None:
            if step == 4:
                raise KeyboardInterrupt

    new_trainer.observer = Killed()
    with pytest.raises(KeyboardInterrupt):
        new_trainer.train()
    with (new_trainer.run.folder / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "step", "st')
    second_trainer = resumed(tmp_path)
    assert second_trainer.progress.step == 2
    second_trainer.train()
    assert [m["step"] for m in metrics(second_trainer) if m["kind"] == "step"] == list(range(1, 9))
    straight = trainer(tmp_path, run="straight")
    straight.train()
    assert last_checkpoint(second_trainer) == last_checkpoint(straight)


def test_a_finished_run_is_finished(tmp_path):
    new_trainer = trainer(tmp_path, "training.max_steps=2")
    new_trainer.train()
    checkpoint_before = last_checkpoint(new_trainer)
    second_trainer = resumed(tmp_path, "training.max_steps=2")
    assert second_trainer.train() == "finished"
    assert (second_trainer.progress.step, last_checkpoint(second_trainer)) == (2, checkpoint_before)
    longer = resumed(tmp_path, "training.max_steps=4")
    longer.train()
    assert longer.progress.step == 4


def test_two_halves_accumulated_are_one_batch(tmp_path):
    new_trainer = trainer(tmp_path, "model.dropout=0")
    halves = [new_trainer.epochs.part(0, 0), new_trainer.epochs.part(0, 1)]
    tokens = sum(part.target_tokens for part in halves)

    def gradients(*parts: Part) -> list[torch.Tensor]:
        new_trainer.model.zero_grad()
        new_trainer._learner.gradients(list(parts), tokens, 1, "float32")
        return [p.grad.clone() for p in new_trainer.model.parameters()]

    accumulated = gradients(*halves)
    rows = np.concatenate([part.rows for part in halves])
    batch = collate(new_trainer.epochs._sources, new_trainer.epochs._targets, rows)
    whole_gradients = gradients(Part(batch, rows, tokens))
    for a, b in zip(accumulated, whole_gradients, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_accumulation_takes_so_many_batches_a_step(tmp_path):
    new_trainer = trainer(tmp_path, "training.accumulate=3", "training.max_steps=2")
    new_trainer.train()
    assert (
        new_trainer.progress.batch + new_trainer.progress.epoch * new_trainer.epochs.batches(0) == 6
    )


def test_a_loss_that_is_no_number_stops_and_keeps_the_checkpoint(tmp_path):
    new_trainer = stop_at(trainer(tmp_path), 2)
    checkpoint_before = last_checkpoint(new_trainer)
    with torch.no_grad():
        next(new_trainer.model.parameters())[5] = torch.nan
    with pytest.raises(TrainingError) as fault:
        new_trainer.train()
    for text in ("step 3: loss nan", "gradient norm nan", "sentence pairs (rows ", "learning_rate"):
        assert text in str(fault.value)
    assert last_checkpoint(new_trainer) == checkpoint_before
    assert resumed(tmp_path).progress.step == 2


@pytest.mark.parametrize(
    "fault",
    [
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
        torch.OutOfMemoryError("CUDA out of memory."),
        MemoryError(),
    ],
    ids=["cpu", "cuda", "python"],
)  # fmt: skip
def test_too_little_memory_is_told_with_what_to_lower(tmp_path, monkeypatch, fault):
    new_trainer = trainer(tmp_path)

    def starved(*_: object) -> None:
        raise fault

    monkeypatch.setattr(new_trainer.model, "hidden", starved)
    with pytest.raises(
        TrainingError,
        match=r"out of memory on a batch of \d+ sentences.*\(step 1, rows .*training\.batch_tokens",
    ):
        new_trainer.train()


def test_another_fault_is_not_called_memory(tmp_path, monkeypatch):
    new_trainer = trainer(tmp_path)
    monkeypatch.setattr(new_trainer.model, "hidden", lambda *_: torch.ones(2) @ torch.ones(3))
    with pytest.raises(RuntimeError, match=r"inconsistent tensor size|size mismatch|shape"):
        new_trainer.train()


def scored(trainer: Trainer, monkeypatch, scores: list[float]) -> None:
    inputs = iter(scores)
    monkeypatch.setattr(
        trainer.validation, "measure", lambda *_: Quality(1.0, next(inputs), 0.0, 0.0)
    )


EACH = (
    "training.validate_every=1",
    "training.save_every=1",
    "training.max_steps=6",
    "training.keep_best=2",
)


def test_the_best_are_kept_and_averaged_when_that_is_better(tmp_path, monkeypatch):
    new_trainer = trainer(tmp_path, *EACH)
    scored(new_trainer, monkeypatch, [1, 5, 2, 4, 3, 0, 5.5, 0])
    new_trainer.train()
    names = sorted(p.name for p in (new_trainer.run.folder / "checkpoints").iterdir())
    assert names == ["step-2", "step-4", "step-6"]  # the best two and the newest
    own_copies = {
        name: tensor.clone() for name, tensor in weights.unique(new_trainer.model).items()
    }
    two, four = (
        weights.load(new_trainer.run.folder / "checkpoints" / f"step-{n}" / MODEL) for n in (2, 4)
    )
    mean, message = new_trainer.best_weights()
    assert message == "the mean of the weights of steps 2, 4"
    assert all(torch.allclose(mean[name], (two[name] + four[name]) / 2) for name in mean)
    best, message = new_trainer.best_weights()  # now the mean is measured as worse
    assert message == "the weights of step 2"
    assert all(torch.equal(best[name], two[name]) for name in two)
    assert all(torch.equal(own_copies[n], t) for n, t in weights.unique(new_trainer.model).items())


def test_a_mean_is_compared_with_the_best_that_is_still_there(tmp_path, monkeypatch):
    new_trainer = trainer(tmp_path, *EACH, "training.keep_best=3")
    scored(new_trainer, monkeypatch, [1, 9, 2, 4, 3, 0, 4.5])
    new_trainer.train()
    shutil.rmtree(new_trainer.run.folder / "checkpoints" / "step-2")
    assert new_trainer.best_weights()[1] == "the mean of the weights of steps 4, 5"


def test_a_mean_is_measured_as_the_checkpoints_were(tmp_path, monkeypatch):
    new_trainer, calls = trainer(tmp_path, *EACH, "training.precision=bfloat16"), []

    def measure(*_: object) -> Quality:
        calls.append(torch.is_autocast_enabled("cpu"))
        return Quality(1.0, 1.0, 0.0, 0.0)

    monkeypatch.setattr(new_trainer.validation, "measure", measure)
    new_trainer.train()
    new_trainer.best_weights()
    assert calls == [True] * 7


def test_without_averaging_the_best_alone(tmp_path, monkeypatch):
    new_trainer = trainer(tmp_path, *EACH, "training.average=false")
    scored(new_trainer, monkeypatch, [1, 2, 3, 9, 1, 1])
    new_trainer.train()
    assert new_trainer.best_weights()[1] == "the weights of step 4"


def test_patience_ends_a_training(tmp_path, monkeypatch):
    new_trainer = trainer(tmp_path, *EACH, "training.patience=2", "training.max_steps=50")
    scored(new_trainer, monkeypatch, [1, 3, 2, 3, 9, 9])
    assert new_trainer.train() == "finished"
    assert new_trainer.progress.step == 4  # as good as the best is no progress
    second_trainer = resumed(tmp_path, *EACH, "training.patience=2", "training.max_steps=50")
    assert second_trainer.train() == "finished"
    assert second_trainer.progress.step == 4


@pytest.mark.parametrize(
    ("scores", "halved"), [([5, 1, 1, 1, 6, 1], [3, 3]), ([5, 1, 1, 1, 1, 1], [3, 2, 1])]
)
def test_each_plateau_halves_the_rate(tmp_path, monkeypatch, scores, halved):
    new_trainer = trainer(tmp_path, *EACH, "training.schedule=plateau", "training.warmup=0")
    scored(new_trainer, monkeypatch, scores)
    new_trainer.train()
    rates = [m["learning_rate"] for m in metrics(new_trainer) if m["kind"] == "step"]
    assert rates == [1e-2 * 0.5**i for i, steps in enumerate(halved) for _ in range(steps)]


def test_metrics_hold_finite_numbers_and_every_validation(tmp_path):
    new_trainer = trainer(tmp_path)
    new_trainer.train()
    lines = metrics(new_trainer)
    assert [m["step"] for m in lines if m["kind"] == "validation"] == [4, 8]
    numbers = [v for m in lines for v in m.values() if isinstance(v, float)]
    assert all(math.isfinite(number) for number in numbers)
    assert lines[0]["learning_rate"] == 5e-3  # half way through two steps of warm-up


PASSES = ("training.max_steps=0", "training.max_epochs=3")


@pytest.mark.parametrize("accumulate", [1, 3])
def test_passes_are_a_budget(tmp_path, accumulate):
    new_trainer = trainer(
        tmp_path, *PASSES, f"training.accumulate={accumulate}", "training.log_every=2"
    )
    batches, batches_taken = [new_trainer.epochs.batches(epoch) for epoch in range(3)], []
    part_of = new_trainer.epochs.part
    new_trainer.epochs.part = lambda *place: batches_taken.append(place) or part_of(*place)  # type: ignore[method-assign]
    assert new_trainer.train() == "finished"
    assert batches_taken == [
        (epoch, batch) for epoch in range(3) for batch in range(batches[epoch])
    ]
    assert new_trainer.progress.step == math.ceil(sum(batches) / accumulate)
    assert new_trainer.schedule.steps == math.ceil(3 * batches[0] / accumulate)
    assert metrics(new_trainer)[-1]["kind"] == "validation"
    assert metrics(new_trainer)[0]["epochs"] == 3
    finished = resumed(tmp_path, *PASSES, f"training.accumulate={accumulate}")
    assert finished.over
    assert finished.train() == "finished"
    assert finished.progress.step == new_trainer.progress.step
    longer = resumed(
        tmp_path, *PASSES, "training.max_epochs=4", f"training.accumulate={accumulate}"
    )
    assert not longer.over
    longer.train()
    assert longer.progress.epoch == 3


def test_a_training_of_passes_that_was_interrupted_is_the_one_that_was_not(tmp_path):
    cosine = (*PASSES, "training.schedule=cosine", "training.validate_every=7")
    straight = trainer(tmp_path, *cosine, run="straight")
    straight.train()
    steps = straight.progress.step
    stop_at(trainer(tmp_path, *cosine), steps // 2)
    second_trainer = resumed(tmp_path, *cosine)
    second_trainer.train()
    assert last_checkpoint(second_trainer) == last_checkpoint(straight)
    rates = [m["learning_rate"] for m in metrics(second_trainer) if m["kind"] == "step"]
    assert rates[-1] < 0.1 * max(rates)  # the schedule ends with the budget


@pytest.mark.parametrize(("steps", "ends"), [(2, 2), (10_000, None)])
def test_of_two_budgets_the_first_that_is_reached_ends(tmp_path, steps, ends):
    new_trainer = trainer(tmp_path, f"training.max_steps={steps}", "training.max_epochs=1")
    new_trainer.train()
    assert (
        new_trainer.progress.step
        == (ends or new_trainer.epochs.batches(0))
        == new_trainer.schedule.steps
    )


def test_minutes_are_a_budget(tmp_path):
    budget = ("training.max_steps=1000", "training.validate_every=1000")
    new_trainer = trainer(tmp_path, *budget, "training.max_minutes=0.00001")
    assert new_trainer.train() == "finished"
    assert new_trainer.progress.step == 1
    assert new_trainer.progress.validation_seconds > 0
    assert metrics(new_trainer)[-1]["kind"] == "validation"
    finished = resumed(tmp_path, *budget, "training.max_minutes=0.00001")
    assert finished.over
    longer = resumed(tmp_path, *budget, "training.max_steps=3", "training.max_minutes=1000")
    assert not longer.over
    longer.train()
    assert longer.progress.step == 3


def test_scores_of_other_sentences_are_not_compared(tmp_path):
    three_sentences = ("training.validate_sentences=3", *PATIENT)
    four_sentences = ("training.validate_sentences=4", *PATIENT)
    straight = trainer(tmp_path, *four_sentences, run="straight")
    straight.train()
    new_trainer = trainer(tmp_path, *three_sentences)
    new_trainer.train()
    assert new_trainer.progress.validation_sentences == 3
    new_trainer.progress.best_score, new_trainer.progress.best = 99.0, [(99.0, 8), (98.0, 4)]
    new_trainer.save()
    assert resumed(tmp_path, *three_sentences).progress.best_score == 99.0
    second_trainer = resumed(tmp_path, *four_sentences, "training.max_steps=12")
    assert second_trainer.progress.validation_sentences == 4
    assert second_trainer.progress.best == straight.progress.best
    assert second_trainer.progress.best_score == straight.progress.best_score
    # The rest is as in the training that had four sentences from its first step.
    second_trainer.train()
    straight = resumed(tmp_path, *four_sentences, "training.max_steps=12", run="straight")
    straight.train()
    assert last_checkpoint(second_trainer) == last_checkpoint(straight)
    assert second_trainer.progress.best == straight.progress.best


def test_samples_are_kept_for_every_validation_once(tmp_path):
    straight = trainer(tmp_path, run="straight")
    straight.train()
    kept_text = (straight.run.folder / "samples.txt").read_text(encoding="utf-8")
    steps = [line for line in kept_text.splitlines() if line.startswith("step")]
    assert steps == ["step 4", "step 8"]
    assert kept_text.count("  reference  ") == 6
    new_trainer = trainer(tmp_path)
    new_trainer.train()
    shutil.rmtree(
        new_trainer.run.folder / "checkpoints" / "step-8"
    )  # as a kill before it was saved
    assert (new_trainer.run.folder / "samples.txt").read_text(encoding="utf-8") == kept_text
    resumed(tmp_path).train()
    assert (new_trainer.run.folder / "samples.txt").read_text(encoding="utf-8") == kept_text


@pytest.mark.parametrize(("sample_count", "places"), [(0, []), (2, [0, 2]), (9, [0, 1, 2, 3])])
def test_samples_are_spread_over_the_validation_set(tmp_path, sample_count, places):
    new_trainer = trainer(
        tmp_path, f"training.validate_samples={sample_count}", "training.max_steps=1"
    )
    samples = new_trainer.measure().samples
    pairs = new_trainer.validation.pairs
    assert [(each.source, each.reference) for each in samples] == [pairs[i][:2] for i in places]
    new_trainer.train()
    assert (new_trainer.run.folder / "samples.txt").exists() == (sample_count > 0)


def test_samples_that_cannot_be_written_stop_the_training_by_name(tmp_path):
    new_trainer = trainer(tmp_path)
    (new_trainer.run.folder / "samples.txt").mkdir()
    with pytest.raises(TrainingError, match=r"samples\.txt: cannot be (read|written)"):
        new_trainer.train()


@pytest.mark.parametrize("precision", ["bfloat16", "medium"])
def test_other_precisions_train(tmp_path, precision):
    new_trainer = trainer(tmp_path, f"training.precision={precision}", "training.max_steps=4")
    assert new_trainer.train() == "finished"
    assert all(p.dtype == torch.float32 for p in new_trainer.model.parameters())
    assert torch.get_float32_matmul_precision() == "highest"
