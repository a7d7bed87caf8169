"""The translator for Python: open a model, translate, and look at its attention."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from regard.attention.torch_names import answers
from regard.errors import ModelError
from regard.translation import lines
from regard.translation.aligning.aligner import Aligner
from regard.translation.datastore import Datastore
from regard.translation.datastore.folder import fingerprint
from regard.translation.decoding.beam import Tree
from regard.translation.decoding.search import Search
from regard.translation.doubts import Doubts
from regard.translation.engines import SearchEngine, choose
from regard.translation.engines.engine import hooked
from regard.translation.engines.remembering import Recall, RememberingEngine
from regard.translation.models.ensemble import Ensemble
from regard.translation.models.protocol import TranslationModel
from regard.translation.opening import open_model
from regard.translation.results import Translation
from regard.translation.runs import Run, Tokenizers
from regard.translation.sentence_search import BATCH_TOKENS, SentenceSearch
from regard.translation.text import sentences
from regard.translation.text.corpora import Pair
from regard.translation.text.glossary import Glossary
from regard.translation.words import KnownWords

__all__ = ["Translation", "Translator"]


class Translator:
    """A trained model with its tokenizers.

    >>> translator = Translator.open("es-en")                      # doctest: +SKIP
    >>> translator.translate(["¿Dónde está el gato?"])[0].text     # doctest: +SKIP
    "Where's the cat?"

    Attributes:
        engine: it runs the model when this translates, chosen when the translator is made. `engine.name` is
            "compiled" or "layers", and `engine.reason` says why a faster one was not chosen. It packs weights
            once: after writing to weights, call `refresh`.
        recall: the memory that it reads beside the model (see `read_memory`).
        longest: the most pieces of a source that are read.
    """

    def __init__(self, run: Run, model: TranslationModel, tokenizers: Tokenizers) -> None:
        self.run = run
        self.model = model.eval()
        self.tokenizers = tokenizers
        self.engine = choose(self.model)
        self.recall: Recall | None = None
        self._words_known: KnownWords | None = None  # with those of the memory that is read
        self.longest = self.model.longest_source

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

        Several models are averaged word by word (see `models.ensemble`), with the search of the first one. `to` is
        the target language, for models with several. `shortlist` is deprecated and has no effect.

        Raises:
            ModelError: a model is missing or broken, or the models have different vocabularies.
            ConfigurationError: it does not translate into that language.
        """
        if shortlist:
            _warn("shortlist", "shortlists were removed")
        return cls(*open_model(names_or_folders, device, to))

    def refresh(
        self, *, rounded: bool | None = None, avoid_loops: str = "", loops_after: int = 0
    ) -> None:
        """Choose the engine anew, for the model as it is now.

        Call this after writing to weights, replacing layers, or moving the model. Layers with hooks need no
        call: while a model has hooks, or a watch is open, its own layers translate.

        Args:
            rounded: deprecated and without effect: the search computes in float32.
            avoid_loops: a reason not to load compiled loops; `engine.reason` repeats it.
            loops_after: sentences that the layers translate before compiled loops are loaded, which takes two seconds.
        """
        if rounded is not None:
            _warn("rounded", "the search computes in float32; CTranslate2 has int8")
        self.engine = choose(self.model, avoid_loops=avoid_loops, loops_after=loops_after)

    def datastore(self, folder: str | Path, *, write: bool = False) -> Datastore:
        """The folder of sentence pairs that this model has read, or is to read (see `remembering.remember`).

        Raises:
            ModelError: it is of another model, damaged, or this is no single model.
        """
        if isinstance(self.model, Ensemble):
            raise ModelError(f"{folder}: a memory is of one model, and these are several")
        return Datastore(folder, self._fingerprint, write=write)

    def read_memory(self, folder: str | Path, **changes: float) -> None:
        """Translate with the memory of a folder from now on, until `forget`.

        Args:
            folder: made by `regard remember` with this model.
            changes: of its settings (see `datastore.Mixing`).

        Raises:
            ModelError: it is of another model, damaged, or not there.
            ConfigurationError: a setting out of its range.
        """
        datastore = self.datastore(folder)
        try:
            mixing = datastore.mixing.changed(**changes)
            recall = Recall.of(datastore, mixing, self.tokenizers.source.decode)
            words = datastore.words
        except BaseException:
            datastore.close()
            raise
        self.forget()
        self.recall = recall
        self._words_known = self.words and self.words.knowing(*words)

    def forget(self) -> None:
        """Translate by the model alone."""
        if self.recall is not None:
            self.recall.datastore.close()
        self.recall = None

    @cached_property
    def _fingerprint(self) -> str:
        contents = list(self.tokenizers.files().values())
        return fingerprint(sorted(self.model.state_dict().items()), contents)

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
        return None if self.run.configuration.data.generated else self.source_language

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
        glossary: Glossary | Mapping[str, str] | None = None,
        origins: bool = False,
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
            glossary: terms, or the target of each source, which every translation writes so (see `text.glossary`).
            origins: name for each word the stored sentences that it came from (see `read_memory`).

        Raises:
            ConfigurationError: settings out of range, a prefix longer than a translation may be, a prefix and a
                glossary, or a tree of several sentences.
            DataError: a term of the glossary that cannot be used.
            ModelError: the model answers numbers that are not finite.
        """
        if search is None:
            search = self.search if beam is None else self.search.changed(beam=beam)
        if tree is not None:  # it has the nodes of one search
            search = search.as_written().changed(search_again=False)
        language = self.sentence_language
        if language is None:
            search = search.changed(numbers=False, spans=False)
        aligner = self._aligner if alignments else None
        return lines.translate(
            texts,
            self._sentence_search(
                batch_tokens=batch_tokens,
                looks=looks,
                aligner=aligner,
                seed=seed,
                tree=tree,
                origins=origins,
            ),
            search,
            words=self.words if self.recall is None else self._words_known,
            doubts=self.doubts,
            language=None if whole_lines or tree is not None else language,
            prefix=prefix,
            target_language=self.run.configuration.data.target_language,
            readable=self.tokenizers.readable,
            glossary=glossary,
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
        glossary: Glossary | Mapping[str, str] | None = None,
    ) -> Iterator[Translation]:
        """Translate an endless supply of lines in bounded memory, in their order (see `translate`)."""
        options: dict[str, Any] = {"search": search, "prefix": prefix, "batch_tokens": batch_tokens}
        options |= {"looks": looks, "alignments": alignments, "whole_lines": whole_lines}
        options["glossary"] = Glossary.of(glossary)
        return lines.stream(texts, partial(self.translate, **options), seed)

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
        divided = sentences.split(text, self.source_language if language is None else language)
        texts = [sentence.text for sentence in divided]
        translations = self.translate(
            texts, search=search, batch_tokens=batch_tokens, seed=seed, whole_lines=True
        )
        return sentences.join(divided, [translation.text for translation in translations])

    def look(self, text: str, target: str | None = None) -> Translation:
        """One line with every look, translated or as the translation `target` that is given.

        Raises:
            ConfigurationError: the translation given has more pieces than `longest`.
        """
        if target is None:
            # The attention that is shown belongs to the words that were given.
            return self.translate([text], search=self.search.as_written(), looks=True)[0]
        return self._sentence_search(looks=True).forced(text, target, self.search.length_penalty)

    def score(self, pairs: Sequence[Pair]) -> list[float]:
        """The log-probability over the length penalty that the model gives to translations of others.

        Raises:
            ConfigurationError: one of them has more pieces than `longest`.
        """
        sentence_search, penalty = self._sentence_search(), self.search.length_penalty
        return [sentence_search.score(pair.source, pair.target, penalty) for pair in pairs]

    def _sentence_search(self, **options: Any) -> SentenceSearch:
        # Compiled search calls no hooks: a model that has some now is run by its own layers.
        engine = SearchEngine(self.model) if hooked(self.model) else self.engine
        recall = self.recall if self.recall is not None and self.recall.adds else None
        if recall is not None:
            engine = RememberingEngine(engine, recall)
        return SentenceSearch(
            self.model,
            self.tokenizers,
            engine,
            self.longest,
            linking=self.aligner,
            recall=recall,
            **options,
        )

    def aligner(self) -> Aligner:
        """The model as an aligner of words, by the attention that `regard align` reads."""
        return self._aligner

    @cached_property
    def _aligner(self) -> Aligner:
        return Aligner.of(self.run, self.model, self.tokenizers)


def _warn(argument: str, reason: str) -> None:
    text = f"{argument} of Translator has no effect any more: {reason}: leave it out"
    warnings.warn(text, DeprecationWarning, stacklevel=3)
