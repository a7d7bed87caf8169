"""Translating through CTranslate2, with our tokenizers and our ranking."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import torch
from pydantic import BaseModel, Field, ValidationError

from regard import files
from regard.errors import (
    ConfigurationError,
    ModelError,
    library,
    one_line,
    raised_as,
    ran_out_of_memory,
)
from regard.interop import ctranslate2 as exporter
from regard.interop.ctranslate2 import Quantization
from regard.translation import checksums, lines
from regard.translation.aligning.aligner import Aligner
from regard.translation.decoding.hypothesis import Hypothesis, penalty
from regard.translation.decoding.limits import bounds
from regard.translation.decoding.search import Search
from regard.translation.doubts import Doubts, agreement
from regard.translation.evaluation.alignment import WordLinks
from regard.translation.results import Candidate, Translation
from regard.translation.runs import Tokenizers
from regard.translation.sentence_search import translation_of, word_links
from regard.translation.text.glossary import Glossary
from regard.translation.translator import Translator
from regard.translation.words import KnownWords

# Pieces of a source that are read, as by our own search, and pieces at a time.
_LONGEST_SOURCE = 512
_BATCH_PIECES = 2048
_CONFIGURATION, _LARGEST_FILE = "config.json", 2**20
# Settings of a search that CTranslate2 has, too.
_SETTINGS = {"beam", "length_penalty", "nbest", "no_repeat_ngram", "patience"}


class Engine:
    """A model that was exported to CTranslate2.

    Each of the `workers` translates one batch with one thread: at the sizes of translation models, splitting a batch
    over several cores is slower. CTranslate2 returns the whole beam without a length penalty, and the hypotheses are
    ranked here by log p / ((5 + n) / 6)^alpha, as `decoding.beam` ranks them. CTranslate2 stops when `beam` hypotheses
    have ended, or `beam` x `patience` with a `patience` above 1: ours may find a better one.

    Args:
        folder: of an exported model.
        tokenizers: its tokenizers; those in the folder by default.
        workers: batches at a time; by default the number of cores that this process may use.
        compute_type: of CTranslate2: "default" computes as the weights are stored, "int8", "float32", ...

    Raises:
        ConfigurationError: ctranslate2 is not installed.
        ModelError: the folder is not an exported model.
    """

    def __init__(
        self,
        folder: str | Path,
        tokenizers: Tokenizers | None = None,
        *,
        workers: int | None = None,
        compute_type: str = "default",
    ) -> None:
        folder = Path(folder)
        checksums.check(folder)
        exported = _Exported.read(folder)
        learned = (
            _LONGEST_SOURCE
            if exported.learned_positions is None
            else exported.learned_positions - 1
        )
        self.folder, self.longest = folder, min(_LONGEST_SOURCE, learned)
        try:
            search_settings = Search(
                **{name: to for name, to in exported.search.items() if name in Search.model_fields}
            )
        except ConfigurationError as fault:
            raise ModelError(f"{folder / _CONFIGURATION}: {exporter.SEARCH}: {fault}") from None
        self.search = search_settings.changed(max_length=min(search_settings.max_length, learned))
        self.sentence_language = exported.sentence_language
        self.linking: Callable[[], Aligner] | None = None  # nor an aligner
        self.doubts: Doubts | None = None  # an exported folder has neither doubts nor words
        self.words: KnownWords | None = None
        self.workers = workers or _cores()
        if tokenizers is None:  # their checksums have been compared
            joint = (folder / "tokenizer.model").is_file()
            tokenizers = Tokenizers.open(folder, joint, sums={})
        self.tokenizers = tokenizers
        translator = _open(folder, self.workers, compute_type)
        self._sentences = _SentenceSearch(folder, translator, tokenizers, self.longest)

    @classmethod
    def of(
        cls,
        translator: Translator,
        *,
        quantization: Quantization = "float32",
        workers: int | None = None,
    ) -> Self:
        """The engine of a translator, exported to a temporary folder."""
        with TemporaryDirectory(prefix="regard-") as folder:
            place = Path(folder) / "model"
            exporter.export(translator, place, quantization)
            engine = cls(place, translator.tokenizers, workers=workers)
        engine.doubts, engine.words = translator.doubts, translator.words
        engine.linking = translator.aligner
        return engine

    def translate(
        self,
        texts: Sequence[str],
        *,
        search: Search | None = None,
        whole_lines: bool = False,
        glossary: Glossary | Mapping[str, str] | None = None,
        **changes: Any,
    ) -> list[Translation]:
        """Translate lines, in their order, sentence by sentence; an empty line gives an empty translation.

        Args:
            texts, whole_lines, glossary: as of `Translator.translate`.
            search: every setting at once; the model's own by default.
            changes: settings that replace those of the search: `beam`, `length_penalty`, `nbest`,
                `no_repeat_ngram` or `patience`.

        Raises:
            ConfigurationError: settings out of range.
        """
        if unknown := sorted(changes.keys() - _SETTINGS):
            raise TypeError(f"CTranslate2 does not search with {', '.join(unknown)}: leave it out")
        search = (search or self.search).changed(**changes, sampling=False, constraints=False)
        if self.sentence_language is None:  # generated data
            search = search.changed(numbers=False, spans=False)
        return lines.translate(
            texts,
            replace(self._sentences, linking=self.linking),
            search,
            words=self.words,
            doubts=self.doubts,
            language=None if whole_lines else self.sentence_language,
            readable=self.tokenizers.readable,
            glossary=glossary,
        )


@dataclass(frozen=True)
class _SentenceSearch:
    """Translates sentences by CTranslate2, as they are written."""

    folder: Path
    translator: Any
    tokenizers: Tokenizers
    longest: int
    linking: Callable[[], Aligner] | None = None

    def translate(
        self,
        sentences: Sequence[str],
        search: Search,
        prefixes: Sequence[str] | None = None,
        terms: Sequence[Sequence[str]] | None = None,
    ) -> list[Translation]:
        source = self.tokenizers.source
        encoded = [source.encode(text) for text in sentences]
        pieces = [source.pieces(ids[: self.longest]) for ids in encoded]
        lengths = torch.tensor([len(row_pieces) + 1 for row_pieces in pieces], dtype=torch.int64)
        limits = bounds(search, lengths).tolist()
        rows = [row for row, row_pieces in enumerate(pieces) if row_pieces]
        answers = self._answers(pieces, rows, limits, search)
        translations = [Translation(text, "") for text in sentences]
        for row in rows:
            arguments = sentences[row], encoded[row], answers[row], limits[row], search
            translations[row] = self._translation(*arguments)
        return translations

    def copy(self, sentences: Sequence[str], search: Search) -> list[Translation]:
        source, target = self.tokenizers.source, self.tokenizers.target
        encoded = [source.encode(text)[: self.longest] for text in sentences]
        copies = [target.encode(text)[: self.longest] for text in sentences]
        scores = self.translator.score_batch(
            list(map(source.pieces, encoded)),
            list(map(target.pieces, copies)),
            max_batch_size=_BATCH_PIECES,
            batch_type="tokens",
            max_input_length=0,
        )
        translations = []
        for text, ids, tokens, score in zip(sentences, encoded, copies, scores, strict=True):
            hypothesis = Hypothesis.of(tokens, score.log_probs, search.length_penalty)
            best = Candidate(text, hypothesis.score, hypothesis.log_probability)
            translations.append(
                translation_of(text, ids, self.longest, self.tokenizers, [best], tokens)
            )
        return translations

    def links(self, pairs: Sequence[tuple[str, str]]) -> list[WordLinks]:
        """By the attention of the model that was exported; in a folder alone, words are linked by their order."""
        return word_links(self.linking, pairs)

    def _answers(
        self, pieces: list[list[str]], rows: list[int], limits: list[int], search: Search
    ) -> dict[int, Any]:
        """The result of CTranslate2 for each of the rows.

        CTranslate2 takes one length limit for a call. Sentences that exceed their own limit are translated again.
        """
        if not rows:
            return {}
        with _named(self.folder):
            batch = self.translator.translate_batch(
                [pieces[row] for row in rows],
                beam_size=search.beam,
                num_hypotheses=search.beam,
                length_penalty=0,
                patience=max(search.patience, 1),
                min_decoding_length=0,
                max_decoding_length=max(limits[row] for row in rows),
                no_repeat_ngram_size=search.no_repeat_ngram,
                max_input_length=0,
                max_batch_size=_BATCH_PIECES,
                batch_type="tokens",
                return_scores=True,
            )
        answers = dict(zip(rows, batch, strict=True))
        longer = [row for row in rows if max(map(len, answers[row].hypotheses)) > limits[row]]
        for limit in {limits[row] for row in longer}:
            same_limit = [row for row in longer if limits[row] == limit]
            answers |= self._answers(pieces, same_limit, limits, search)
        return answers

    def _translation(
        self, text: str, ids: list[int], answer: Any, limit: int, search: Search
    ) -> Translation:
        scored = [
            (total / penalty(len(pieces) + 1, search.length_penalty), total, pieces)
            for pieces, total in zip(answer.hypotheses, answer.scores, strict=True)
        ]
        ranked = sorted(scored, key=lambda hypothesis: -hypothesis[0])
        tokens = [[self._ids[piece] for piece in pieces] for _, _, pieces in ranked]
        texts = list(map(self.tokenizers.target.decode, tokens))
        candidates = [
            Candidate(text, score, total)
            for text, (score, total, _) in zip(texts, ranked, strict=True)
        ][: search.nbest]
        arguments = text, ids, self.longest, self.tokenizers, candidates, tokens[0]
        shared = agreement(texts[0], texts[1:]) if search.beam > 1 else None
        return translation_of(*arguments, unfinished=len(tokens[0]) >= limit, agreement=shared)

    @cached_property
    def _ids(self) -> dict[str, int]:
        target = self.tokenizers.target
        return {piece: id for id, piece in enumerate(target.pieces(range(len(target))))}


class _Exported(BaseModel):
    """The configuration that the exporter wrote; empty where another program made the folder."""

    learned_positions: int | None = Field(default=None, ge=2)
    search: dict[str, Any] = {}
    sentence_language: str | None = ""  # the rules of English

    @classmethod
    def read(cls, folder: Path) -> Self:
        """That of a folder. Raises `ModelError` for a value of another type, which would change translations."""
        path = folder / _CONFIGURATION
        try:
            with raised_as(ModelError, f"{path}: cannot be read"):
                content = files.read(path, _LARGEST_FILE) if path.exists() else b"{}"
            return cls.model_validate_json(content, strict=True)
        except ValidationError as fault:
            error = fault.errors()[0]
            key = ".".join(map(str, error["loc"])) or "the file"
            raise ModelError(f"{path}: {key}: {one_line(ValueError(error['msg']))}") from None


def is_exported(folder: str | Path) -> bool:
    """Whether a folder holds a model of CTranslate2, and not a run of ours."""
    folder = Path(folder)
    return (folder / "model.bin").is_file() and not (folder / "config.toml").is_file()


def _open(folder: Path, workers: int, compute_type: str) -> Any:
    ctranslate2 = library("ctranslate2", "ctranslate2")
    if not ctranslate2.contains_model(str(folder)):
        raise ModelError(
            f"{folder}: no CTranslate2 model: make one with "
            f"`regard export --model NAME --to ctranslate2 {folder}`"
        )
    with _named(folder):
        return ctranslate2.Translator(
            str(folder),
            device="cpu",
            inter_threads=workers,
            intra_threads=1,
            compute_type=compute_type,
        )


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    """Raise a `ModelError` that names the folder where CTranslate2 reports a fault of it, when opening or later."""
    try:
        yield
    except (RuntimeError, ValueError) as fault:
        if ran_out_of_memory(fault):
            raise
        raise ModelError(f"{folder}: {one_line(fault)}") from None


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
