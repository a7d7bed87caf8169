"""From a configuration to a trainer that is ready to go: data, tokenizers, run folder, model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from regard.translation import configuration as configurations
from regard.translation.configuration import Configuration, DataSection, FilesSection
from regard.translation.errors import ConfigurationError, DataError
from regard.translation.models.building import build
from regard.translation.runs import Run, Tokenizers
from regard.translation.text.corpora import Corpus, Pair, Parallel, Tsv, read_pairs
from regard.translation.text.generated import generate
from regard.translation.text.tokenizer import Tokenizer
from regard.translation.training.epochs import Epochs
from regard.translation.training.events import Observer
from regard.translation.training.loop import Trainer
from regard.translation.training.validation import Validation


@dataclass(frozen=True)
class Data:
    """Sentence pairs to learn from and to choose by, and what was left out on the way."""

    train: list[Pair]
    valid: list[Pair]
    skipped: int = 0


def read_data(section: DataSection, folder: Path | None, seed: int) -> Data:
    """The pairs a configuration asks for; paths are relative to `folder` (or the working folder)."""
    if section.generated is not None:
        made = section.generated
        return Data(
            generate(made.task, seed, made.train, "train"),
            generate(made.task, seed, made.valid, "valid"),
        )
    if section.train is None or section.valid is None:  # the configuration has seen to it
        raise ConfigurationError("give data.train and data.valid")
    train = read_pairs(corpus(section.train, section, folder))
    valid = read_pairs(corpus(section.valid, section, folder))
    for name, pairs in (("train", train), ("valid", valid)):
        if not pairs.pairs:
            raise DataError(
                f"data.{name}: no usable sentence pairs ({pairs.skipped} with an empty side)"
            )
    return Data(train.pairs, valid.pairs, train.skipped + valid.skipped)


def corpus(files: FilesSection, section: DataSection, folder: Path | None) -> Corpus:
    """The corpus of one section, as files."""
    base = folder or Path()
    if files.tsv is not None:
        return Tsv(base / files.tsv, section.source_column, section.target_column)
    if files.source is None or files.target is None:  # the configuration has seen to it
        raise ConfigurationError("give either `tsv`, or `source` and `target`")
    return Parallel(base / files.source, base / files.target)


def learn_tokenizers(configuration: Configuration, pairs: list[Pair]) -> Tokenizers:
    """Tokenizers of the training text."""
    section = configuration.tokenizer
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]

    def learn(lines: list[str]) -> Tokenizer:
        return Tokenizer.train(
            lines,
            vocabulary_size=section.vocabulary_size,
            kind=section.kind,
            character_coverage=section.character_coverage,
            seed=configuration.seed,
        )

    if section.joint:
        shared = learn(sources + targets)
        return Tokenizers(shared, shared)
    return Tokenizers(learn(sources), learn(targets))


def prepare(
    configuration: Configuration,
    folder: Path,
    *,
    data: Path | None = None,
    device: str = "cpu",
    observer: Observer | None = None,
) -> Trainer:
    """A trainer for a new run in `folder`. Nothing is written before data and configuration have proved usable."""
    Run.check_free(folder)
    check_model(configuration)
    observer = observer or Observer()
    found = read_data(configuration.data, data, configuration.seed)
    observer.note(
        f"{len(found.train)} training pairs, {len(found.valid)} for validation, skipped {found.skipped}"
    )
    tokenizers = learn_tokenizers(configuration, found.train)
    found = _short_enough(found, tokenizers, configuration.data.longest, observer)
    run = Run.create(folder, configuration, tokenizers)
    return _trainer(run, tokenizers, found, device, observer)


def prepare_resumed(
    folder: Path,
    *,
    configuration: Configuration | None = None,
    data: Path | None = None,
    device: str = "cpu",
    observer: Observer | None = None,
) -> Trainer:
    """A trainer that goes on where the run in `folder` stopped; `configuration` may change what is free to change."""
    run = Run.open(folder)
    if configuration is not None:
        changed = configurations.differences(run.configuration, configuration)
        if changed:
            raise ConfigurationError(
                f"{folder}: a resumed training keeps its configuration; these differ: "
                + "; ".join(changed)
            )
        run = Run(folder, configuration)
    observer = observer or Observer()
    found = read_data(run.configuration.data, data, run.configuration.seed)
    tokenizers = run.tokenizers()
    found = _short_enough(found, tokenizers, run.configuration.data.longest, observer)
    trainer = _trainer(run, tokenizers, found, device, observer)
    if trainer.resume():
        observer.note(f"resumed at step {trainer.progress.step}")
    return trainer


def _trainer(
    run: Run, tokenizers: Tokenizers, found: Data, device: str, observer: Observer
) -> Trainer:
    configuration = run.configuration
    if configuration.training.threads:
        torch.set_num_threads(configuration.training.threads)
    torch.manual_seed(configuration.seed)
    model = build(configuration, len(tokenizers.source), len(tokenizers.target)).to(device)
    epochs = Epochs(
        found.train,
        tokenizers,
        batch_tokens=configuration.training.batch_tokens,
        sampling=configuration.tokenizer.sampling,
        seed=configuration.seed,
        longest=configuration.data.longest,
    )
    validation = Validation(
        found.valid,
        tokenizers,
        sentences=configuration.training.validate_sentences,
        seed=configuration.seed,
    )
    return Trainer(run, model, epochs, validation, observer)


def check_model(configuration: Configuration) -> None:
    """Raises `ConfigurationError` when the parts of the model do not fit together; takes no memory."""
    with torch.device("meta"):
        build(configuration, 8, 8)


def _short_enough(found: Data, tokenizers: Tokenizers, longest: int, observer: Observer) -> Data:
    """The pairs of which neither side has more than `longest` pieces."""

    def fits(text: str, tokenizer: Tokenizer) -> bool:
        # Every piece is at least a byte: most lines need no second look.
        return len(text.encode()) + 1 <= longest or len(tokenizer.encode(text)) <= longest

    def kept(pairs: list[Pair], name: str) -> list[Pair]:
        short = [
            pair
            for pair in pairs
            if fits(pair.source, tokenizers.source) and fits(pair.target, tokenizers.target)
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
