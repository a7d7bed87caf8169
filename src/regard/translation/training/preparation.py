"""Makes a trainer from a configuration: data, tokenizers, run folder and model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from regard.errors import ConfigurationError, TrainingError
from regard.translation import settings
from regard.translation.runs import Run
from regard.translation.runs.layout import checkpoint_name
from regard.translation.settings import Configuration
from regard.translation.training import checkpoints, finetuning, pretrained
from regard.translation.training.data import (
    check_sums,
    file_sums,
    keep_sums,
    learn_tokenizers,
    read_data,
    short_enough,
)
from regard.translation.training.loop import Trainer
from regard.translation.training.processes import Processes
from regard.translation.training.reporting import Observer


def prepare(
    configuration: Configuration,
    folder: Path,
    *,
    data: Path | None = None,
    observer: Observer | None = None,
    processes: Processes | None = None,
    start: Run | None = None,
) -> Trainer:
    """A trainer for a new run in `folder`. Data and configuration are checked before anything is written.

    Args:
        configuration: of the run.
        folder: the run folder, which the first process makes.
        data: the folder that the paths of the corpora are relative to.
        observer: receives notes.
        processes: the processes that train together, and the device of this one.
        start: a run whose published weights and tokenizers the training starts from.
    """
    observer, processes = observer or Observer(), processes or Processes()
    if processes.first:
        Run.check_free(folder)
        left = Run(folder, configuration)
        if {path.name for _, path in left.checkpoints()} - {checkpoint_name(0)}:
            raise TrainingError(
                f"{folder}: holds checkpoints but no config.toml: choose another --run"
            )
        checkpoints.prune(left, set())  # of a start that was killed before the run was made
    vectors = configuration.pretrained
    if start is not None:
        if vectors is not None:
            raise ConfigurationError(
                "--from and [pretrained]: both set the embeddings: give one of them"
            )
        configuration = finetuning.fitted(configuration, start)
    run = Run(folder, configuration)
    sums = file_sums(configuration.data, data) if processes.first else {}
    found = read_data(configuration.data, data, configuration.seed)
    observer.note(
        f"{len(found.train)} training pairs, {len(found.valid)} for validation, skipped {found.skipped}"
    )
    if start is not None:
        tokenizers = start.tokenizers()
    else:
        tokenizers = learn_tokenizers(configuration, found.train, processes, observer)
    found = short_enough(found, tokenizers, configuration.data.longest, observer)
    trainer = Trainer(run, tokenizers, found, observer, processes)
    if start is not None:
        finetuning.copy_weights(start, trainer.model)
    elif vectors is not None:
        pretrained.set_embeddings(trainer.model, vectors, tokenizers, found.train, data, observer)
    if processes.first:
        if start is not None or vectors is not None:
            # A training that is killed before its next checkpoint is resumed from this one.
            checkpoints.save(run, trainer.progress, trainer.model, trainer.optimiser)
        keep_sums(run, sums)
        unseen = trainer.epochs.unseen
        if start is not None:
            unseen &= tokenizers.unseen
        Run.create(folder, configuration, replace(tokenizers, unseen=unseen))
    return trainer


def prepare_resumed(
    folder: Path,
    *,
    configuration: Configuration | None = None,
    data: Path | None = None,
    observer: Observer | None = None,
    processes: Processes | None = None,
) -> Trainer:
    """A trainer that continues the run in `folder`; `configuration` may change the keys that are free to change."""
    run = Run.open(folder)
    if configuration is not None:
        changed = settings.differences(run.configuration, configuration)
        if changed:
            raise ConfigurationError(
                f"{folder}: a resumed training keeps its configuration; these differ: "
                + "; ".join(changed)
            )
        run = Run(folder, configuration)
    observer = observer or Observer()
    check_sums(run, data)
    found = read_data(run.configuration.data, data, run.configuration.seed)
    tokenizers = run.tokenizers()
    found = short_enough(found, tokenizers, run.configuration.data.longest, observer)
    trainer = Trainer(run, tokenizers, found, observer, processes or Processes())
    if trainer.resume():
        observer.note(f"resumed at step {trainer.progress.step}")
    return trainer
