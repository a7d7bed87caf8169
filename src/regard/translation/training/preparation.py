"""Makes a trainer from a configuration: data, tokenizers, run folder and model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from regard.errors import ConfigurationError, DataError, TrainingError
from regard.translation import settings
from regard.translation.models.building import build
from regard.translation.runs import Run, Tokenizers
from regard.translation.runs.layout import checkpoint_name
from regard.translation.settings import Configuration
from regard.translation.text.corpora import Pair
from regard.translation.training import checkpoints, finetuning, pretrained
from regard.translation.training.data import (
    Data,
    check_sums,
    file_sums,
    keep_sums,
    read_data,
    short_enough,
)
from regard.translation.training.epochs import Epochs
from regard.translation.training.guiding import Guide
from regard.translation.training.loop import Trainer
from regard.translation.training.processes import Processes
from regard.translation.training.reporting import Observer
from regard.translation.training.tokenizers import learn_tokenizers
from regard.translation.training.validation import Validation


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
        _check_no_checkpoints(Run(folder, configuration))
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
    trainer = _trainer(run, tokenizers, found, observer, processes)
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
    trainer = _trainer(run, tokenizers, found, observer, processes or Processes())
    if trainer.resume():
        observer.note(f"resumed at step {trainer.progress.step}")
    return trainer


def _check_no_checkpoints(run: Run) -> None:
    """Raise `TrainingError` if the folder holds checkpoints of a run that has lost its configuration."""
    newest = run.newest_checkpoint()
    if newest is None:
        return
    if newest.name != checkpoint_name(0):
        raise TrainingError(
            f"{run.folder}: holds checkpoints but no config.toml: choose another --run"
        )
    checkpoints.prune(run, set())  # a start that was killed before the run was made


def _trainer(
    run: Run, tokenizers: Tokenizers, found: Data, observer: Observer, processes: Processes
) -> Trainer:
    configuration = run.configuration
    training = configuration.training
    if training.threads:
        torch.set_num_threads(training.threads)
    torch.manual_seed(configuration.seed)
    model = build(configuration, len(tokenizers.source), len(tokenizers.target))
    if configuration.pretrained is not None and configuration.pretrained.frozen:
        pretrained.freeze(model, configuration.pretrained)
    sharded = training.shard and processes.size > 1
    if training.shard and not sharded:
        observer.note("training.shard changes nothing: one process holds all of the model")
    if not sharded:  # shards are moved to the device one by one
        model.to(processes.device)
    epochs = Epochs(
        found.train,
        tokenizers,
        batch_tokens=training.batch_tokens,
        sampling=configuration.tokenizer.sampling,
        seed=configuration.seed,
        longest=configuration.data.longest,
        rank=processes.rank,
        size=processes.size,
    )
    validation = Validation(found.valid, tokenizers, training, configuration.seed)
    guide = _guide(configuration, found.train, tokenizers)
    return Trainer(run, model, epochs, validation, observer, processes, guide)


def _guide(configuration: Configuration, pairs: list[Pair], tokenizers: Tokenizers) -> Guide | None:
    section = configuration.training.guide
    if section is None:
        return None
    try:
        return Guide(section, pairs, tokenizers)
    except DataError as fault:
        files = [str(each.links) for each in configuration.data.training if each.links]
        raise DataError(f"{' or '.join(files)}: {fault}") from None
