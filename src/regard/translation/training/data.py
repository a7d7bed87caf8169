"""Reads the sentence pairs that a configuration names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from regard.errors import ConfigurationError, DataError
from regard.translation.runs import Tokenizers
from regard.translation.settings import CorpusSettings, DataSettings
from regard.translation.text.corpora import (
    Corpus,
    Pair,
    Pairs,
    Parallel,
    Tsv,
    read_pairs,
)
from regard.translation.text.generated import generate
from regard.translation.text.tokenizer import Tokenizer
from regard.translation.training.events import Observer


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
        links = None if files.links is None else (folder or Path()) / files.links
        own = read_pairs(text, links)
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


def short_enough(found: Data, tokenizers: Tokenizers, longest: int, observer: Observer) -> Data:
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
