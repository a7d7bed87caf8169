"""Sentencepiece tokenizers: training on a corpus, checked loading, encoding and decoding."""

from __future__ import annotations

import copy
import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain, groupby, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Self

import sentencepiece

from regard.errors import ConfigurationError, DataError, ModelError, one_line
from regard.translation import checksums
from regard.translation.text import vocabulary
from regard.translation.text.normalisation import normalise

PAD, UNK, BOS, EOS = 0, 1, 2, 3
# Larger files are not tokenizers of ours.
_LARGEST_FILE = 64 * 2**20
# Characters that are always pieces: digits are rare in sentences and must be copied correctly.
_ALWAYS = "0123456789"
# Alphabets and syllabaries have some hundred characters at most; Chinese, Japanese and Korean texts have thousands.
_LARGEST_ALPHABET, _LARGE_SCRIPT_COVERAGE = 1000, 0.9995
# Sentencepiece leaves longer lines out.
_LONGEST_LINE = 16384
_BYTE = re.compile("<0x[0-9A-F]{2}>")


class Tokenizer:
    """Text to word ids and back (Kudo and Richardson 2018, arXiv 1808.06226).

    Ids 0 to 3 are padding, unknown, begin and end of sentence. Tags follow, if there are any: they mark a sentence,
    for example with the language to translate into. Text never becomes one of these ids: characters outside the
    vocabulary become bytes, and `<2fr>` in a text is five characters, not a tag.

    Attributes:
        tags: the id of each tag, by its name.
        prefix: the ids of the tags that every encoded text begins with.
    """

    tags: Mapping[str, int] = MappingProxyType({})
    prefix: tuple[int, ...] = ()

    def __init__(self, model: bytes, name: str = "tokenizer") -> None:
        self.model = model
        try:
            tags = vocabulary.check(model)
            self._pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
            self.tags = {tag: EOS + 1 + i for i, tag in enumerate(tags)}
        except (RuntimeError, ValueError, IndexError) as fault:
            raise ModelError(
                f"{name}: not a usable sentencepiece model: {one_line(fault, 300)}"
            ) from None

    @classmethod
    def open(cls, path: Path, checksum: str | None = None) -> Tokenizer:
        """The tokenizer of a file. Raises `ModelError` naming the file when it cannot be used."""
        return cls(checksums.content(path, checksum, _LARGEST_FILE), str(path))

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        *,
        vocabulary_size: int,
        kind: Literal["unigram", "bpe"] = "unigram",
        character_coverage: float | Literal["auto"] = "auto",
        seed: int = 1,
        tags: Sequence[str] = (),
    ) -> Tokenizer:
        """Learn the pieces of normalised lines. The vocabulary is smaller than asked for where the text is small.

        Args:
            vocabulary_size: the number of pieces, with the four special ones, the tags and the 256 bytes.
            kind: the algorithm that chooses pieces.
            character_coverage: the part of the text, 0.98 to 1, whose characters become pieces; the others are
                written as bytes. "auto" is 1 for alphabets, 0.9995 for texts of more than 1,000 characters.
            seed: of the random numbers that sentencepiece draws.

        Raises:
            ConfigurationError: the vocabulary is too small for the characters of the text.
            DataError: every line is empty or too long.
        """
        usable = [line for line in lines if line and len(line.encode()) <= _LONGEST_LINE]
        if not usable:
            raise DataError(
                "no tokenizer can be learnt: every line of the text is empty or longer than "
                f"{_LONGEST_LINE:,} bytes"
            )
        if character_coverage == "auto":
            # A rare letter costs one piece. Thousands of rare ideographs would fill the vocabulary.
            characters = len(set(chain.from_iterable(usable)))
            character_coverage = 1.0 if characters <= _LARGEST_ALPHABET else _LARGE_SCRIPT_COVERAGE
        model = io.BytesIO()
        sentencepiece.set_random_generator_seed(seed % 2**31)  # a C int
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(usable),
                model_writer=model,
                vocab_size=vocabulary_size,
                model_type=kind,
                character_coverage=character_coverage,
                required_chars=_ALWAYS,
                control_symbols=[f"<{tag}>" for tag in tags],
                byte_fallback=True,
                hard_vocab_limit=False,
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                pad_id=PAD,
                unk_id=UNK,
                bos_id=BOS,
                eos_id=EOS,
                num_threads=1,  # counts are summed in one order: the same text gives the same file
                max_sentence_length=_LONGEST_LINE,
                minloglevel=2,
            )
        except RuntimeError as fault:
            _check_size(vocabulary_size, str(fault), EOS + 1 + len(tags))
            raise DataError(
                f"no tokenizer of {vocabulary_size} pieces can be learnt from this text: {one_line(fault, 300)}"
            ) from None
        return cls(model.getvalue())

    def left_out(self, lines: Iterable[str]) -> list[str]:
        """The characters of normalised lines that are not pieces, the most frequent first; they become bytes.

        >>> learnt = Tokenizer.train(["a cat"], vocabulary_size=300)
        >>> learnt.left_out(["a dog", "a god"])
        ['d', 'o', 'g']
        """
        counts = Counter(chain.from_iterable(lines)).most_common()
        return [each for each, _ in counts if each != " " and not self._knows(each)]

    def characters(self, unseen: Set[str] = frozenset()) -> frozenset[str]:
        """The characters of all pieces of text but the unseen ones."""
        special = EOS + 1 + len(self.tags)
        pieces = self.pieces(range(special, len(self)))
        return frozenset("".join(p for p in pieces if p not in unseen and not _BYTE.fullmatch(p)))

    def __len__(self) -> int:
        return int(self._pieces.get_piece_size())

    def tagged(self, tags: Sequence[str]) -> Self:
        """The same tokenizer with tags: their ids come before those of the text.

        >>> learnt = Tokenizer.train(["a cat"], vocabulary_size=300, tags=["2fr", "bt"])
        >>> french = learnt.tagged(["2fr"])
        >>> french.pieces(french.encode("a cat"))[0], french.decode(french.encode("a cat"))
        ('<2fr>', 'a cat')

        Raises:
            ConfigurationError: it has no such tag.
        """
        for tag in set(tags) - self.tags.keys():
            names = ", ".join(self.tags) or "none"
            raise ConfigurationError(f"tag {tag}: not in this tokenizer, whose tags are {names}")
        tagged = copy.copy(self)
        tagged.prefix = tuple(self.tags[tag] for tag in tags)
        return tagged

    def encode(self, text: str) -> list[int]:
        """The ids of the tags and of the best segmentation of a text, without begin and end; none for an empty text."""
        ids = list(self._pieces.encode(normalise(text)))
        return [*self.prefix, *ids] if ids else ids

    def starts(self, text: str) -> list[int]:
        """For each piece of a normalised text the character at which it begins; tags are left out."""
        answer = self._pieces.encode(text, return_type="offset_mapping")
        return [start for start, _ in answer["offsets"]]

    def segmentations(self, word: str, count: int) -> list[tuple[list[int], float]]:
        """The best segmentations of one word with their log-probabilities, best first."""
        candidates = self._pieces.nbest_encode(word, nbest_size=count)
        return [(ids, sum(self._pieces.get_score(i) for i in ids)) for ids in candidates]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; special ids are left out."""
        return self.texts([ids])[0]

    def texts(self, sequences: Iterable[Sequence[int]]) -> list[str]:
        """The text of each of several sequences of ids."""
        return list(map(normalise, [self._text(ids) for ids in sequences]))

    def _text(self, ids: Sequence[int]) -> str:
        size, special = len(self), EOS + len(self.tags)
        return str(self._pieces.decode([int(i) for i in ids if special < i < size]))

    def words(self, ids: Sequence[int]) -> dict[tuple[int, int], str]:
        """The range [start, stop) of pieces of each word, with its text; pieces without text are no word."""
        pieces, special = self.pieces(ids), EOS + len(self.tags)
        words = {}
        for start, stop in word_spans(pieces):
            text = "".join(pieces[start:stop]).replace("▁", " ")
            if "<0x" in text or min(ids[start:stop]) <= special:  # sentencepiece knows bytes
                text = self._text(ids[start:stop])
            if text := normalise(text):
                words[start, stop] = text
        return words

    def unknown(self, text: str) -> list[str]:
        """The parts of a text that are in no piece, in their order; most are single characters.

        They are encoded as bytes, or as the unknown piece where a foreign tokenizer has no bytes.

        >>> Tokenizer.train(["a cat"], vocabulary_size=300).unknown("a báté")
        ['b', 'á', 'é']
        """
        text = normalise(text)
        ids = self._pieces.encode(text)
        if UNK not in ids and not any(map(self._pieces.is_byte, ids)):
            return []
        texts: list[str] = []
        cut = self._cut(text)
        for are_bytes, run in groupby(cut, key=lambda name: bool(_BYTE.fullmatch(name))):
            if are_bytes:
                texts += bytes(int(name[3:5], 16) for name in run).decode("utf-8", "replace")
            else:
                texts += [name.strip("▁") for name in run if not self._knows(name)]
        return [text for text in texts if text]

    def _cut(self, text: str) -> list[str]:
        """The pieces of a normalised text; unknown parts stand as their text."""
        return list(self._pieces.encode(text, out_type=str))

    def _knows(self, name: str) -> bool:
        return bool(self._pieces.piece_to_id(name) != UNK)

    def is_text(self, id: int) -> bool:
        """Whether an id stands for text: it is not special, not a tag and not a byte."""
        return EOS + len(self.tags) < id < len(self) and not self._pieces.is_byte(id)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces behind ids, as sentencepiece writes them (U+2581 begins a word)."""
        return [self._pieces.id_to_piece(int(i)) for i in ids]


def word_spans(pieces: Sequence[str]) -> list[tuple[int, int]]:
    """The range [start, stop) of pieces that each word takes; U+2581 begins one, alone it belongs to the next.

    >>> word_spans(["▁the", "▁cat", "s", "▁", "é"])
    [(0, 1), (1, 3), (3, 5)]
    """
    starts = [place for place, piece in enumerate(pieces) if place == 0 or piece.startswith("▁")]
    return list(pairwise([*starts, len(pieces)]))


def _check_size(size: int, fault: str, special: int) -> None:
    """Raise `ConfigurationError` where sentencepiece found the vocabulary too small for the characters of a text."""
    match = re.search(r"smaller than required_chars\. \d+ vs (\d+)", fault)
    if match is not None:
        raise ConfigurationError(
            f"tokenizer.vocabulary_size = {size}: this text needs at least {match[1]} pieces "
            f"({special} special ones, 256 bytes, {int(match[1]) - special - 256} characters): "
            "raise it, or lower tokenizer.character_coverage"
        )
