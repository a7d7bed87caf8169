"""The front door from Python: open a model, translate, and see what it looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import torch

from regard.translation.decoding import forced
from regard.translation.decoding.hypothesis import Hypothesis
from regard.translation.decoding.search import Search, translate_batch
from regard.translation.errors import ModelError
from regard.translation.models.protocol import Looks, TranslationModel
from regard.translation.runs import Run, Tokenizers
from regard.translation.text.batches import sources
from regard.translation.text.corpora import Pair
from regard.translation.text.normalisation import normalise
from regard.translation.text.tokenizer import EOS

BUNDLED = Path(__file__).parent.parent / "bundled"
# A source of more pieces is cut: memory stays bounded whatever a line holds.
_LONGEST_SOURCE = 512
# Lines taken from a stream at a time, and positions of a batch (sentences x longest x beam).
_CHUNK = 256
_BATCH_POSITIONS = 8192


@dataclass(frozen=True)
class Translation:
    """A sentence, its translation, and what the model looked at.

    Attributes:
        source: the sentence as it was given.
        text: the translation.
        score: log-probability over the length penalty; larger is better. 0 for an empty sentence.
        source_pieces: the source's pieces as the encoder reads them, end included.
        target_pieces: the pieces the decoder writes, end included.
        probabilities: of each target piece, end included.
        looks: by name ("encoder.0.self", "decoder.2.cross", ...) a look of shape (1, heads, queries, keys);
            empty unless asked for.
        alternatives: the n-best translations and their scores, best first, this one among them.
        cut: source pieces left out because the sentence was too long.
    """

    source: str
    text: str
    score: float = 0.0
    source_pieces: list[str] = field(default_factory=list)
    target_pieces: list[str] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
    looks: Looks = field(default_factory=dict)
    alternatives: list[tuple[str, float]] = field(default_factory=list)
    cut: int = 0

    def labels(self, name: str) -> tuple[list[str], list[str]]:
        """What the queries and the keys of a look stand for: `queries, keys`.

        A look at the source has a row for every piece written; a decoder's look at itself one for every piece read.
        """
        if name.startswith("encoder"):
            return self.source_pieces, self.source_pieces
        if name.endswith("cross"):
            return self.target_pieces, self.source_pieces
        read = ["<s>", *self.target_pieces[:-1]]
        return read, read


class Translator:
    """A trained model with its tokenizers.

    >>> translator = Translator.open("es-en")                      # doctest: +SKIP
    >>> translator.translate(["¿Dónde está el gato?"])[0].text     # doctest: +SKIP
    'Where is the cat?'
    """

    def __init__(self, run: Run, model: TranslationModel, tokenizers: Tokenizers) -> None:
        self.run = run
        self.model = model.eval()
        self.tokenizers = tokenizers

    @classmethod
    def open(cls, name_or_folder: str | Path, device: str | torch.device = "cpu") -> Translator:
        """A bundled model by its name, or a run folder's. Raises `ModelError` when there is none or it is broken."""
        run = Run.open(find(name_or_folder))
        tokenizers = run.tokenizers()
        return cls(run, run.model(tokenizers).to(device), tokenizers)

    @property
    def search(self) -> Search:
        """The search this model was configured for."""
        section = self.run.configuration.search
        return Search(beam=section.beam, length_penalty=section.length_penalty)

    @property
    def longest(self) -> int:
        """The most pieces of a source that are read."""
        learned = self.model.longest
        return min(_LONGEST_SOURCE, learned - 1) if learned else _LONGEST_SOURCE

    def translate(
        self,
        texts: Sequence[str],
        *,
        beam: int | None = None,
        search: Search | None = None,
        looks: bool = False,
        seed: int | None = None,
    ) -> list[Translation]:
        """Translate sentences, one translation each, in their order.

        Args:
            texts: one sentence an entry; an empty one gives an empty translation.
            beam: hypotheses kept (1 is greedy); the model's own setting by default.
            search: every setting at once; instead of `beam`.
            looks: keep every layer's looks with each translation.
            seed: of sampling.

        Raises:
            ConfigurationError: settings out of range.
            ModelError: the model answers numbers that are not finite.
        """
        if isinstance(texts, str):
            raise TypeError("got one text: pass a list of sentences, [text]")
        if search is None:
            own = self.search
            search = own if beam is None else Search(beam=beam, length_penalty=own.length_penalty)
        generator = None
        if seed is not None:
            generator = torch.Generator(self._device).manual_seed(seed)
        encoded = [self.tokenizers.source.encode(text) for text in texts]
        kept = [ids[: self.longest] for ids in encoded]
        found: dict[int, list[Hypothesis]] = {}
        for rows in self._batches(kept, search.beam):
            source, lengths = sources([kept[row] for row in rows])
            best = translate_batch(
                self.model,
                source.to(self._device),
                lengths.to(self._device),
                search,
                generator=generator,
            )
            found.update(zip(rows, best, strict=True))
        return [
            self._translation(text, kept[row], len(ids) - len(kept[row]), found.get(row), looks)
            for row, (text, ids) in enumerate(zip(texts, encoded, strict=True))
        ]

    def stream(
        self, texts: Iterable[str], *, search: Search | None = None, looks: bool = False
    ) -> Iterator[Translation]:
        """Translate an endless supply of sentences in bounded memory, in their order."""
        supply = iter(texts)
        while chunk := list(islice(supply, _CHUNK)):
            yield from self.translate(chunk, search=search, looks=looks)

    def look(self, text: str, target: str | None = None) -> Translation:
        """One sentence with every look, translated or as the translation `target` that is given."""
        if target is None:
            return self.translate([text], looks=True)[0]
        ids = self.tokenizers.source.encode(text)
        kept = ids[: self.longest]
        if not kept:
            return Translation(text, normalise(target))
        return self._translation(
            text, kept, len(ids) - len(kept), [self._forced(kept, target)], True
        )

    def score(self, pairs: Sequence[Pair]) -> list[float]:
        """The log-probability over the length penalty that the model gives to translations of others."""
        return [
            self._forced(
                self.tokenizers.source.encode(pair.source)[: self.longest], pair.target
            ).score
            for pair in pairs
        ]

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _forced(self, ids: list[int], target: str) -> Hypothesis:
        source, lengths = sources([ids])
        words = self.tokenizers.target.encode(target)[: self.longest]
        (hypothesis,) = forced.score(
            self.model,
            source.to(self._device),
            lengths.to(self._device),
            [words],
            length_penalty=self.search.length_penalty,
        )
        return hypothesis

    def _batches(self, encoded: list[list[int]], beam: int) -> Iterator[list[int]]:
        """Rows of like length together; empty sentences need no model."""
        rows = sorted(
            (row for row, ids in enumerate(encoded) if ids), key=lambda row: len(encoded[row])
        )
        batch: list[int] = []
        for row in rows:
            if batch and (len(batch) + 1) * (len(encoded[row]) + 1) * beam > _BATCH_POSITIONS:
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch

    def _translation(
        self,
        text: str,
        ids: list[int],
        cut: int,
        hypotheses: list[Hypothesis] | None,
        looks: bool,
    ) -> Translation:
        if not hypotheses:
            return Translation(text, "")
        target = self.tokenizers.target
        best = hypotheses[0]
        return Translation(
            source=text,
            text=target.decode(best.tokens),
            score=best.score,
            source_pieces=self.tokenizers.source.pieces([*ids, EOS]),
            target_pieces=target.pieces([*best.tokens, EOS]),
            probabilities=torch.tensor(best.token_log_probabilities).exp().tolist(),
            looks=self._looks(ids, best.tokens) if looks else {},
            alternatives=[(target.decode(h.tokens), h.score) for h in hypotheses],
            cut=cut,
        )

    def _looks(self, ids: list[int], words: list[int]) -> Looks:
        source, lengths = sources([ids])
        return forced.looks(self.model, source.to(self._device), lengths.to(self._device), [words])


def bundled() -> dict[str, Path]:
    """The models that come with the package, by name."""
    if not BUNDLED.is_dir():
        return {}
    return {folder.name: folder for folder in sorted(BUNDLED.iterdir()) if folder.is_dir()}


def find(name_or_folder: str | Path) -> Path:
    """The folder of a bundled model's name, or the folder itself."""
    known = bundled()
    if str(name_or_folder) in known:
        return known[str(name_or_folder)]
    folder = Path(name_or_folder)
    try:
        there = folder.is_dir()
    except (OSError, ValueError):
        there = False
    if not there:
        names = ", ".join(known) or "none"
        raise ModelError(f"{name_or_folder}: no such model or run folder; bundled models: {names}")
    return folder
