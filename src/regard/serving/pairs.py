"""The models of a server of translations, by their languages; and which of these languages a text is in."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from regard.errors import ConfigurationError, ModelError
from regard.serving.errors import Refused
from regard.translation.opening import find
from regard.translation.runs import Run
from regard.translation.text.trigrams import Language, Trigrams, words
from regard.translation.translator import Translator

AUTO = "auto"
_NAMES = {
    "ca": "Catalan",
    "cs": "Czech",
    "de": "German",
    "en": "English",
    "es": "Spanish",
    "fr": "French",
    "it": "Italian",
    "nl": "Dutch",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
}
# Trigrams of a word overlap: three of them say about as much as one independent sign.
_OVERLAP = 3


class Pair(NamedTuple):
    """A source and a target language."""

    source: str
    target: str


class Guess(NamedTuple):
    """A language that a text may be in, and how probable that is, in percent."""

    language: str
    confidence: float


class Pairs:
    """Translators by their pair of languages, opened when the server starts. No request opens another one."""

    def __init__(
        self,
        folders: Sequence[str | Path],
        device: str = "cpu",
        memories: Sequence[str | Path] = (),
    ) -> None:
        """Open bundled models by name, or run folders, and memories that these made.

        Raises:
            ModelError: one of them is missing or broken, or none of the models made a memory.
            ConfigurationError: two of them have the same pair of languages.
        """
        self.translators: dict[Pair, Translator] = {}
        self._languages: dict[str, Language] = {}
        self._trigrams: dict[str, Trigrams] = {}
        origins: dict[Pair, str | Path] = {}
        for folder in folders:
            data = Run.open(find(folder)).configuration.data
            multilingual = len(data.target_languages) > 1
            for target in data.target_languages:
                translator = Translator.open(folder, device, target if multilingual else None)
                for source in data.source_languages:
                    pair = Pair(source, target)
                    if pair in origins:
                        raise ConfigurationError(
                            f"{folder}: translates {source} to {target}, as {origins[pair]} does: name one of them"
                        )
                    origins[pair] = folder
                    self.translators[pair] = translator
                self._note(translator, data.source_language, target)
        for memory in memories:
            self._read_memory(memory)

    def _read_memory(self, memory: str | Path) -> None:
        faults = []
        for translator in self.translators.values():
            try:
                translator.read_memory(memory)
                return
            except ModelError as fault:
                faults.append(fault)
        raise faults[0]

    @property
    def _codes(self) -> set[str]:
        return {code for pair in self.translators for code in pair}

    def _note(self, translator: Translator, source: str, target: str) -> None:
        """Keep what the model's folder says about its two languages."""
        language = translator.doubts and translator.doubts.language
        if language:
            self._languages.setdefault(source, language)
            self._trigrams[source] = language.source
            self._trigrams.setdefault(target, language.target)

    @property
    def languages(self) -> list[dict[str, object]]:
        """The languages in the form of the API: code, name and the codes that each is translated into."""
        return [
            {
                "code": code,
                "name": _NAMES.get(code, code),
                "targets": sorted(pair.target for pair in self.translators if pair.source == code),
            }
            for code in sorted(self._codes)
        ]

    def pair(self, source: str, target: str) -> Pair:
        """The pair of two codes.

        Raises:
            Refused: no model translates it; the sentence lists the pairs.
        """
        pair = Pair(source, target)
        if pair in self.translators or (source == target and source in self._codes):
            return pair
        pairs = ", ".join(f"{each.source} to {each.target}" for each in self.translators)
        raise Refused(400, f"{source[:20]} to {target[:20]} is not supported: there is {pairs}")

    def source_of(self, texts: Iterable[str], target: str) -> Guess:
        """The language of texts, among those that are translated into `target`."""
        sources = {pair.source for pair in self.translators if pair.target == target} | {target}
        return self.detect(" ".join(texts), sources)[0]

    def detect(self, text: str, among: Iterable[str] | None = None) -> list[Guess]:
        """The languages that a text may be in, most probable first, by the trigrams of its letters.

        Only languages of the models are known: of a text in another language, the nearest one gets confidence 0.
        """
        codes = sorted(among or self._codes)
        codes = [code for code in codes if code in self._trigrams] or codes
        spelt = words(text)[:1000]
        bits = {code: self._bits(code, spelt) for code in codes}
        smallest = min(bits.values())
        shares = {code: 2 ** ((smallest - cost) / _OVERLAP) for code, cost in bits.items()}
        total = math.fsum(shares.values())
        guesses = [
            Guess(code, round(100 * share / total, 1) * self._plausible(code, text))
            for code, share in sorted(shares.items(), key=lambda item: (-item[1], item[0]))
        ]
        return guesses if spelt else [guess._replace(confidence=0.0) for guess in guesses]

    def _bits(self, code: str, spelt: Sequence[str]) -> float:
        trigrams = self._trigrams.get(code)
        if trigrams is None:
            return 0.0
        return math.fsum(trigrams.cost(word) * len(word) for word in spelt)

    def _plausible(self, code: str, text: str) -> bool:
        language = self._languages.get(code)
        return language is None or not any(language.reasons(text[:10_000]))
