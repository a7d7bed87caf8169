"""Sentences translated by a search of the model, or scored with translations that others wrote."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, repeat
from typing import Any

import torch
from torch import Tensor

from regard.errors import ConfigurationError
from regard.translation.aligning.aligner import Aligner
from regard.translation.aligning.word_attention import NoAttentionError
from regard.translation.aligning.words import in_spans, normalised_words
from regard.translation.decoding import forced
from regard.translation.decoding.beam import Tree
from regard.translation.decoding.constraints import Constraints
from regard.translation.decoding.hypothesis import Hypothesis, loops
from regard.translation.decoding.limits import bounds
from regard.translation.decoding.prefix import Prefixes
from regard.translation.decoding.search import Search, translate_batch
from regard.translation.doubts import agreement
from regard.translation.engines import SearchEngine
from regard.translation.engines.remembering import Recall
from regard.translation.evaluation.alignment import Link, WordLinks
from regard.translation.models.protocol import Looks, TranslationModel
from regard.translation.results import Candidate, Origin, Translation, Word
from regard.translation.runs import Tokenizers
from regard.translation.text.batches import grouped, sources
from regard.translation.text.normalisation import clean, normalise
from regard.translation.text.tokenizer import EOS, Tokenizer, word_spans

# Positions of a batch (sentences x longest x hypotheses).
BATCH_TOKENS = 8192
_ORIGINS = 3  # stored sentences that are named for a word


@dataclass(frozen=True)
class SentenceSearch:
    """Translates sentences, as they are written, by a model that `engine` runs. See `Translator.translate`.

    Sources are cut to the `longest` number of pieces. Without an `aligner`, translations have no links; `linking` gives
    the aligner of `links`.
    """

    model: TranslationModel
    tokenizers: Tokenizers
    engine: SearchEngine
    longest: int
    batch_tokens: int = BATCH_TOKENS
    looks: bool = False
    aligner: Aligner | None = None
    linking: Callable[[], Aligner] | None = None
    seed: int | None = None
    tree: Tree | None = None
    recall: Recall | None = None
    origins: bool = False

    def __post_init__(self) -> None:
        if self.batch_tokens < 1:
            raise ConfigurationError(
                f"batch_tokens {self.batch_tokens}: use a whole number, 1 or more"
            )

    def translate(
        self,
        sentences: Sequence[str],
        search: Search,
        prefixes: Sequence[str] | None = None,
        terms: Sequence[Sequence[str]] | None = None,
    ) -> list[Translation]:
        """The translation of each sentence, which begins with its prefix, or has its terms if there is room for them.

        Raises:
            ConfigurationError: a prefix is longer than a translation may be.
            ModelError: the model answers numbers that are not finite.
        """
        encoded = [self.tokenizers.source.encode(text) for text in sentences]
        cut = [ids[: self.longest] for ids in encoded]
        bound = self._prefixes(prefixes)
        translations = [Translation(text) for text in sentences]
        generator = self._generator
        hypotheses_of_each = search.nbest if search.sampling else search.beam
        for rows, prefix in self._batches(cut, bound, self.batch_tokens // hypotheses_of_each):
            source, lengths = self._padded([cut[row] for row in rows])
            limits = bounds(search, lengths, self.model.longest).tolist()
            constraints = None
            if terms is not None:
                row_terms = [terms[row] for row in rows]
                target = self.tokenizers.target
                constraints = Constraints.words(row_terms, limits, target, self._device)
            best = translate_batch(
                self.model,
                source,
                lengths,
                search,
                prefix=prefix,
                generator=generator,
                engine=self.engine,
                tree=self.tree,
                ended=True,
                constraints=constraints,
            )
            links = self._links([cut[row] for row in rows], best, search.nbest)
            origins = self._origins(source, lengths, best)
            fields_of_rows = zip(rows, best, links, limits, origins, strict=False)
            for row, hypotheses, linked, limit, row_origins in fields_of_rows:
                unfinished = len(hypotheses[0].tokens) >= limit
                translations[row] = self._translation(
                    sentences[row],
                    encoded[row],
                    hypotheses,
                    linked,
                    unfinished,
                    row_origins,
                    search,
                )
        return translations

    def copy(self, sentences: Sequence[str], search: Search) -> list[Translation]:
        """Each sentence as its own translation, with the scores and looks that the model has while it writes that."""
        source, target = self.tokenizers.source, self.tokenizers.target
        encoded = [source.encode(text)[: self.longest] for text in sentences]
        copies = [target.encode(text)[: self.longest] for text in sentences]
        translations = [Translation(text) for text in sentences]
        for rows, _ in self._batches(encoded, None, self.batch_tokens):
            hypotheses = forced.score(
                self.model,
                *self._padded([encoded[row] for row in rows]),
                [copies[row] for row in rows],
                length_penalty=search.length_penalty,
            )
            for row, hypothesis in zip(rows, hypotheses, strict=True):
                places = range(len(sentences[row].split()))
                links = None if self.aligner is None else [list(zip(places, places, strict=True))]
                translations[row] = self._translation(
                    sentences[row], encoded[row], [hypothesis], links
                )
        return translations

    def links(self, pairs: Sequence[tuple[str, str]]) -> list[WordLinks]:
        """The links of the words, between white space, of sentences and translations, by their attention."""
        return word_links(self.linking, pairs)

    def forced(self, text: str, target: str, length_penalty: float) -> Translation:
        """A sentence with a translation of others.

        Raises:
            ConfigurationError: the translation has more pieces than `longest`.
        """
        text = clean(text)
        ids = self.tokenizers.source.encode(text)
        if not ids:
            return Translation(text, normalise(target))
        return self._translation(text, ids, [self._hypothesis(ids, target, length_penalty)])

    def score(self, text: str, target: str, length_penalty: float) -> float:
        """The score of a sentence's translation that others wrote. Raises as `forced`."""
        ids = self.tokenizers.source.encode(text)
        return self._hypothesis(ids, target, length_penalty).score

    @cached_property
    def _generator(self) -> torch.Generator | None:
        return None if self.seed is None else torch.Generator(self._device).manual_seed(self.seed)

    @cached_property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _padded(self, encoded: list[list[int]]) -> tuple[Tensor, Tensor]:
        """Encoded sentences as a padded tensor and their lengths, on the device of the model."""
        device = self._device
        source, lengths = sources([ids[: self.longest] for ids in encoded])
        return source.to(device), lengths.to(device)

    def _hypothesis(self, ids: list[int], target: str, length_penalty: float) -> Hypothesis:
        tokens = self.tokenizers.target.encode(target)
        self._check_length("translation", target, len(tokens))
        (hypothesis,) = forced.score(
            self.model,
            *self._padded([ids]),
            [tokens],
            length_penalty=length_penalty,
            recall=self.recall,
        )
        return hypothesis

    def _prefixes(self, texts: Sequence[str] | None) -> Prefixes | None:
        """Raises `ConfigurationError` for one that is longer than a translation may be."""
        if texts is None:
            return None
        prefixes = Prefixes.words(texts, self.tokenizers.target, self._device)
        if prefixes is not None:
            for text, pieces in zip(texts, prefixes.lengths.tolist(), strict=True):
                self._check_length("prefix", text, pieces)
        return prefixes

    def _check_length(self, role: str, text: str, pieces: int) -> None:
        if pieces > self.longest:
            raise ConfigurationError(
                f"{role} {text[:40]!r}... has {pieces} pieces: this model takes at most {self.longest}"
            )

    def _batches(
        self, encoded: list[list[int]], prefixes: Prefixes | None, positions: int
    ) -> Iterator[tuple[list[int], Prefixes | None]]:
        """Rows of like length together, apart from them those that have a prefix; empty sentences need no model."""
        bound = [0] * len(encoded) if prefixes is None else prefixes.lengths.sign().tolist()

        def fits(batch: list[int], row: int) -> bool:
            size = (len(batch) + 1) * (len(encoded[row]) + 1)
            return size <= positions and bound[row] == bound[batch[0]]

        rows = [row for row, ids in enumerate(encoded) if ids]
        rows.sort(key=lambda row: (bound[row], len(encoded[row])))
        for batch in list(grouped(rows, fits)):
            prefix = prefixes if bound[batch[0]] else None
            yield batch, prefix and prefix.select(torch.tensor(batch, device=self._device))

    def _links(
        self, encoded: list[list[int]], hypotheses: list[list[Hypothesis]], nbest: int
    ) -> Iterator[list[list[Link]] | None]:
        """The word links of the best hypotheses of each sentence."""
        if self.aligner is None:
            return repeat(None)
        source, target = self.tokenizers.source, self.tokenizers.target
        tags = len(source.prefix)
        pairs = []
        for ids, sentence_hypotheses in zip(encoded, hypotheses, strict=True):
            spans = word_spans(source.pieces(ids[tags:]))
            words = in_spans(ids, ((start + tags, stop + tags) for start, stop in spans))
            pairs += [
                (words, in_spans(hypothesis.tokens, target.words(hypothesis.tokens)))
                for hypothesis in sentence_hypotheses[:nbest]
            ]
        links = iter(self.aligner.links(pairs))
        return iter([[next(links) for _ in group[:nbest]] for group in hypotheses])

    def _origins(
        self, source: Tensor, lengths: Tensor, best: list[list[Hypothesis]]
    ) -> Iterator[list[dict[int, float]]]:
        """For each token of each sentence's best hypothesis, the stored sentences that it came from."""
        if self.recall is None or not self.origins:
            return repeat([])
        tokens_of_rows = [hypotheses[0].tokens for hypotheses in best]
        counts = [len(tokens) + 1 for tokens in tokens_of_rows]
        spans = self.recall.similar(source, lengths, counts)
        hidden, tokens = forced.states(self.model, source, lengths, tokens_of_rows)
        origins = iter(self.recall.origins(hidden, tokens, spans))
        return iter([list(islice(origins, count)) for count in counts])

    def _with_origins(
        self, candidate: Candidate, tokens: list[int], origins: list[dict[int, float]]
    ) -> Candidate:
        """A candidate whose words say which stored sentences they came from."""
        assert self.recall is not None
        words = []
        for word, span in zip(candidate.words, self.tokenizers.target.words(tokens), strict=True):
            sums: dict[int, float] = {}
            for piece in origins[slice(*span)]:
                for number, weight in piece.items():
                    sums[number] = sums.get(number, 0.0) + weight / (span[1] - span[0])
            ranked = sorted(sums.items(), key=lambda each: -each[1])[:_ORIGINS]
            named = (
                Origin(*self.recall.datastore.pair(number), weight) for number, weight in ranked
            )
            words.append(replace(word, origins=tuple(named)))
        return replace(candidate, words=words)

    def _translation(
        self,
        text: str,
        ids: list[int],
        hypotheses: list[Hypothesis],
        links: list[list[Link]] | None = None,
        unfinished: bool = False,
        origins: Sequence[dict[int, float]] = (),
        search: Search | None = None,
    ) -> Translation:
        """The translation of a text by the hypotheses of a `search`; without one, by a hypothesis that others wrote."""
        best, nbest = hypotheses[0], 1 if search is None else search.nbest
        texts = self.tokenizers.target.texts([hypothesis.tokens for hypothesis in hypotheses])
        compared = search is not None and search.beam > 1 and not search.sampling
        candidates = [
            _candidate(*candidate, self.tokenizers.target)
            for candidate in zip(hypotheses[:nbest], texts, links or repeat([]), strict=False)
        ]
        if origins:
            candidates[0] = self._with_origins(candidates[0], best.tokens, list(origins))
        looks: Looks = {}
        if self.looks:
            looks = forced.looks(self.model, *self._padded([ids]), [best.tokens])
        return translation_of(
            text,
            ids,
            self.longest,
            self.tokenizers,
            candidates,
            best.tokens,
            probabilities=torch.tensor(best.token_log_probabilities).exp().tolist(),
            looks=looks,
            unfinished=unfinished,
            agreement=agreement(texts[0], texts[1:]) if compared else None,
        )


def word_links(
    linking: Callable[[], Aligner] | None, pairs: Sequence[tuple[str, str]]
) -> list[WordLinks]:
    """The links of the words of sentences and translations, by the attention of a model, or else by their order."""
    words = [(normalised_words(source), normalised_words(target)) for source, target in pairs]
    with suppress(NoAttentionError):
        if linking is not None:
            return [
                WordLinks(
                    sorted(pair.links), pair.weights.argmax(0).tolist() if pair.target else []
                )
                for pair in linking().align(words)
            ]
    return [WordLinks.ordered(len(source), len(target)) for source, target in words]


def translation_of(
    text: str,
    ids: list[int],
    longest: int,
    tokenizers: Tokenizers,
    candidates: list[Candidate],
    target_ids: list[int],
    **fields: Any,
) -> Translation:
    """The translation of a text with these ids, of which `longest` are read; `target_ids` are the best candidate's."""
    source, cut = tokenizers.source, ids[:longest]
    pieces = source.pieces([*cut, EOS])
    return Translation(
        source=text,
        **vars(candidates[0]),
        source_pieces=pieces,
        target_pieces=tokenizers.target.pieces([*target_ids, EOS]),
        source_ids=cut,
        target_ids=list(target_ids),
        alternatives=candidates,
        cut=len(ids) - len(cut),
        unknown=source.unknown(text),
        unseen=[piece for piece in pieces if piece in tokenizers.unseen],
        repeats=loops(target_ids, cut[len(source.prefix) :]),  # tags are no words
        **fields,
    )


def _candidate(
    hypothesis: Hypothesis, text: str, links: list[Link], target: Tokenizer
) -> Candidate:
    """A hypothesis in words, with the links of these words to those of the source."""
    tokens, log_p = hypothesis.tokens, hypothesis.token_log_probabilities
    words = [
        Word(word, math.exp(math.fsum(log_p[slice(*span)])))
        for span, word in target.words(tokens).items()
    ]
    return Candidate(text, hypothesis.score, hypothesis.log_probability, words, links)
