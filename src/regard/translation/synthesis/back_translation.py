"""Back-translation of text in the target language into sources (Sennrich et al. 2016, arXiv 1511.06709)."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch

from regard.errors import ConfigurationError, DataError
from regard.translation import checksums
from regard.translation.decoding.search import Search
from regard.translation.sentence_search import BATCH_TOKENS
from regard.translation.synthesis.filtering import PairFilter, Tally
from regard.translation.synthesis.resumable import Progress, ResumableFile
from regard.translation.text.corpora import Tsv, read_lines
from regard.translation.translator import Translator

# Sentences that are translated between two records of the progress.
CHUNK = 256


@dataclass(frozen=True)
class BackTranslation:
    """One text to be translated back.

    The pairs are (translation, sentence): a synthetic source for a target that a person wrote. Chunk n of 256
    sentences is sampled with seed `seed` + n, so that a resumed run writes the same bytes as an uninterrupted one.

    Attributes:
        text: the file of sentences, one a line, plain or packed.
        search: how to translate; sampling gives more various sources (Edunov et al. 2018, arXiv 1808.09381).
        longest, ratio: see `PairFilter`.
        column: where the sentences are in a text that is a table, counted from 0.
    """

    text: Path
    out: Path
    translator: Translator
    search: Search
    seed: int = 1
    longest: int = 250
    ratio: float = 3.0
    batch_tokens: int = BATCH_TOKENS
    column: int | None = None

    def run(
        self,
        *,
        resume: bool = False,
        reuse: bool = False,
        should_stop: Callable[[], bool] = lambda: False,
        progress: Callable[[Tally], None] = lambda tally: None,
    ) -> tuple[Literal["finished", "stopped"], Tally]:
        """Translate to the end, or until `should_stop`; the pairs made so far are on the disk either way.

        Args:
            resume: continue a table that is not finished.
            reuse: leave a finished table of the same work as it is. `OUT.json` tells what it was made from.

        Raises:
            RegardError: the table is there already, or cannot be written.
            ConfigurationError: it was begun with other settings or another text.
            DataError: the text cannot be read, or no sentence gives a pair.
        """
        pair_filter = PairFilter(min(self.longest, self.translator.longest), self.ratio)
        settings = self._settings()
        if reuse:
            settings["text"] = checksums.of(self.text)
        unfinished = ResumableFile(self.out, settings)
        # Of a finished table the device no longer matters.
        if reuse and (finished := unfinished.final_progress(ignored=["device"])) is not None:
            return "finished", finished.tally
        with unfinished.begin(resume=resume) as recorded:
            lines = self._lines()
            self._pass_over(lines, pair_filter, recorded)
            progress(pair_filter.tally)
            for number, chunk in enumerate(self._chunks(lines, pair_filter), start=recorded.chunks):
                pairs = self._pairs(chunk, pair_filter, (self.seed + number) % 2**63)
                state = Progress(
                    tally=pair_filter.tally, digest=pair_filter.digest, chunks=number + 1
                )
                unfinished.add("".join(f"{s}\t{t}\n" for s, t in pairs), state)
                progress(pair_filter.tally)
                # Of a pipe nobody knows whether it is over: reading on might wait.
                if should_stop() and not (self.text.is_file() and next(lines, None) is None):
                    return "stopped", pair_filter.tally
            if not pair_filter.tally.written:
                raise DataError(
                    f"{self.text}: no usable sentences in {pair_filter.tally.read} lines: "
                    f"{pair_filter.tally.left_out() or 'it is empty'}"
                )
            unfinished.finish(keep_record=reuse)
        return "finished", pair_filter.tally

    def _lines(self) -> Iterator[str]:
        if self.column is None:
            return read_lines(self.text)
        return (sentence for sentence, _ in Tsv(self.text, self.column, self.column).rows())

    def _chunks(self, lines: Iterator[str], pair_filter: PairFilter) -> Iterator[list[str]]:
        chunk: list[str] = []
        fresh = False
        for line in lines:
            fresh = True
            pair_filter.tally.read += 1
            text = pair_filter.text(line)
            if text is None:
                continue
            if len(self.translator.tokenizers.source.encode(text)) > pair_filter.longest:
                pair_filter.tally.long += 1
                continue
            chunk.append(text)
            if len(chunk) == CHUNK:
                yield chunk
                chunk, fresh = [], False
        if fresh:
            yield chunk

    def _pairs(self, texts: list[str], pair_filter: PairFilter, seed: int) -> list[tuple[str, str]]:
        translations = self.translator.translate(
            texts,
            search=self.search,
            batch_tokens=self.batch_tokens,
            seed=seed if self.search.sampling else None,
        )
        tags = len(self.translator.tokenizers.source.prefix)
        return [
            (translation.text, text)
            for text, translation in zip(texts, translations, strict=True)
            if pair_filter.keeps(
                text,
                translation.text,
                len(translation.source_pieces) - 1 - tags,
                len(translation.target_pieces) - 1,
            )
        ]

    def _pass_over(self, lines: Iterator[str], pair_filter: PairFilter, recorded: Progress) -> None:
        """Read the lines again that were dealt with before an interruption."""
        if not recorded.chunks:
            return
        for line in islice(lines, recorded.tally.read):
            pair_filter.text(line)
        if pair_filter.digest != recorded.digest:
            raise ConfigurationError(
                f"{self.text}: its first {recorded.tally.read} lines are not those that {self.out} was begun with"
            )
        pair_filter.tally = recorded.tally

    def _settings(self) -> dict[str, Any]:
        return {
            "model": fingerprint(self.translator),
            "search": dict(self.search),
            "seed": self.seed if self.search.sampling else None,
            "longest": self.longest,
            "ratio": self.ratio,
            "column": self.column,
            "to": list(self.translator.tokenizers.source.prefix),
            # Rounding and sampling depend on the batches and the device.
            "batch_tokens": self.batch_tokens,
            "device": next(self.translator.model.parameters()).device.type,
            "rounded": False,  # of earlier versions, which could search in int8
        }


def fingerprint(translator: Translator) -> str:
    """The sha256 of a translator's weights and tokenizers."""
    digest = hashlib.sha256()
    for name, tensor in sorted(translator.model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    for tokenizer in (translator.tokenizers.source, translator.tokenizers.target):
        digest.update(tokenizer.model)
    return digest.hexdigest()
