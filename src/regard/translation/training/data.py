"""Reads the corpora of a configuration, learns tokenizers, and compares the files when a run is resumed.

corpora.json keeps the checksums of the corpora of a run. Other training sentences would change the order of the
remaining batches. The scores of other validation sentences cannot be compared with earlier scores.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from regard.errors import DataError, TrainingError, raised_as
from regard.translation import checksums
from regard.translation.formats.tmx import Tmx
from regard.translation.runs import Run, Tokenizers
from regard.translation.runs.layout import BACK_TRANSLATED, DISTILLED
from regard.translation.settings.configuration import Configuration
from regard.translation.settings.data import CorpusSettings, DataSettings, DistillationSettings
from regard.translation.text.corpora import (
    Corpus,
    Pair,
    Pairs,
    Parallel,
    Tsv,
    by_people,
    read_pairs,
)
from regard.translation.text.generated import generate
from regard.translation.text.tokenizer import Tokenizer
from regard.translation.training.processes import Processes
from regard.translation.training.reporting import Observer

CORPORA = "corpora.json"
# A note lists at most this many characters that are not in the vocabulary.
_NAMED_CHARACTERS = 40


@dataclass(frozen=True)
class Data:
    """Sentence pairs for training and validation, and the number of pairs that were skipped."""

    train: list[Pair]
    valid: list[Pair]
    skipped: int = 0


def read_data(section: DataSettings, folder: Path | None, seed: int) -> Data:
    """The pairs of a configuration; paths are relative to `folder` (or the working folder).

    Those that models make before the training are not among them: see `made_pairs`.
    """
    train, valid = (read_split(section, split, folder, seed) for split in ("train", "valid"))
    return Data(train.pairs, valid.pairs, train.skipped + valid.skipped)


def read_split(
    section: DataSettings, split: Literal["train", "valid"], folder: Path | None, seed: int
) -> Pairs:
    """The training or the validation pairs of a configuration, with the tags and the weights of their corpora."""
    if section.generated is not None:
        count = getattr(section.generated, split)
        return Pairs(generate(section.generated.task, seed, count, split))
    pairs = Pairs()
    for files in section.paired if split == "train" else section.validation:
        links = None if files.links is None else (folder or Path()) / files.links
        corpus = _corpus(files, section, folder or Path())
        corpus_pairs = _read_corpus(corpus, files, section, f"data.{split}", links)
        pairs.pairs += corpus_pairs.pairs
        pairs.skipped += corpus_pairs.skipped
    return pairs


def _read_corpus(
    corpus: Corpus, files: CorpusSettings, section: DataSettings, key: str, links: Path | None
) -> Pairs:
    pairs = read_pairs(corpus, links)
    if not pairs.pairs:
        raise DataError(
            f"{key}: no usable sentence pairs in {files} ({pairs.skipped} with an empty side)"
        )
    if section.words is not None:
        pairs.pairs = [pair for pair in pairs.pairs if _has_words(pair, *section.words)]
        if not pairs.pairs:
            raise DataError(
                f"{key}: no pair in {files} has data.words = {list(section.words)} words"
            )
    tags = section.tags_of(files)
    if tags or files.weight != 1 or files.is_made:
        pairs.pairs = [
            pair._replace(tags=tags, weight=files.weight, synthetic=files.is_made)
            for pair in pairs.pairs
        ]
    return pairs


def _has_words(pair: Pair, fewest: int, largest: int) -> bool:
    return all(fewest <= len(side.split()) <= largest for side in (pair.source, pair.target))


def _corpus(files: CorpusSettings, section: DataSettings, folder: Path) -> Corpus:
    if files.source is not None and files.target is not None:
        return Parallel(folder / files.source, folder / files.target)
    if files.tmx is not None:
        return Tmx(folder / files.tmx, *(files.tmx_languages or ()))
    return Tsv(folder / str(files.tsv), *section.columns_of(files))


def made_pairs(pairs: list[Pair], section: DataSettings, run: Path) -> list[Pair]:
    """The pairs that models have made in a run folder; `pairs` are all others of the training."""
    new_pairs: list[Pair] = []
    for number, files in section.back_translated:
        table = Tsv(run / BACK_TRANSLATED.format(number))
        new_pairs += _read_corpus(table, files, section, "data.train", None).pairs
    if section.distillation is not None:
        taught = distilled(pairs, section.distillation, run / DISTILLED)
        words = section.words
        new_pairs += [pair for pair in taught if words is None or _has_words(pair, *words)]
    return new_pairs


def distilled(pairs: list[Pair], settings: DistillationSettings, path: Path) -> list[Pair]:
    """The pairs that people wrote, with a teacher's translations as targets. The file has a line for each.

    Raises `DataError` when it has other sources.
    """
    rows, people_pairs = list(Tsv(path).rows()), by_people(pairs)
    if [source for source, _ in rows] != [pair.source for pair in people_pairs]:
        raise DataError(
            f"{path}: its {len(rows)} sources are not those of the {len(people_pairs)} training pairs: put the old "
            "corpora back, or start a new training"
        )
    return [
        pair._replace(target=text, weight=settings.weight * pair.weight, links="", synthetic=True)
        for pair, (_, text) in zip(people_pairs, rows, strict=True)
        if text
    ]


def short_enough(data: Data, tokenizers: Tokenizers, longest: int, observer: Observer) -> Data:
    """The pairs in which neither side has more than `longest` pieces."""

    def fits(text: str, tokenizer: Tokenizer, tags: int = 0) -> bool:
        # A piece has at least one byte, so most lines need not be tokenized.
        pieces = longest - tags
        return len(text.encode()) + 1 <= pieces or len(tokenizer.encode(text)) <= pieces

    def short_pairs(pairs: list[Pair], name: str) -> list[Pair]:
        fitting = [
            pair
            for pair in pairs
            if fits(pair.source, tokenizers.source, len(pair.tags))
            and fits(pair.target, tokenizers.target)
        ]
        if len(fitting) < len(pairs):
            observer.note(
                f"left out {len(pairs) - len(fitting)} pairs of data.{name} longer than "
                f"data.longest = {longest} pieces"
            )
        if not fitting:
            raise DataError(
                f"data.{name}: no usable sentence pairs: all are longer than data.longest = {longest}"
            )
        return fitting

    return Data(short_pairs(data.train, "train"), short_pairs(data.valid, "valid"), data.skipped)


def learn_tokenizers(
    configuration: Configuration, pairs: list[Pair], processes: Processes, observer: Observer
) -> Tokenizers:
    """Learn tokenizers in the first process and send them to the others: learning takes memory and time.

    The observer gets notes about missing pieces and characters.
    """
    if processes.is_first:
        tokenizers = _learn(configuration, pairs, observer)
        processes.content(tokenizers.source.model)
        processes.content(tokenizers.target.model)
        return tokenizers
    source, target = Tokenizer(processes.content(b"")), Tokenizer(processes.content(b""))
    return Tokenizers(source, source if configuration.tokenizer.joint else target)


def _learn(configuration: Configuration, pairs: list[Pair], observer: Observer) -> Tokenizers:
    section = configuration.tokenizer
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]

    def learn(lines: list[str], tags: tuple[str, ...] = ()) -> Tokenizer:
        tokenizer = Tokenizer.train(
            lines,
            vocabulary_size=section.vocabulary_size,
            kind=section.kind,
            character_coverage=section.character_coverage,
            seed=configuration.seed,
            tags=tags,
        )
        if len(tokenizer) < section.vocabulary_size:
            observer.note(
                f"the text gives {len(tokenizer)} word pieces, fewer than tokenizer.vocabulary_size = "
                f"{section.vocabulary_size}"
            )
        left_out = tokenizer.left_out(lines)
        if left_out:
            named = " ".join(
                character if character.isprintable() else f"U+{ord(character):04X}"
                for character in left_out[:_NAMED_CHARACTERS]
            )
            more = " ..." if len(left_out) > _NAMED_CHARACTERS else ""
            observer.note(
                f"{len(left_out)} characters of the text are not in the vocabulary and are written as bytes: "
                f"{named}{more} (tokenizer.character_coverage = 1.0 takes all)"
            )
        return tokenizer

    tags = configuration.data.tags
    if section.joint:
        shared = learn(sources + targets, tags)
        return Tokenizers(shared, shared)
    return Tokenizers(learn(sources, tags), learn(targets))


def made_files(section: DataSettings, run: Path) -> dict[str, Path]:
    """The files of a run folder with the pairs that models make before the training, by names that no corpus has."""
    named = [BACK_TRANSLATED.format(number) for number, _ in section.back_translated]
    named += [] if section.distillation is None else [DISTILLED]
    return {_file_key(name): run / name for name in named}


def _file_key(name: str) -> str:
    return f"run folder: {name}"


def corpus_files(section: DataSettings, folder: Path | None) -> dict[str, Path]:
    """The files that a training reads, by their names in the configuration, without text to be translated back."""
    links = (each.links for each in section.training if each.links is not None)
    return {name: (folder or Path()) / name for name in (*section.paired_names, *links)}


def file_sums(paths: Mapping[str, Path]) -> dict[str, str]:
    """The sha256 of each file. Pipes can be read only once and have none."""
    sums = {}
    for name, path in paths.items():
        with suppress(OSError):  # reading the corpus reports it
            if path.is_file():
                sums[name] = checksums.of(path)
    return sums


def keep_sums(run: Run, sums: dict[str, str]) -> None:
    """Write checksums into the run folder, if there are any. Raises `TrainingError` when that fails."""
    path = run.folder / CORPORA
    if sums:
        with raised_as(TrainingError, f"{path}: cannot be written"):
            run.folder.mkdir(parents=True, exist_ok=True)
            checksums.write(path, sums)


def check_made(section: DataSettings, run: Path) -> None:
    """Raise `DataError` when a run folder lacks pairs that models made before the training."""
    for path in made_files(section, run).values():
        if not path.exists():
            raise DataError(
                f"{path}: is missing: a model made it before this training: put it back, or start a new training"
            )


def _taught(section: DataSettings) -> set[str]:
    """The names of the files that must not change because the sources of a teacher's file are theirs."""
    if section.distillation is None:
        return set()
    corpora = (files for files in section.paired if not files.is_made)
    return {_file_key(DISTILLED), *(name for files in corpora for name in files.names)}


def check_sums(run: Run, folder: Path | None) -> None:
    """Raise `DataError` for the first file that has changed. Runs without corpora.json are not checked."""
    path = run.folder / CORPORA
    if not path.exists():
        return
    old_sums = checksums.read_table(path)
    section = run.configuration.data
    paths = {**made_files(section, run.folder), **corpus_files(section, folder)}
    for name, checksum in file_sums(paths).items():
        if old_sums.get(name, checksum) != checksum:
            advice = f"put the old file back, or start a new training with --from {run.folder}"
            if name not in _taught(section):
                advice += f"; to go on with the new file all the same, remove {path}"
            raise DataError(f"{paths[name]}: has changed since this training began: {advice}")
