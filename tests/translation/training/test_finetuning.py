"""A run that starts from what another one has learnt, and from nothing else of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from tests.translation.tiny import configuration, trainer

from regard.errors import CheckpointError, ConfigurationError
from regard.translation import checksums, weights
from regard.translation.runs import Run
from regard.translation.training.loop import Trainer
from regard.translation.training.preparation import prepare, prepare_resumed


@pytest.fixture(scope="module")
def start_run(tmp_path_factory) -> Run:
    new_trainer = trainer(tmp_path_factory.mktemp("learnt"), "training.max_steps=2")
    new_trainer.train()
    new_trainer.run.publish(new_trainer.best_weights()[0], "# a card")
    return new_trainer.run


def tuned(folder, learnt: Run, *changes: str, model: str = "transformer") -> Trainer:
    expected_settings = configuration(folder, *changes, model=model)
    return prepare(expected_settings, folder / "tuned", start=learnt)


def test_it_begins_with_the_weights_and_tokenizers_and_a_new_optimiser(start_run, tmp_path):
    changes = ("seed=7", "model.dropout=0.3", "tokenizer.vocabulary_size=290")
    new_trainer = tuned(tmp_path, start_run, *changes)
    published = weights.load(start_run.folder / "model.safetensors")
    tuned_weights = weights.unique(new_trainer.model)
    assert all(torch.equal(tuned_weights[name], tensor) for name, tensor in published.items())
    assert (new_trainer.progress.step, len(new_trainer.optimiser.state)) == (0, 0)
    tokenizer = (new_trainer.run.folder / "tokenizer.model").read_bytes()
    assert tokenizer == (start_run.folder / "tokenizer.model").read_bytes()
    kept_configuration = Run.open(new_trainer.run.folder).configuration
    assert kept_configuration.tokenizer == start_run.configuration.tokenizer
    assert (kept_configuration.seed, kept_configuration.model.dropout) == (7, 0.3)
    assert new_trainer._step().rate == 5e-3  # warming up again
    assert (start_run.folder / "model.safetensors").exists()


def test_pieces_that_either_training_had_are_seen(start_run, tmp_path):
    expected_settings = configuration(tmp_path, "tokenizer.sampling=0")
    (tmp_path / "pairs.tsv").write_text("TWO ONE\tone\n", encoding="utf-8")  # targets before
    own_tokenizers = prepare(expected_settings, tmp_path / "own", start=start_run).run.tokenizers()
    unseen_before = start_run.tokenizers().unseen
    read = set(own_tokenizers.source.pieces(own_tokenizers.source.encode("TWO ONE")))
    assert own_tokenizers.unseen == unseen_before - read != unseen_before
    assert prepare_resumed(tmp_path / "own").run.tokenizers().unseen == own_tokenizers.unseen


def test_what_a_start_had_not_seen_is_unknown_where_it_has_no_record(start_run, tmp_path):
    older = Path(shutil.copytree(start_run.folder, tmp_path / "older"))
    checksums.sign(older, ["model.safetensors"])
    (older / "unseen.json").unlink()
    assert tuned(tmp_path, Run.open(older)).run.tokenizers().unseen == frozenset()


def test_a_kill_before_its_first_step_loses_no_weight(start_run, tmp_path):
    straight = tuned(tmp_path, start_run)
    straight.train()
    (tmp_path / "tuned").rename(tmp_path / "straight")
    tuned(tmp_path, start_run)
    second_trainer = prepare_resumed(tmp_path / "tuned")
    assert second_trainer.progress.step == 0
    second_trainer.train()
    assert checksums.of(
        second_trainer.run.newest_checkpoint() / "model.safetensors"
    ) == checksums.of(tmp_path / "straight" / "checkpoints" / "step-8" / "model.safetensors")
    assert not (tmp_path / "tuned" / "checkpoints" / "step-0").exists()


def test_a_kill_before_there_was_a_run_leaves_no_weights_for_another(
    start_run, tmp_path, monkeypatch
):
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Run, "create", killed)
        with pytest.raises(KeyboardInterrupt):
            tuned(tmp_path, start_run)
    assert (tmp_path / "tuned" / "checkpoints" / "step-0").exists()
    fresh = prepare(configuration(tmp_path), tmp_path / "tuned")
    assert fresh.run.newest_checkpoint() is None


@pytest.mark.parametrize(
    ("changes", "model", "message"),
    [
        (["model.width=32", "model.heads=4"], "transformer", r"heads = 4, there 2; model\.width = 32, there 16$"),
        ([], "recurrent", r"model\.kind = 'recurrent', there 'transformer'$"),
    ],
    ids=["sizes", "kinds"],
)  # fmt: skip
def test_another_shape_is_refused_with_both_values(start_run, tmp_path, changes, model, message):
    with pytest.raises(ConfigurationError, match=message):
        tuned(tmp_path, start_run, *changes, model=model)
    assert not (tmp_path / "tuned").exists()


def test_an_unfinished_run_is_no_start(tmp_path):
    new_trainer = trainer(tmp_path)
    with pytest.raises(CheckpointError, match=r"no model\.safetensors to start from"):
        tuned(tmp_path, new_trainer.run)
    assert not (tmp_path / "tuned").exists()


def test_checkpoints_without_a_configuration_are_not_trained_over(tmp_path):
    new_trainer = trainer(tmp_path, "training.max_steps=1")
    new_trainer.train()
    (new_trainer.run.folder / "config.toml").unlink()
    with pytest.raises(Exception, match=r"holds checkpoints but no config\.toml"):
        prepare(configuration(tmp_path), new_trainer.run.folder)
