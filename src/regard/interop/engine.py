"""Translating through CTranslate2, with our tokenizers and our ranking."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import torch

from regard.errors import ModelError, one_line
from regard.interop import ctranslate2 as exporter
from regard.interop.ctranslate2 import Quantization
from regard.translation import checksums
from regard.translation.decoding.hypothesis import penalty
from regard.translation.decoding.repetition import loops
from regard.translation.decoding.search import Search
from regard.translation.runs import Tokenizers
from regard.translation.text.tokenizer import EOS
from regard.translation.translator import Candidate, Translation, Translator

# Pieces of a source that are read, as by our own search, and pieces at a time.
_LONGEST_SOURCE = 512
_BATCH_PIECES = 2048


class Engine:
    """A model that was exported to CTranslate2.

    Each of the `workers` translates one batch with one thread: at the sizes of translation models, splitting a batch
    over several cores is slower. CTranslate2 returns the whole beam without a length penalty, and the hypotheses are
    ranked here by log p / ((5 + n) / 6)^alpha, as `decoding.beam` ranks them.

    Args:
        folder: of an exported model.
        tokenizers: its tokenizers; those in the folder by default.
        beam, length_penalty: defaults of `translate`; by default those that the model was configured for.
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
        beam: int | None = None,
        length_penalty: float | None = None,
        workers: int | None = None,
        compute_type: str = "default",
    ) -> None:
        folder = Path(folder)
        checksums.check(folder)
        said = _configuration(folder)
        learned = _learned(said)
        self.longest = min(_LONGEST_SOURCE, learned)
        own = _search(said)
        self.search = _changed(
            own.changed(max_length=min(own.max_length, learned)),
            beam=beam,
            length_penalty=length_penalty,
        )
        self.workers = workers or _cores()
        self.tokenizers = _tokenizers(folder) if tokenizers is None else tokenizers
        target = self.tokenizers.target
        self._ids = {piece: id for id, piece in enumerate(target.pieces(range(len(target))))}
        self._engine = _open(folder, self.workers, compute_type)

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
            return cls(place, translator.tokenizers, workers=workers)

    def translate(
        self,
        texts: Sequence[str],
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        nbest: int | None = None,
        no_repeat_ngram: int | None = None,
        search: Search | None = None,
    ) -> list[Translation]:
        """Translate sentences, in their order; an empty sentence gives an empty translation.

        Args:
            texts: one sentence an entry.
            beam: hypotheses kept; 1 is greedy.
            length_penalty: alpha of ((5 + n) / 6)^alpha.
            nbest: candidates of each sentence, at most `beam`.
            no_repeat_ngram: no sequence of so many pieces may occur twice in a translation; 0 allows all.
            search: every setting at once; the other arguments change it. The model's own by default.

        Raises:
            ConfigurationError: settings out of range.
        """
        if isinstance(texts, str):
            raise TypeError("got one text: pass a list of sentences, [text]")
        search = _changed(
            search or self.search,
            beam=beam,
            length_penalty=length_penalty,
            nbest=nbest,
            no_repeat_ngram=no_repeat_ngram,
        )
        source = self.tokenizers.source
        encoded = [source.encode(text) for text in texts]
        pieces = [source.pieces(ids[: self.longest]) for ids in encoded]
        rows = [row for row, found in enumerate(pieces) if found]
        lengths = torch.tensor([len(found) + 1 for found in pieces], dtype=torch.int64)
        most = search.longest(lengths).tolist()
        found = {
            row: self._ranked(answer, search.length_penalty)[: search.nbest]
            for row, answer in self._searched(pieces, rows, most, search).items()
        }
        return [
            replace(
                self._translation(text, pieces[row], len(ids) - len(pieces[row]), found[row]),
                repeats=loops(self._numbers(found[row][0][0]), ids),
                unfinished=len(found[row][0][0]) >= most[row],
            )
            if row in found
            else Translation(text, "")
            for row, (text, ids) in enumerate(zip(texts, encoded, strict=True))
        ]

    def _searched(
        self, pieces: list[list[str]], rows: list[int], most: list[int], search: Search
    ) -> dict[int, Any]:
        """The result of CTranslate2 for each of the rows.

        CTranslate2 takes one length limit for a call. Sentences that exceed their own limit are translated again.
        """
        if not rows:
            return {}
        longest = max(most[row] for row in rows)
        answers = self._engine.translate_batch(
            [pieces[row] for row in rows],
            beam_size=search.beam,
            num_hypotheses=search.beam,
            length_penalty=0,
            min_decoding_length=0,
            max_decoding_length=longest,
            no_repeat_ngram_size=search.no_repeat_ngram,
            max_input_length=0,
            max_batch_size=_BATCH_PIECES,
            batch_type="tokens",
            return_scores=True,
        )
        found = dict(zip(rows, answers, strict=True))
        over = [row for row in rows if max(map(len, found[row].hypotheses)) > most[row]]
        for bound in {most[row] for row in over}:
            again = [row for row in over if most[row] == bound]
            found |= self._searched(pieces, again, most, search)
        return found

    def _numbers(self, pieces: list[str]) -> list[int]:
        return [self._ids[piece] for piece in pieces]

    def _ranked(self, answer: Any, alpha: float) -> list[tuple[list[str], Candidate]]:
        """The pieces and the text of each hypothesis, best first."""
        target = self.tokenizers.target
        ranked = [
            (
                tokens,
                Candidate(
                    text=target.decode(self._numbers(tokens)),
                    score=total / penalty(len(tokens) + 1, alpha),
                    log_probability=total,
                ),
            )
            for tokens, total in zip(answer.hypotheses, answer.scores, strict=True)
        ]
        return sorted(ranked, key=lambda one: -one[1].score)

    def _translation(
        self, text: str, source: list[str], cut: int, found: list[tuple[list[str], Candidate]]
    ) -> Translation:
        end = self.tokenizers.source.pieces([EOS]), self.tokenizers.target.pieces([EOS])
        target, best = found[0]
        return Translation(
            source=text,
            text=best.text,
            score=best.score,
            log_probability=best.log_probability,
            source_pieces=[*source, *end[0]],
            target_pieces=[*target, *end[1]],
            alternatives=[candidate for _, candidate in found],
            cut=cut,
            unknown=self.tokenizers.source.unknown(text),
            unseen=[piece for piece in source if piece in self.tokenizers.unseen],
        )


def _search(said: dict[str, Any]) -> Search:
    """The search that the exporter wrote; keys of other versions are ignored."""
    own = said.get(exporter.SEARCH)
    given = own if isinstance(own, dict) else {}
    return Search(**{name: value for name, value in given.items() if name in Search.model_fields})


def _changed(search: Search, **changes: Any) -> Search:
    """The search with the changes that are not None."""
    return search.changed(**{name: to for name, to in changes.items() if to is not None})


def _open(folder: Path, workers: int, compute_type: str) -> Any:
    library = exporter.library()
    if not library.contains_model(str(folder)):
        raise ModelError(
            f"{folder}: no CTranslate2 model: make one with "
            f"`regard export --model NAME --to ctranslate2 {folder}`"
        )
    try:
        return library.Translator(
            str(folder),
            device="cpu",
            inter_threads=workers,
            intra_threads=1,
            compute_type=compute_type,
        )
    except (RuntimeError, ValueError) as fault:
        raise ModelError(f"{folder}: {one_line(fault)}") from None


def _configuration(folder: Path) -> dict[str, Any]:
    """The configuration that the exporter wrote; empty where another program made the folder."""
    try:
        said = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def _learned(said: dict[str, Any]) -> int:
    """The most pieces of a source: learned positions less one for the end, or our own limit."""
    learned = said.get(exporter.LONGEST)
    return learned - 1 if type(learned) is int and learned > 1 else _LONGEST_SOURCE


def _tokenizers(folder: Path) -> Tokenizers:
    # Their checksums have been compared.
    return Tokenizers.open(folder, joint=(folder / "tokenizer.model").is_file(), sums={})


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
