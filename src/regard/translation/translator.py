"""The translator for Python: open a model, translate, and look at its attention."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain, islice, repeat
from pathlib import Path

import torch
from torch import Tensor

from regard.attention.torch_names import answers
from regard.errors import ConfigurationError
from regard.loops.availability import device_objection
from regard.translation import lines
from regard.translation.aligning.aligner import Aligner
from regard.translation.aligning.choice import of_run
from regard.translation.aligning.words import in_spans
from regard.translation.decoding import forced
from regard.translation.decoding.hypothesis import Hypothesis
from regard.translation.decoding.prefix import Prefixes
from regard.translation.decoding.search import Search, bounds, translate_batch
from regard.translation.decoding.tree import Tree
from regard.translation.doubts import Doubts
from regard.translation.engines import SearchEngine, choose
from regard.translation.engines.engine import hooked
from regard.translation.evaluation.alignment import Link
from regard.translation.models.ensemble import Ensemble
from regard.translation.models.protocol import Looks, TranslationModel
from regard.translation.opening import bundled, find, open_runs
from regard.translation.results import (
    Candidate,
    Translation,
    Word,
    candidate,
    spoken,
    translation,
    words_of,
)
from regard.translation.runs import Run, Tokenizers
from regard.translation.shortlist.table import Shortlist
from regard.translation.text import sentences
from regard.translation.text.batches import grouped, sources
from regard.translation.text.corpora import Pair
from regard.translation.text.normalisation import clean, normalise
from regard.translation.words import KnownWords

__all__ = ["Candidate", "Translation", "Translator", "Word", "bundled", "find"]

# A source of more pieces is cut: memory stays bounded whatever a line holds.
_LONGEST_SOURCE = 512
# Lines taken from a stream at a time, and positions of a batch (sentences x longest x hypotheses).
_CHUNK = 256
BATCH_TOKENS = 8192


class Translator:
    """A trained model with its tokenizers.

    >>> translator = Translator.open("es-en")                      # doctest: +SKIP
    >>> translator.translate(["¿Dónde está el gato?"])[0].text     # doctest: +SKIP
    "Where's the cat?"

    Attributes:
        shortlist: the words that each sentence may be translated with; None for all. A prefix may ask
            for any word, so that translations with one are of all.
        engine: it runs the model when this translates, chosen when the translator is made. `engine.name` is
            "compiled" or "layers", and `engine.reason` says why a faster one was not chosen. It packs weights
            once: after writing to weights, call `refresh`.
    """

    def __init__(
        self,
        run: Run,
        model: TranslationModel,
        tokenizers: Tokenizers,
        shortlist: Shortlist | None = None,
    ) -> None:
        self.run = run
        self.model = model.eval()
        self.tokenizers = tokenizers
        self.shortlist = shortlist
        self.rounded = False
        self.engine = choose(self.model)

    @classmethod
    def open(
        cls,
        names_or_folders: str | Path | Sequence[str | Path],
        device: str | torch.device = "cpu",
        to: str | None = None,
        *,
        shortlist: bool = False,
    ) -> Translator:
        """Open a bundled model by its name or a model by its folder; several models are averaged.

        Several models are averaged word by word (see `models.ensemble`), with the search and the shortlist of
        the first one. `to` is the target language, for models with several.

        Raises:
            ModelError: a model is missing or broken, has no shortlist, or the models have different vocabularies.
            ConfigurationError: it does not translate into that language.
        """
        if objection := device_objection(device):
            raise ConfigurationError(f"device {device}: {objection}")
        runs, tokenizers = open_runs(names_or_folders)
        tokenizers = runs[0].directed(tokenizers, to)
        listed = Shortlist.open(runs[0], tokenizers) if shortlist else None
        models = [run.model(tokenizers).to(device) for run in runs]
        return cls(runs[0], models[0] if len(models) == 1 else Ensemble(models), tokenizers, listed)

    def refresh(self, *, rounded: bool | None = None, avoid_loops: str = "") -> None:
        """Choose the engine anew, for the model as it is now.

        Call this after writing to weights, replacing layers, or moving the model. Layers with hooks need no
        call: while a model has hooks, or a watch is open, its own layers translate.

        Args:
            rounded: round products to 8 bits (int8 search); None leaves that as it is.
            avoid_loops: a reason not to load compiled loops; `engine.reason` repeats it.

        Raises:
            ConfigurationError: int8 search does not support the model.
        """
        rounded = self.rounded if rounded is None else rounded
        self.engine = choose(self.model, rounded=rounded, avoid_loops=avoid_loops)
        self.rounded = rounded

    @cached_property
    def search(self) -> Search:
        """The search this model was configured for."""
        return Search(**dict(self.run.configuration.search))

    @cached_property
    def doubts(self) -> Doubts | None:
        """Statistics of its training text, for doubting translations; None where its folder has none."""
        return Doubts.open(self.run)

    @cached_property
    def words(self) -> KnownWords | None:
        """The words of its training text; None where its folder has none."""
        return KnownWords.open(self.run)

    @property
    def source_language(self) -> str:
        """The ISO 639 code of the language it reads, as its configuration has it."""
        return self.run.configuration.data.source_language

    @property
    def sentence_language(self) -> str | None:
        """The language in which sentences are found; None for generated data, in which every line is one."""
        generated = self.run.configuration.data.generated is not None
        return None if generated else self.source_language

    @property
    def longest(self) -> int:
        """The most pieces of a source that are read."""
        learned = self.model.longest
        return min(_LONGEST_SOURCE, learned - 1) if learned else _LONGEST_SOURCE

    @answers({})
    def translate(
        self,
        texts: Sequence[str],
        *,
        beam: int | None = None,
        search: Search | None = None,
        prefix: str | Sequence[str] | None = None,
        looks: bool = False,
        alignments: bool = False,
        batch_tokens: int = BATCH_TOKENS,
        seed: int | None = None,
        tree: Tree | None = None,
        whole_lines: bool = False,
    ) -> list[Translation]:
        """Translate lines, one translation each, in their order.

        The sentences of a line are found (see `text.sentences`), translated one by one, and joined with what stands
        between them.

        Args:
            texts: one line an entry; an empty one gives an empty translation.
            beam: hypotheses kept (1 is greedy); the model's own setting by default.
            search: every setting at once; instead of `beam`.
            prefix: the words that every translation must begin with, or those of each; "" for any.
            looks: keep every layer's looks with each translation.
            alignments: link the words, by the attention that `regard align` reads; of several models, by the first.
            batch_tokens: source pieces, padding included, times hypotheses that are computed at a time;
                a sentence of more is a batch of its own. Less takes less memory.
            seed: of sampling.
            tree: records the steps of the beam search of one sentence, which is translated as a whole.
            whole_lines: translate each line as a whole, however many sentences it has.

        Raises:
            ConfigurationError: settings out of range, a prefix longer than a translation may be, or a tree of
                several sentences or with a shortlist.
            ModelError: the model answers numbers that are not finite.
        """
        if batch_tokens < 1:
            raise ConfigurationError(f"batch_tokens {batch_tokens}: use a whole number, 1 or more")
        lines.check_several(texts)
        if search is None:
            search = self.search if beam is None else self.search.changed(beam=beam)
        if tree is not None:  # it has the nodes of one search
            search = search.as_written().changed(search_again=False)
        generator = None
        if seed is not None:
            generator = torch.Generator(self._device).manual_seed(seed)
        begun = None
        if prefix is not None:
            each = [prefix] * len(texts) if isinstance(prefix, str) else list(prefix)
            if len(each) != len(texts):
                raise ConfigurationError(
                    f"{len(each)} prefixes for {len(texts)} texts: pass one for each"
                )
            begun = each, self.run.configuration.data.target_language
        if self.run.configuration.data.generated is not None:
            search = search.changed(numbers=False)
        translated = partial(
            self._translated,
            looks=looks,
            alignments=alignments,
            batch_tokens=batch_tokens,
            generator=generator,
            tree=tree,
        )
        copied = partial(
            self._copied, looks=looks, alignments=alignments, batch_tokens=batch_tokens
        )
        language = None if whole_lines or tree is not None else self.sentence_language
        return lines.translate(
            texts, language, search, self.doubts, self.words, translated, copied, begun
        )

    def stream(
        self,
        texts: Iterable[str],
        *,
        search: Search | None = None,
        prefix: str | None = None,
        looks: bool = False,
        alignments: bool = False,
        batch_tokens: int = BATCH_TOKENS,
        seed: int | None = None,
        whole_lines: bool = False,
    ) -> Iterator[Translation]:
        """Translate an endless supply of lines in bounded memory, in their order (see `translate`)."""
        lines.check_several(texts)
        supply = iter(texts)
        return chain.from_iterable(
            self.translate(
                chunk,
                search=search,
                prefix=prefix,
                looks=looks,
                alignments=alignments,
                batch_tokens=batch_tokens,
                seed=None if seed is None else (seed + number) % 2**63,
                whole_lines=whole_lines,
            )
            for number, chunk in enumerate(iter(lambda: list(islice(supply, _CHUNK)), []))
        )

    @answers({})
    def translate_text(
        self,
        text: str,
        *,
        search: Search | None = None,
        batch_tokens: int = BATCH_TOKENS,
        seed: int | None = None,
        language: str | None = None,
    ) -> str:
        """Translate paragraphs: sentence by sentence, with the white space and line breaks between them kept.

        Args:
            text: any number of sentences; line breaks within a sentence become spaces.
            search, batch_tokens, seed: as of `translate`.
            language: of the text, for its abbreviations; the model's source language by default.
        """
        parts = sentences.split(text, self.source_language if language is None else language)
        translated = self.translate(
            [part.text for part in parts],
            search=search,
            batch_tokens=batch_tokens,
            seed=seed,
            whole_lines=True,
        )
        return sentences.join(parts, [one.text for one in translated])

    def look(self, text: str, target: str | None = None) -> Translation:
        """One line with every look, translated or as the translation `target` that is given.

        Raises:
            ConfigurationError: the translation given has more pieces than `longest`.
        """
        if target is None:
            # The attention that is shown belongs to the words that were given.
            return self.translate([text], search=self.search.as_written(), looks=True)[0]
        text = clean(text)
        ids = self.tokenizers.source.encode(text)
        if not ids:
            return Translation(text, normalise(target))
        return self._translation(text, ids, [self._forced(ids, target)], looks=True)

    def score(self, pairs: Sequence[Pair]) -> list[float]:
        """The log-probability over the length penalty that the model gives to translations of others.

        Raises:
            ConfigurationError: one of them has more pieces than `longest`.
        """
        return [
            self._forced(self.tokenizers.source.encode(pair.source), pair.target).score
            for pair in pairs
        ]

    def _translated(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str] | None,
        search: Search,
        *,
        looks: bool,
        alignments: bool,
        batch_tokens: int,
        generator: torch.Generator | None,
        tree: Tree | None,
    ) -> list[Translation]:
        """The translation of each sentence."""
        # Compiled search calls no hooks: a model that has some now is run by its own layers.
        engine = SearchEngine(self.model) if hooked(self.model) else self.engine
        encoded = [self.tokenizers.source.encode(text) for text in texts]
        kept = [ids[: self.longest] for ids in encoded]
        begun = self._prefixes(prefixes)
        found: dict[int, Translation] = {}
        for rows, bound in self._batches(kept, begun, batch_tokens // search.hypotheses):
            source, lengths = self._sources([encoded[row] for row in rows])
            lists = None
            if self.shortlist is not None and bound is None:
                lists = [self.shortlist.of(kept[row]) for row in rows]
            best = translate_batch(
                self.model,
                source,
                lengths,
                search,
                prefix=bound,
                lists=lists,
                generator=generator,
                engine=engine,
                tree=tree,
            )
            links = self._links([kept[row] for row in rows], best) if alignments else repeat(None)
            most = bounds(self.model, search, lengths).tolist()
            for row, hypotheses, linked, longest in zip(rows, best, links, most, strict=False):
                unfinished = len(hypotheses[0].tokens) >= longest
                found[row] = self._translation(
                    texts[row], encoded[row], hypotheses, linked, looks, unfinished
                )
        return [found.get(row, Translation(text)) for row, text in enumerate(texts)]

    def _copied(
        self,
        texts: Sequence[str],
        search: Search,
        *,
        looks: bool,
        alignments: bool,
        batch_tokens: int,
    ) -> list[Translation]:
        """Each sentence as its own translation, with the scores and looks that the model has while it writes that."""
        source, target = self.tokenizers.source, self.tokenizers.target
        encoded = [source.encode(text)[: self.longest] for text in texts]
        written = [target.encode(text)[: self.longest] for text in texts]
        found: dict[int, Translation] = {}
        for rows, _ in self._batches(encoded, None, batch_tokens):
            hypotheses = forced.score(
                self.model,
                *self._sources([encoded[row] for row in rows]),
                [written[row] for row in rows],
                length_penalty=search.length_penalty,
            )
            for row, one in zip(rows, hypotheses, strict=True):
                links = [(place, place) for place in range(len(texts[row].split()))]
                each = [links] if alignments else None
                found[row] = self._translation(texts[row], encoded[row], [one], each, looks)
        return [found[row] for row in range(len(texts))]

    def _links(
        self, encoded: list[list[int]], found: list[list[Hypothesis]]
    ) -> list[list[list[Link]]]:
        """The word links of each hypothesis of each sentence."""
        source, target = self.tokenizers.source, self.tokenizers.target
        tags = len(source.prefix)
        pairs = []
        for ids, hypotheses in zip(encoded, found, strict=True):
            spans = words_of(source.pieces(ids[tags:]))
            given = in_spans(ids, ((start + tags, stop + tags) for start, stop in spans))
            pairs += [
                (given, in_spans(one.tokens, spoken(one.tokens, target))) for one in hypotheses
            ]
        each = iter(self._aligner.links(pairs))
        return [[next(each) for _ in hypotheses] for hypotheses in found]

    @cached_property
    def _aligner(self) -> Aligner:
        """The aligner of the model, or of the first of several."""
        model = next(iter(self.model)) if isinstance(self.model, Ensemble) else self.model
        return Aligner(model, self.tokenizers, of_run(self.run))

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _sources(self, encoded: list[list[int]]) -> tuple[Tensor, Tensor]:
        """Encoded sentences as a padded tensor and their lengths, on the device of the model."""
        source, lengths = sources([ids[: self.longest] for ids in encoded])
        return source.to(self._device), lengths.to(self._device)

    def _forced(self, ids: list[int], target: str) -> Hypothesis:
        words = self.tokenizers.target.encode(target)
        self._check_length("translation", target, len(words))
        penalty = self.search.length_penalty
        (hypothesis,) = forced.score(
            self.model, *self._sources([ids]), [words], length_penalty=penalty
        )
        return hypothesis

    def _prefixes(self, each: Sequence[str] | None) -> Prefixes | None:
        """Raises `ConfigurationError` for one that is longer than a translation may be."""
        if each is None:
            return None
        made = Prefixes.words(each, self.tokenizers.target, self._device)
        if made is not None:
            for text, pieces in zip(each, made.lengths.tolist(), strict=True):
                self._check_length("prefix", text, pieces)
        return made

    def _check_length(self, what: str, text: str, pieces: int) -> None:
        if pieces > self.longest:
            raise ConfigurationError(
                f"{what} {text[:40]!r}... has {pieces} pieces: this model takes at most {self.longest}"
            )

    def _batches(
        self, encoded: list[list[int]], prefixes: Prefixes | None, most: int
    ) -> Iterator[tuple[list[int], Prefixes | None]]:
        """Rows of like length together, apart from them those that have a prefix; empty sentences need no model."""
        begun = [0] * len(encoded) if prefixes is None else prefixes.lengths.sign().tolist()

        def fits(batch: list[int], row: int) -> bool:
            size = (len(batch) + 1) * (len(encoded[row]) + 1)
            return size <= most and begun[row] == begun[batch[0]]

        rows = [row for row, ids in enumerate(encoded) if ids]
        for batch in grouped(sorted(rows, key=lambda row: (begun[row], len(encoded[row]))), fits):
            bound = prefixes if begun[batch[0]] else None
            yield batch, bound and bound.select(torch.tensor(batch, device=self._device))

    def _translation(
        self,
        text: str,
        ids: list[int],
        found: list[Hypothesis],
        links: list[list[Link]] | None = None,
        looks: bool = False,
        unfinished: bool = False,
    ) -> Translation:
        best = found[0]
        each = repeat(None) if links is None else links
        candidates = [
            candidate(one, self.tokenizers.target, linked)
            for one, linked in zip(found, each, strict=False)
        ]
        seen: Looks = {}
        if looks:
            seen = forced.looks(self.model, *self._sources([ids]), [best.tokens])
        return translation(
            text,
            ids,
            self.longest,
            self.tokenizers,
            candidates,
            best.tokens,
            probabilities=torch.tensor(best.token_log_probabilities).exp().tolist(),
            looks=seen,
            unfinished=unfinished,
        )
