"""Makes a trainer from a configuration: data, tokenizers, run folder and model."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from regard.errors import CheckpointError, ConfigurationError, TrainingError, raised_as
from regard.files import Lock
from regard.translation import weights
from regard.translation.doubts import Doubts
from regard.translation.models.protocol import TranslationModel
from regard.translation.runs import Run, Tokenizers
from regard.translation.runs.layout import MODEL, checkpoint_name
from regard.translation.settings import toml
from regard.translation.settings.configuration import Configuration
from regard.translation.settings.data import DataSettings
from regard.translation.text.corpora import Pair, by_people
from regard.translation.training import checkpoints
from regard.translation.training.data import (
    Data,
    check_made,
    check_sums,
    corpus_files,
    file_sums,
    keep_sums,
    learn_tokenizers,
    made_files,
    made_pairs,
    read_data,
    short_enough,
)
from regard.translation.training.loop import Trainer
from regard.translation.training.processes import Processes
from regard.translation.training.reporting import Observer
from regard.translation.words import KnownWords

Synthesise = Callable[[Sequence[Pair]], None]
# These keys change no shape of a weight.
_FREE = {"dropout", "scheduled_sampling", "longest"}


def prepare(
    configuration: Configuration,
    folder: Path,
    *,
    data: Path | None = None,
    observer: Observer | None = None,
    processes: Processes | None = None,
    start: Run | None = None,
    synthesise: Synthesise | None = None,
    lock: Lock | None = None,
) -> Trainer:
    """A trainer for a new run in `folder`. Data and configuration are checked before anything is written.

    Args:
        data: the folder that the paths of the corpora are relative to.
        start: a run whose published weights and tokenizers the training starts from.
        synthesise: makes the synthetic pairs of the configuration in the run folder, from those that people wrote.
        lock: the lock on `folder`, if this process holds it; with it, a replaced folder is noticed.
    """
    observer, processes = observer or Observer(), processes or Processes()
    if processes.is_first:
        Run.check_free(folder)
        leftover = Run(folder, configuration)
        if {path.name for _, path in leftover.checkpoints()} - {checkpoint_name(0)}:
            raise TrainingError(
                f"{folder}: holds checkpoints but no config.toml: choose another --run"
            )
        checkpoints.prune(leftover, set())  # of a start that was killed before the run was made
    configuration.check_vectors()
    if start is not None:
        configuration = _fitted(configuration, start)
    run = Run(folder, configuration, lock=lock)
    observer.doing("reading the corpus")
    sums = file_sums(corpus_files(configuration.data, data)) if processes.is_first else {}
    corpus = read_data(configuration.data, data, configuration.seed)
    observer.note(
        f"{len(corpus.train)} training pairs, {len(corpus.valid)} for validation, skipped {corpus.skipped}"
    )
    if start is not None:
        tokenizers = start.tokenizers()
    else:
        observer.doing("learning word pieces")
        tokenizers = learn_tokenizers(configuration, by_people(corpus.train), processes, observer)
    observer.doing("cutting the sentences into word pieces")
    corpus = short_enough(corpus, tokenizers, configuration.data.longest, observer)
    made_paths = made_files(configuration.data, folder)
    if made_paths:
        if processes.is_first:
            folder.mkdir(parents=True, exist_ok=True)
        processes.wait()
        if not folder.is_dir():
            raise TrainingError(f"{folder}: not on this machine: all processes need the run folder")
        if processes.is_first and synthesise is not None:
            synthesise(by_people(corpus.train))
            sums |= file_sums(made_paths)
        processes.wait()
        corpus = _with_made(corpus, configuration.data, folder, tokenizers, observer)
        observer.note(f"{len(corpus.train)} training pairs with those that models made")
    trainer = Trainer(run, tokenizers, corpus, observer, processes)
    if start is not None:
        _copy_weights(start, trainer.model)
    if processes.is_first:
        with run.locked() as run:
            if start is not None:
                # A training that is killed before its next checkpoint is resumed from this one.
                checkpoints.save(run, trainer.progress, trainer.model, trainer.optimiser)
            keep_sums(run, sums)
            unseen = trainer.epochs.unseen()
            if start is not None:
                unseen &= tokenizers.unseen
            Run.create(folder, configuration, replace(tokenizers, unseen=unseen))
            if configuration.data.generated is None:
                with raised_as(TrainingError, f"{folder}: cannot be written"):
                    pairs = by_people(corpus.train)
                    Doubts.learn(pairs, corpus.valid).keep(run)
                    words = KnownWords.learn(pairs)
                    old = None if start is None else KnownWords.open(start)
                    (words if old is None else old.merged(words)).keep(run)
    return trainer


def prepare_resumed(
    folder: Path,
    *,
    configuration: Configuration | None = None,
    data: Path | None = None,
    observer: Observer | None = None,
    processes: Processes | None = None,
    lock: Lock | None = None,
) -> Trainer:
    """A trainer that continues the run in `folder`; `configuration` may change the keys that are free to change.

    `lock` is the lock on `folder`, if this process holds it.
    """
    run = replace(Run.open(folder), lock=lock)
    run.configuration.check_vectors(resumed=True)
    if configuration is not None:
        differences = [
            f"{key}: {old!r} in the run folder, {new!r} asked for"
            for key, old, new in toml.differences(run.configuration, configuration, free=False)
        ]
        if differences:
            raise ConfigurationError(
                f"{folder}: a resumed training keeps its configuration; these differ: "
                + "; ".join(differences)
            )
        run = replace(run, configuration=configuration)
    observer = observer or Observer()
    section = run.configuration.data
    check_made(section, folder)
    check_sums(run, data)
    corpus = read_data(section, data, run.configuration.seed)
    tokenizers = run.tokenizers()
    corpus = short_enough(corpus, tokenizers, section.longest, observer)
    corpus = _with_made(corpus, section, folder, tokenizers, observer)
    trainer = Trainer(run, tokenizers, corpus, observer, processes or Processes())
    if trainer.resume():
        observer.note(f"resumed at step {trainer.progress.step}")
    return trainer


def _with_made(
    corpus: Data, section: DataSettings, folder: Path, tokenizers: Tokenizers, observer: Observer
) -> Data:
    """The data with the pairs that models have made in the run folder."""
    made_corpus = replace(corpus, train=made_pairs(corpus.train, section, folder))
    if not made_corpus.train:
        return corpus
    made_corpus = short_enough(made_corpus, tokenizers, section.longest, observer)
    return replace(corpus, train=corpus.train + made_corpus.train)


def _fitted(configuration: Configuration, start: Run) -> Configuration:
    """A configuration with the tokenizers of the run that it starts from.

    Raises:
        CheckpointError: it has no published weights.
        ConfigurationError: its model has another shape, or its corpora have tags that the tokenizers lack.
    """
    if not (start.folder / MODEL).is_file():
        raise CheckpointError(
            f"{start.folder}: has no {MODEL} to start from: finish its training first"
        )
    old, new = start.configuration.model.model_dump(), configuration.model.model_dump()
    # Learned positions are weights; sinusoidal ones may be of any number.
    free = _FREE - ({"longest"} if old.get("positions") == "learned" else set())
    # Two kinds of models have different keys: the message names the kinds only.
    keys = sorted(old.keys() & new.keys() - free) if old["kind"] == new["kind"] else ["kind"]
    differences = [f"model.{k} = {new[k]!r}, there {old[k]!r}" for k in keys if old[k] != new[k]]
    if differences:
        raise ConfigurationError(
            f"--from {start.folder}: the model must have the shape of the one it starts from: "
            + "; ".join(differences)
        )
    tokenizer = start.configuration.tokenizer.model_copy(
        update={"sampling": configuration.tokenizer.sampling}
    )
    if tokenizer.sampling and tokenizer.kind != "unigram":
        raise ConfigurationError(
            f"--from {start.folder}: its tokenizer is BPE, which "
            f"cannot sample segmentations (tokenizer.sampling = {tokenizer.sampling}): set it to 0"
        )
    tags = start.tokenizers().source.tags
    missing = [tag for tag in configuration.data.tags if tag not in tags]
    if missing:
        raise ConfigurationError(
            f"--from {start.folder}: its tokenizer has no tag {', '.join(missing)} (it has "
            f"{', '.join(tags) or 'none'}): train from the start, or leave the tags out"
        )
    return configuration.model_copy(update={"tokenizer": tokenizer})


def _copy_weights(start: Run, model: TranslationModel) -> None:
    """Copy the published weights of a run. Raises `ModelError` if they are broken."""
    path = start.folder / MODEL
    published = start.model(start.tokenizers())
    weights.load_into(model, weights.unique(published), path)
