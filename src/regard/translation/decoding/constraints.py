"""Words that a translation must contain, written by the beam search where they cost least.

Post and Vilar 2018 (arXiv 1804.06609): beginnings are compared with those that have as many tokens of constraints, and
the places of the beam are shared among these banks. Places go to the banks in turn, as in Hu et al. 2019 ("Improved
Lexically Constrained Decoding for Translation and Monolingual Rewriting").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.translation.decoding.prefix import LogP, Written, ends_in_word, inside_words
from regard.translation.models.protocol import Logits
from regard.translation.text.tokenizer import EOS, Tokenizer

_NEVER = float("-inf")


class Constraint(NamedTuple):
    """Tokens that follow one another in a translation; `ends_word`: no piece may go on with the last word."""

    tokens: tuple[int, ...]
    ends_word: bool = False


class Progress(NamedTuple):
    """How far a beginning is with its constraints.

    Attributes:
        missing: the constraints that it does not have.
        matched: the tokens at its end that one of these begins with. Where they are all of one, that is complete
            unless the next token makes them the beginning of a longer one.

    >>> cat = Constraint((7, 8))
    >>> [reduce(Progress.followed_by, tokens, Progress((cat,))).needed for tokens in ([7], [7, 7, 8], [7, 8, 9])]
    [1, 0, 0]
    """

    missing: tuple[Constraint, ...]
    matched: tuple[int, ...] = ()

    @property
    def complete(self) -> Constraint | None:
        """The constraint whose tokens are all at the end."""
        return next((each for each in self.missing if each.tokens == self.matched), None)

    @property
    def needed(self) -> int:
        """How many tokens of constraints must follow."""
        return sum(len(each.tokens) for each in self.missing) - len(self.matched)

    def continued(self) -> set[int]:
        """The tokens that a constraint continues with, or begins with where none is incomplete."""
        size, constraints = len(self.matched), list(self.missing)
        tokens = {
            each.tokens[size]
            for each in constraints
            if each.tokens[:size] == self.matched and len(each.tokens) > size
        }
        if self.complete is not None:
            constraints.remove(self.complete)
            tokens.update(each.tokens[0] for each in constraints)
        return tokens

    def followed_by(self, token: int) -> Progress:
        """That of the beginning with one more token."""
        if not self.missing:
            return self
        longer = (*self.matched, token)
        if any(each.tokens[: len(longer)] == longer for each in self.missing):
            return Progress(self.missing, longer)
        if not self.matched:
            return self
        missing, tokens = list(self.missing), longer[1:]
        if self.complete is not None:
            missing.remove(self.complete)
            tokens = (token,)
        return reduce(Progress.followed_by, tokens, Progress(tuple(missing)))


@dataclass(frozen=True)
class Constraints:
    """What each translation of a batch must contain.

    Attributes:
        sentences: the constraints of each.
        inside: the pieces that would go on with a word; None where no word is to be protected.
    """

    sentences: tuple[tuple[Constraint, ...], ...]
    inside: Bool[Tensor, " vocabulary"] | None = None

    @classmethod
    def of(cls, sentences: Sequence[Sequence[Sequence[int]]]) -> Self:
        """Any ids."""
        return cls(
            tuple(tuple(Constraint(tuple(ids)) for ids in each if ids) for each in sentences)
        )

    @classmethod
    def words(
        cls,
        sentences: Sequence[Sequence[str]],
        longest: Sequence[int],
        tokenizer: Tokenizer,
        device: torch.device,
    ) -> Constraints | None:
        """Whole words (see `Prefixes.words`), of sentences whose translations have room for them; None for none."""
        if not any(sentences):
            return None
        constraints = [
            tuple(Constraint(tuple(tokenizer.encode(text)), ends_in_word(text)) for text in texts)
            for texts in sentences
        ]
        fitting = (
            sentence if Progress(sentence).needed <= most else ()
            for sentence, most in zip(constraints, longest, strict=True)
        )
        return cls(tuple(fitting), inside_words(tokenizer, device))

    @property
    def lengths(self) -> list[int]:
        """How many tokens the constraints of each sentence have."""
        return [Progress(constraints).needed for constraints in self.sentences]

    def select(self, rows: Int[Tensor, " kept"]) -> Constraints:
        return replace(self, sentences=tuple(self.sentences[row] for row in rows.tolist()))

    def progress(self, tokens: Written) -> list[list[Progress]]:
        """That of each beginning of each sentence."""
        return [
            [
                reduce(Progress.followed_by, beginning, Progress(constraints))
                for beginning in beginnings
            ]
            for constraints, beginnings in zip(self.sentences, tokens.tolist(), strict=True)
        ]

    def restrict(self, log_p: LogP, tokens: Written) -> LogP:
        """Set the end of beginnings without all constraints, and what would change a last word, to -inf, in place."""
        for row, beginnings in enumerate(self.progress(tokens)):
            for column, progress in enumerate(beginnings):
                if progress.needed:
                    log_p[row, column, EOS] = _NEVER
                complete = progress.complete
                if complete is not None and complete.ends_word and self.inside is not None:
                    log_p[row, column, self.inside] = _NEVER
        return log_p

    def with_continuations(
        self,
        best: Float[Tensor, "places few"],
        words: Int[Tensor, "places few"],
        logits: Logits,
        rows: Sequence[int | None],
        progress: Sequence[Progress],
    ) -> tuple[Float[Tensor, "places more"], Int[Tensor, "places more"]]:
        """The best words after each beginning, and the tokens that its constraints continue with.

        Args:
            best, words: log-probabilities and the words.
            logits: of some beginnings.
            rows: that of each beginning; None for those that nothing may follow.
            progress: of each beginning.
        """
        usable_words = words.masked_fill(best == _NEVER, EOS).tolist()
        tokens = [
            [] if row is None else sorted(each.continued().difference(usable))
            for each, row, usable in zip(progress, rows, usable_words, strict=True)
        ]
        shape = len(tokens), max(map(len, tokens))
        log_p, ids = best.new_full(shape, _NEVER), words.new_full(shape, EOS)
        for place, (row, place_tokens) in enumerate(zip(rows, tokens, strict=True)):
            if place_tokens:
                ids[place, : len(place_tokens)] = words.new_tensor(place_tokens)
                log_p[place, : len(place_tokens)] = logits[row, place_tokens] - logits[
                    row
                ].logsumexp(0)
        return torch.cat([best, log_p], 1), torch.cat([words, ids], 1)


def in_turn(
    order: Sequence[int],
    totals: Sequence[float],
    words: Sequence[int],
    parents: Sequence[Progress],
    choices: int,
) -> list[int]:
    """Candidates of a sentence, the best of each bank before the second-best of any; fewest tokens needed before more.

    Args:
        order: the candidates, best first.
        totals, words: the log-probability and the last token of each; -inf for none.
        parents: the progress of the beginnings, which have `choices` candidates each.
    """
    ranks = Counter[int]()
    turns = {}
    for candidate in order:
        needed = parents[candidate // choices].followed_by(words[candidate]).needed
        is_none = totals[candidate] == _NEVER
        turns[candidate] = is_none, ranks[needed], needed
        ranks[needed] += 1
    return sorted(order, key=turns.__getitem__)
