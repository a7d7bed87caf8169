"""Makes a trainer from a configuration: data, tokenizers, run folder and model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from regard.errors import ConfigurationError, DataError, TrainingError
from regard.translation import settings
from regard.translation.models.building import build
from regard.translation.runs import Run, Tokenizers, checkpoint_name
from regard.translation.settings import Configuration, CorpusSettings, DataSettings
from regard.translation.text.corpora import (
    Corpus,
    Pair,
    Pairs,
    Parallel,
    Tsv,
    read_linked,
    read_pairs,
)
from regard.translation.text.generated import generate
from regard.translation.text.tokenizer import Tokenizer
from regard.translation.training import checkpoints, finetuning, pretrained, unchanged
from regard.translation.training.epochs import Epochs
from regard.translation.training.events import Observer
from regard.translation.training.guiding import Guide
from regard.translation.training.loop import Trainer
from regard.translation.training.processes import Processes
from regard.translation.training.validation import Validation


@dataclass(frozen=True)
class Data:
    """Sentence pairs for training and validation, and the number of pairs that were skipped."""

    train: list[Pair]
    valid: list[Pair]
    skipped: int = 0


def read_data(section: DataSettings, folder: Path | None, seed: int) -> Data:
    """The pairs of a configuration; paths are relative to `folder` (or the working folder)."""
    train = read_training(section, folder, seed)
    if section.generated is not None:
        made = section.generated
        valid = Pairs(generate(made.task, seed, made.valid, "valid"))
    else:
        valid = _read_all("valid", section.validation, section, folder)
    return Data(train.pairs, valid.pairs, train.skipped + valid.skipped)


def read_training(section: DataSettings, folder: Path | None, seed: int) -> Pairs:
    """The training pairs of a configuration."""
    if section.generated is not None:
        made = section.generated
        return Pairs(generate(made.task, seed, made.train, "train"))
    return _read_all("train", section.training, section, folder)


def _read_all(
    name: str, each: tuple[CorpusSettings, ...], section: DataSettings, folder: Path | None
) -> Pairs:
    """The pairs of several corpora, one after the other, with the tags and the weight of their corpus."""
    found = Pairs()
    for files in each:
        text = corpus(files, section, folder)
        own = (
            read_pairs(text)
            if files.links is None
            else read_linked(text, (folder or Path()) / files.links)
        )
        if not own.pairs:
            raise DataError(
                f"data.{name}: no usable sentence pairs in {files} ({own.skipped} with an empty side)"
            )
        tags = section.tags_of(files)
        if tags or files.weight != 1:
            own.pairs = [pair._replace(tags=tags, weight=files.weight) for pair in own.pairs]
        found.pairs += own.pairs
        found.skipped += own.skipped
    return found


def corpus(files: CorpusSettings, section: DataSettings, folder: Path | None) -> Corpus:
    """The corpus files of one section."""
    base = folder or Path()
    if files.tsv is not None:
        source, target = files.source_column, files.target_column
        return Tsv(
            base / files.tsv,
            section.source_column if source is None else source,
            section.target_column if target is None else target,
        )
    if files.source is None or files.target is None:  # the configuration was checked before
        raise ConfigurationError("give either `tsv`, or `source` and `target`")
    return Parallel(base / files.source, base / files.target)


# A note lists at most this many characters that are not in the vocabulary.
_NAMED_CHARACTERS = 40


def learn_tokenizers(
    configuration: Configuration, pairs: list[Pair], observer: Observer
) -> Tokenizers:
    """Learn tokenizers from the training text. The observer gets notes about missing pieces and characters."""
    section = configuration.tokenizer
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]

    def learn(lines: list[str], tags: tuple[str, ...] = ()) -> Tokenizer:
        learnt = Tokenizer.train(
            lines,
            vocabulary_size=section.vocabulary_size,
            kind=section.kind,
            character_coverage=section.character_coverage,
            seed=configuration.seed,
            tags=tags,
        )
        if len(learnt) < section.vocabulary_size:
            observer.note(
                f"the text gives {len(learnt)} word pieces, fewer than tokenizer.vocabulary_size = "
                f"{section.vocabulary_size}"
            )
        left_out = learnt.left_out(lines)
        if left_out:
            named = " ".join(map(_visible, left_out[:_NAMED_CHARACTERS]))
            more = " ..." if len(left_out) > _NAMED_CHARACTERS else ""
            observer.note(
                f"{len(left_out)} characters of the text are not in the vocabulary and are written as bytes: "
                f"{named}{more} (tokenizer.character_coverage = 1.0 takes all)"
            )
        return learnt

    tags = configuration.data.tags
    if section.joint:
        shared = learn(sources + targets, tags)
        return Tokenizers(shared, shared)
    return Tokenizers(learn(sources, tags), learn(targets))


def _visible(character: str) -> str:
    return character if character.isprintable() else f"U+{ord(character):04X}"


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
    run = Run(folder, configuration)
    if processes.first:
        Run.check_free(folder)
        _check_no_checkpoints(run)
    if start is not None:
        if configuration.pretrained is not None:
            raise ConfigurationError(
                "--from and [pretrained]: both set the embeddings: give one of them"
            )
        configuration = finetuning.fitted(configuration, start)
        run = Run(folder, configuration)
    sums = unchanged.sums(configuration.data, data) if processes.first else {}
    found = read_data(configuration.data, data, configuration.seed)
    observer.note(
        f"{len(found.train)} training pairs, {len(found.valid)} for validation, skipped {found.skipped}"
    )
    if start is not None:
        tokenizers = start.tokenizers()
        finetuning.check_tags(configuration, start, tokenizers)
    else:
        tokenizers = _learned_by_the_first(configuration, found.train, processes, observer)
    found = _short_enough(found, tokenizers, configuration.data.longest, observer)
    trainer = _trainer(run, tokenizers, found, observer, processes)
    if start is not None:
        finetuning.begin(trainer, start)
    else:
        pretrained.begin(trainer, tokenizers, found.train, data, observer)
    if processes.first:
        unchanged.remember(run, sums)
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
    unchanged.check(run, data)
    found = read_data(run.configuration.data, data, run.configuration.seed)
    tokenizers = run.tokenizers()
    found = _short_enough(found, tokenizers, run.configuration.data.longest, observer)
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


def _learned_by_the_first(
    configuration: Configuration, pairs: list[Pair], processes: Processes, observer: Observer
) -> Tokenizers:
    """Learn tokenizers in the first process and send them to the others: learning takes memory and time."""
    learnt = learn_tokenizers(configuration, pairs, observer) if processes.first else None
    files = list(learnt.files().values()) if learnt is not None else []
    count = 1 if configuration.tokenizer.joint else 2
    models = [processes.content(files[i] if files else b"") for i in range(count)]
    if learnt is not None:
        return learnt
    opened = [Tokenizer(model) for model in models]
    return Tokenizers(opened[0], opened[-1])


def _trainer(
    run: Run, tokenizers: Tokenizers, found: Data, observer: Observer, processes: Processes
) -> Trainer:
    configuration = run.configuration
    training = configuration.training
    if training.threads:
        torch.set_num_threads(training.threads)
    torch.manual_seed(configuration.seed)
    model = build(configuration, len(tokenizers.source), len(tokenizers.target))
    pretrained.freeze(model, configuration)
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
    validation = Validation(
        found.valid,
        tokenizers,
        sentences=training.validate_sentences,
        seed=configuration.seed,
        samples=training.validate_samples,
    )
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


def _short_enough(found: Data, tokenizers: Tokenizers, longest: int, observer: Observer) -> Data:
    """The pairs in which neither side has more than `longest` pieces."""

    def fits(text: str, tokenizer: Tokenizer, tags: int = 0) -> bool:
        # A piece has at least one byte, so most lines need not be tokenized.
        most = longest - tags
        return len(text.encode()) + 1 <= most or len(tokenizer.encode(text)) <= most

    def kept(pairs: list[Pair], name: str) -> list[Pair]:
        short = [
            pair
            for pair in pairs
            if fits(pair.source, tokenizers.source, len(pair.tags))
            and fits(pair.target, tokenizers.target)
        ]
        if len(short) < len(pairs):
            observer.note(
                f"left out {len(pairs) - len(short)} pairs of data.{name} longer than "
                f"data.longest = {longest} pieces"
            )
        if not short:
            raise DataError(
                f"data.{name}: no usable sentence pairs: all are longer than data.longest = {longest}"
            )
        return short

    return Data(kept(found.train, "train"), kept(found.valid, "valid"), found.skipped)
