"""Words that a translation must contain, written by the beam search where they cost least.

Post and Vilar 2018 (arXiv 1804.06609): beginnings are compared with those that have as many tokens of constraints, and
the places of the beam are shared among these banks. Places go to the banks in turn, as in Hu et al. 2019 ("Improved
Lexically Constrained Decoding for Translation and Monolingual Rewriting").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import NamedTuple, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.translation.decoding.prefix import LogP, Written, ends_in_word, inside_words
from regard.translation.models.protocol import Logits
from regard.translation.text.tokenizer import EOS, Tokenizer

# Of a beginning that are kept: more are only of constraints that overlap in many ways.
PLACEMENTS = 64
_NEVER = float("-inf")


class Constraint(NamedTuple):
    """Tokens that follow one another in a translation, and the pieces that would go on with their last word."""

    tokens: tuple[int, ...]
    barred: frozenset[int] = frozenset()


class Placement(NamedTuple):
    """Constraints at places of a beginning that share no token.

    Attributes:
        missing: the constraints that have no place.
        current: the one at the end; None where the next token may begin any.
        length: how many of its tokens are written. A complete one keeps its place if the next token is not barred.
    """

    missing: tuple[Constraint, ...]
    current: Constraint | None = None
    length: int = 0

    @property
    def pending(self) -> tuple[int, ...]:
        """The tokens that the constraint at the end has left."""
        return () if self.current is None else self.current.tokens[self.length :]

    @property
    def barred(self) -> frozenset[int]:
        """The tokens that would take its place from the constraint at the end."""
        return frozenset() if self.current is None or self.pending else self.current.barred

    @property
    def needed(self) -> int:
        """How many tokens of constraints must follow."""
        return len(self.pending) + sum(len(each.tokens) for each in self.missing)

    def continued(self) -> set[int]:
        """The tokens that leave fewer."""
        return set(self.pending[:1]) or {each.tokens[0] for each in self.missing} - self.barred

    def followed_by(self, token: int) -> Iterator[Placement]:
        """Those of the beginning with one more token."""
        if self.current is not None and self.pending:
            if token == self.pending[0]:
                yield Placement._at_end(self.missing, self.current, self.length + 1)
        elif token not in self.barred:
            yield Placement(self.missing)
            for constraint in set(self.missing):
                if token == constraint.tokens[0]:
                    missing = list(self.missing)
                    missing.remove(constraint)
                    yield Placement._at_end(tuple(missing), constraint, 1)

    @classmethod
    def _at_end(
        cls, missing: tuple[Constraint, ...], constraint: Constraint, length: int
    ) -> Placement:
        """With `length` tokens of a constraint at the end. One whose place is sure is not current any more."""
        is_sure = length == len(constraint.tokens) and not constraint.barred
        return cls(missing) if is_sure else cls(missing, constraint, length)

    def serves_for(self, rival: Placement) -> bool:
        """Whether all that can follow with the rival can follow with this one."""
        is_as_far = self.current is None or self[1:] == rival[1:]
        return is_as_far and Counter(self.missing) <= Counter(rival.missing)


class Alphabet:
    """The tokens that an automaton tells apart, and the states that were reached.

    All other tokens are alike where the same constraints bar them.
    """

    def __init__(self, constraints: Collection[Constraint]) -> None:
        self._tokens = {token for each in constraints for token in each.tokens}
        self._barred = {each.barred for each in constraints}
        self.states: dict[frozenset[Placement], Progress] = {}

    def letter(self, token: int) -> int | frozenset[frozenset[int]]:
        """The same for tokens that are alike."""
        if token in self._tokens:
            return token
        return frozenset([barred for barred in self._barred if token in barred])


class Progress:
    """How far a beginning is with its constraints: a state of the automaton that reads its tokens.

    The states, made when they are reached, are sets of placements. So a constraint counts wherever it stands: also
    where it begins, or is inside of, another one that is not completed.

    Attributes:
        placements: without those that others serve for.
        needed: how many tokens of constraints must follow.

    >>> cat, flap = Constraint((7, 8)), Constraint((7, 8, 9, 5))
    >>> [Progress.of([cat, flap]).after(tokens).needed for tokens in ([7], [7, 8, 9], [7, 8, 9, 9], [7, 8, 9, 5])]
    [5, 3, 4, 2]
    """

    def __init__(self, placements: frozenset[Placement], alphabet: Alphabet) -> None:
        self.placements = placements
        self.needed = min(each.needed for each in placements)
        self._alphabet = alphabet
        self._following: dict[int | frozenset[frozenset[int]], Progress] = {}

    @classmethod
    def of(cls, constraints: Iterable[Constraint]) -> Self:
        """That of an empty beginning."""
        missing = tuple(each for each in constraints if each.tokens)
        return cls(frozenset([Placement(missing)]), Alphabet(missing))

    def followed_by(self, token: int) -> Progress:
        """That of the beginning with one more token."""
        letter = self._alphabet.letter(token)
        following = self._following.get(letter)
        if following is None:
            placements = _best({new for each in self.placements for new in each.followed_by(token)})
            states = self._alphabet.states
            following = states.setdefault(placements, Progress(placements, self._alphabet))
            self._following[letter] = following
        return following

    def after(self, tokens: Iterable[int]) -> Progress:
        """That of the beginning with more tokens."""
        return reduce(Progress.followed_by, tokens, self)

    @cached_property
    def nearest(self) -> list[Placement]:
        """The placements that need fewest tokens."""
        return [each for each in self.placements if each.needed == self.needed]

    @cached_property
    def continued(self) -> frozenset[int]:
        """The tokens that leave fewer."""
        return frozenset().union(*(each.continued() for each in self.nearest))

    @cached_property
    def is_word(self) -> bool:
        """Whether `needed` counts a constraint at the end whose last word must not go on."""
        return any(each.barred for each in self.nearest)


def _best(placements: set[Placement]) -> frozenset[Placement]:
    """Those that no other one serves for; at most `PLACEMENTS`, and one that the next token may follow in any case."""
    best = [
        each
        for each in placements
        if not any(rival.serves_for(each) for rival in placements if rival != each)
    ]
    best.sort(key=lambda each: (each.needed, each.length, each.pending, each.missing))
    return frozenset([*best[:PLACEMENTS], next(each for each in best if each.current is None)])


@dataclass(frozen=True)
class Constraints:
    """What each translation of a batch must contain.

    Attributes:
        sentences: for each, the progress of an empty beginning.
        inside: the pieces that would go on with a word; None where no word is to be protected.
    """

    sentences: tuple[Progress, ...]
    inside: Bool[Tensor, " vocabulary"] | None = None

    @classmethod
    def of(cls, sentences: Sequence[Sequence[Sequence[int]]]) -> Self:
        """Any ids."""
        return cls(tuple(Progress.of(Constraint(tuple(ids)) for ids in each) for each in sentences))

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
        inside, nothing = inside_words(tokenizer, device), frozenset[int]()
        barred = frozenset(inside.nonzero().flatten().tolist())
        constraints = [
            Progress.of(
                Constraint(tuple(tokenizer.encode(text)), barred if ends_in_word(text) else nothing)
                for text in texts
            )
            for texts in sentences
        ]
        fitting = (
            sentence if sentence.needed <= most else Progress.of([])
            for sentence, most in zip(constraints, longest, strict=True)
        )
        return cls(tuple(fitting), inside)

    @property
    def lengths(self) -> list[int]:
        """How many tokens the constraints of each sentence have."""
        return [sentence.needed for sentence in self.sentences]

    def select(self, rows: Int[Tensor, " kept"]) -> Constraints:
        return replace(self, sentences=tuple(self.sentences[row] for row in rows.tolist()))

    def progress(self, tokens: Written) -> list[list[Progress]]:
        """That of each beginning of each sentence."""
        return [
            [sentence.after(beginning) for beginning in beginnings]
            for sentence, beginnings in zip(self.sentences, tokens.tolist(), strict=True)
        ]

    def restrict(self, log_p: LogP, tokens: Written) -> LogP:
        """Set the end of beginnings without all constraints, and what would change a last word, to -inf, in place.

        A piece that continues another constraint may change it.
        """
        for row, beginnings in enumerate(self.progress(tokens)):
            for column, progress in enumerate(beginnings):
                if progress.needed:
                    log_p[row, column, EOS] = _NEVER
                if progress.is_word and self.inside is not None:
                    continued = list(progress.continued)
                    log_p_continued = log_p[row, column, continued]
                    log_p[row, column, self.inside] = _NEVER
                    log_p[row, column, continued] = log_p_continued
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
            [] if row is None else sorted(each.continued.difference(usable))
            for each, row, usable in zip(progress, rows, usable_words, strict=True)
        ]
        shape = len(tokens), max(map(len, tokens))
        log_p, ids = best.new_full(shape, _NEVER), words.new_full(shape, EOS)
        for place, (row, place_tokens) in enumerate(zip(rows, tokens, strict=True)):
            if place_tokens:
                ids[place, : len(place_tokens)] = words.new_tensor(place_tokens)
                log_p[place, : len(place_tokens)] = logits[row].log_softmax(0)[place_tokens]
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
