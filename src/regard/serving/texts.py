"""Texts of a request, divided into sentences and joined after their translation; the details of each sentence."""

import io
import math
from collections.abc import Sequence
from itertools import islice
from typing import Any

from regard.translation import lines
from regard.translation.formats import FORMATS, Document, decode
from regard.translation.results import Translation
from regard.translation.text import sentences
from regard.translation.text.sentences import Sentence

PLAIN = "txt"


class Text:
    """A text of any number of sentences; all between them is kept."""

    def __init__(self, text: str, language: str | None) -> None:
        """A line end ends a sentence. With `language` None, each line is one."""
        lines_of_text = text.splitlines(keepends=True) or [""]
        divided = [sentence for line in lines_of_text for sentence in _divided(line, language)]
        self.text = text
        # What stands before a sentence goes to the end of the one before it: `lines.join` keeps that.
        self._before = divided[0].before
        following = [sentence.before for sentence in divided[1:]] + [""]
        self._sentences = [
            Sentence("", sentence.text, sentence.after + before)
            for sentence, before in zip(divided, following, strict=True)
        ]
        self.sources = [sentence.text for sentence in self._sentences if sentence.text]

    def candidates(self, translations: Sequence[Translation], count: int) -> list[str]:
        """At most `count` translations of the text, best first, from those of its `sources`."""
        supply = iter(translations)
        sentence_translations = [
            next(supply) if sentence.text else Translation(sentence.text)
            for sentence in self._sentences
        ]
        # `lines.join` gives a single one without the white space around it.
        if len(sentence_translations) == 1:
            single, space = sentence_translations[0], self._sentences[0].after
            texts = [each.text + space for each in single.alternatives] or [single.text + space]
        else:
            line = lines.join([self.text], [self._sentences], sentence_translations)[0]
            texts = [candidate.text for candidate in line.alternatives]
        return list(dict.fromkeys(self._before + text for text in texts))[:count]


def _divided(line: str, language: str | None) -> list[Sentence]:
    if language is not None:
        return sentences.split(line, language)
    content = line.rstrip("\r\n")
    return [Sentence("", content, line[len(content) :])]


class Texts:
    """One document of a request: plain text, or a file of a format, whose other content is kept."""

    def __init__(self, document: Document | str, language: str | None) -> None:
        self._document = document
        passages = [document] if isinstance(document, str) else document.texts
        self._texts = [Text(passage, language) for passage in passages]
        self.sources = [source for text in self._texts for source in text.sources]

    def candidates(self, translations: Sequence[Translation], count: int) -> list[str]:
        """At most `count` translations of the document, best first, from those of its `sources`."""
        supply = iter(translations)
        choices = [
            text.candidates(list(islice(supply, len(text.sources))), count) for text in self._texts
        ]
        if isinstance(self._document, str):
            return choices[0]
        ranks = range(max(map(len, choices), default=1))
        documents = [
            self._document.translated([texts[min(rank, len(texts) - 1)] for texts in choices])
            for rank in ranks
        ]
        return list(dict.fromkeys(documents))


def of_file(content: bytes, ending: str, name: str, language: str | None) -> Texts:
    """The texts of a file.

    Raises:
        DataError: it is broken, or not UTF-8; the sentence says where.
        ConfigurationError: a library of its format is not installed.
    """
    text = decode(io.BytesIO(content), name)
    return Texts(text if ending == PLAIN else FORMATS[ending](text, name), language)


def details(
    translations: Sequence[Translation], *, alignments: bool, confidence: bool, attention: bool
) -> list[dict[str, Any]]:
    """What a request wants to know of each sentence."""
    entries = []
    for translation in translations:
        entry: dict[str, Any] = {"source": translation.source, "translation": translation.text}
        if confidence:
            pieces = max(len(translation.target_pieces), 1)
            entry["confidence"] = round(math.exp(translation.log_probability / pieces), 4)
            entry["quality"] = translation.quality
            entry["words"] = [[word.text, round(word.confidence, 4)] for word in translation.words]
            entry["doubts"] = translation.doubts
        if translation.terms:
            entry["terms"] = translation.terms
        if alignments:
            entry["alignments"] = [list(link) for link in translation.alignment]
        if attention:
            entry["attention"] = _attention(translation)
        entries.append(entry)
    return entries


def _attention(translation: Translation) -> dict[str, Any]:
    """The mean over the heads of the last layer of the weights with which each target piece reads the source."""
    crossing = [name for name in translation.looks if name.endswith("cross")]
    rows = translation.looks[crossing[-1]].weights()[0].mean(0).tolist() if crossing else []
    return {
        "source": translation.source_pieces,
        "target": translation.target_pieces,
        "weights": [[round(weight, 4) for weight in row] for row in rows],
    }
