"""A forced beginning: translations that start with words the caller chose."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.errors import ConfigurationError
from regard.translation.text.normalisation import normalise
from regard.translation.text.tokenizer import BOS, EOS, PAD, Tokenizer

# What each beginning of each sentence has written, and the log-probabilities of its next words.
Written = Int[Tensor, "batch hypotheses tokens"]
LogP = Float[Tensor, "batch hypotheses vocabulary"]

_NEVER = float("-inf")
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
# Between letters these are part of a word: the cat's, well-known.
_JOINERS = ("'", "’", "-", "‐", "‑")
# Scripts that put no spaces between words: there a piece that follows is as good as a new word.
_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")


@dataclass(frozen=True)
class Prefixes:
    """How the translations of a batch must begin.

    Attributes:
        tokens: the ids that each must begin with, padded.
        complete: whose last word is complete, so that the next piece may not go on with it.
        inside: the pieces that would go on with a word; None where no word is to be protected.

    >>> Prefixes.of([[7, 8], [9]], torch.device("cpu")).lengths.tolist()
    [2, 1]
    """

    tokens: Int[Tensor, "batch tokens"]
    complete: Bool[Tensor, " batch"]
    inside: Bool[Tensor, " vocabulary"] | None = None

    @classmethod
    def of(cls, prefixes: Sequence[Sequence[int]], device: torch.device) -> Self:
        """Any ids; any word may follow them.

        Raises:
            ConfigurationError: padding, a beginning or an end of sentence among the ids.
        """
        if any(token in (PAD, BOS, EOS) for tokens in prefixes for token in tokens):
            raise ConfigurationError(
                "a prefix has the id of padding or of a sentence's beginning or end: leave it out"
            )
        width = max(map(len, prefixes), default=0)
        table = [[*tokens, *[PAD] * (width - len(tokens))] for tokens in prefixes]
        tokens = torch.tensor(table, dtype=torch.int64, device=device).view(len(prefixes), width)
        return cls(tokens, torch.zeros(len(prefixes), dtype=torch.bool, device=device))

    @classmethod
    def words(
        cls, texts: Sequence[str], tokenizer: Tokenizer, device: torch.device
    ) -> Prefixes | None:
        """Whole words: "The cat" continues as "The cat sleeps" or "The cat.", not as "The cats" or "The cat's".

        Pieces never reach over a space, so the pieces of the words are those that they have at the
        beginning of any longer text. An empty text forces nothing.
        """
        prefixes = cls.of([tokenizer.encode(text) for text in texts], device)
        if not prefixes.tokens.numel():
            return None
        complete = torch.tensor(list(map(ends_in_word, texts)), device=device)
        return cls(prefixes.tokens, complete, inside_words(tokenizer, device))

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        return (self.tokens != PAD).sum(1)

    def select(self, sentences: Int[Tensor, " kept"]) -> Prefixes:
        return Prefixes(self.tokens[sentences], self.complete[sentences], self.inside)

    def restrict(self, log_p: LogP, count: int) -> LogP:
        """Set what may not follow `count` tokens to -inf, in place; the rest keeps its value.

        Raises:
            ConfigurationError: a token that the model does not know.
        """
        if count < self.tokens.shape[1]:
            largest, vocabulary = int(self.tokens.max()), log_p.shape[-1]
            if largest >= vocabulary:
                raise ConfigurationError(
                    f"a prefix has id {largest}: this model knows 0 to {vocabulary - 1}"
                )
            required = self.tokens[:, count]
            bound = (required != PAD).nonzero().flatten()
            log_p_required = log_p[bound, :, required[bound]]
            log_p[bound] = _NEVER
            log_p[bound, :, required[bound]] = log_p_required
        if self.inside is not None:
            ends = self.complete & (self.lengths == count)
            log_p.masked_fill_(ends[:, None, None] & self.inside, _NEVER)
        return log_p


def ends_in_word(text: str) -> bool:
    """Whether a letter that followed a text at once would belong to its last word."""
    character = normalise(text)[-1:]
    return _of_a_word(character) and not unicodedata.name(character, "").startswith(_UNSPACED)


@lru_cache(maxsize=4)
def inside_words(tokenizer: Tokenizer, device: torch.device) -> Bool[Tensor, " vocabulary"]:
    """Which pieces, written right after a word, would go on with it."""
    pieces = tokenizer.pieces(range(len(tokenizer)))
    inside = torch.tensor([goes_on(piece) for piece in pieces], device=device)
    inside[[PAD, BOS, EOS]] = False
    return inside


def goes_on(piece: str) -> bool:
    """Whether a piece, written right after a word, would go on with it."""
    byte = _BYTE.fullmatch(piece)
    if byte:
        number = int(byte[1], 16)
        return number >= 128 or goes_on(chr(number))  # bytes above 127 may become any letter
    return _of_a_word(piece[:1]) or piece[:1] in _JOINERS


def _of_a_word(character: str) -> bool:
    """Letters, digits and the marks upon them."""
    return character != "" and unicodedata.category(character)[0] in "LNM"
