"""The probability of each word link of a text, learnt from the text itself."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt

import numpy as np
import torch

from regard.loops import threads
from regard.translation.linking.cells import Places, Side, TypePairs
from regard.translation.linking.chain import Direction, Floats, sample, simple_rounds
from regard.translation.linking.priors import Learned, Priors
from regard.translation.linking.similarity import similarities

# The forms of the words, and how many of their first letters they keep.
FORMS = {"whole": None, "six": 6, "five": 5, "four": 4, "three": 3}
# A pair of sentences with more cells, of some 2,000 words each, is no pair of sentences.
MOST_CELLS = 2**22
# Words are linked whose mean probability is at least this.
THRESHOLD = 0.44
Progress = Callable[[int], None]
WordPairs = Sequence[tuple[Sequence[str], Sequence[str]]]


@dataclass(frozen=True)
class Posteriors:
    """The probability of each link, in both directions.

    Attributes:
        forward, backward: by cell, that the target word comes from the source word, and the reverse.
        begins: where the cells of each pair begin.
        shapes: the numbers of target and source words of each pair.
        too_long: the numbers of pairs that have more than `MOST_CELLS` cells, and no probabilities.
    """

    forward: Floats
    backward: Floats
    begins: Places
    shapes: list[tuple[int, int]]
    too_long: list[int]

    def matrices(self, pair: int) -> tuple[Floats, Floats]:
        """Both directions of a pair that is not too long, (target, source) each."""
        shape = self.shapes[pair]
        cells = slice(self.begins[pair], self.begins[pair + 1])
        return self.forward[cells].reshape(shape), self.backward[cells].reshape(shape)


def learn(
    pairs: WordPairs,
    *,
    seed: int = 0,
    priors: Priors | None = None,
    progress: Progress | None = None,
) -> tuple[Posteriors, Priors]:
    """Sample the links of a text, and average over samples, forms of the words and chains.

    The same seed gives the same numbers on any number of threads.

    Args:
        pairs: words of each sentence and of its translation.
        priors: the counts of an earlier text.
        progress: called with the number of rounds that are done, of `all_rounds`.

    Returns:
        The posteriors, and the counts of this text with those of the earlier one, of the last chain of each form.
    """
    too_long = [n for n, (s, t) in enumerate(pairs) if len(s) * len(t) > MOST_CELLS]
    readable = list(pairs)
    for n in too_long:
        readable[n] = [], []
    rounds, repeats = _rounds(len(pairs)), _repeats(len(pairs))
    clock = _Clock(progress)
    cells = sum(len(source) * len(target) for source, target in readable)
    posteriors = {forward: np.zeros(cells, np.float32) for forward in (True, False)}
    learned = {}
    begins: Places = np.zeros(1, np.int64)
    for form, letters in FORMS.items():
        source, target = (Side.of([pair[side] for pair in readable], letters) for side in (0, 1))
        types = TypePairs.of(source, target)
        begins = types.begins
        dice = similarities(source.forms, target.forms, (types.source, types.target))
        for repeat in range(repeats):
            chains = []
            for forward, posterior in posteriors.items():
                direction = Direction(source, target, types, forward)
                counts, name = direction.counts(), _name(form, forward)
                if priors is not None:
                    priors.chains[name].add_to(counts, direction)
                chain = partial(
                    sample,
                    direction,
                    counts,
                    dice,
                    posterior,
                    rounds=rounds,
                    share=1 / (repeats * len(FORMS)),
                    seed=[seed, letters or 0, forward, repeat],
                    tick=clock.tick,
                )
                chains.append(chain)
                learned[name] = direction, counts
            _together(chains, clock)
    shapes = [(len(target), len(source)) for source, target in pairs]
    taught = Priors({name: Learned.of(*chain) for name, chain in learned.items()})
    return Posteriors(posteriors[True], posteriors[False], begins, shapes, too_long), taught


def _rounds(pairs: int) -> int:
    """How often each link is drawn by the full model: a large text needs fewer."""
    return max(8, min(100, int(5000 / sqrt(max(1, pairs)))))


def _repeats(pairs: int) -> int:
    """The chains of each form and direction. They end in different places; their mean is better than each of them."""
    return max(1, min(3, 30_000 // max(1, pairs)))


def all_rounds(pairs: int) -> int:
    """The rounds of all chains, for a text of so many pairs."""
    rounds = _rounds(pairs)
    return 2 * len(FORMS) * _repeats(pairs) * (rounds + 2 * simple_rounds(rounds))


def chain_names() -> list[str]:
    return [_name(form, forward) for form in FORMS for forward in (True, False)]


def _name(form: str, forward: bool) -> str:
    return f"{form}.{'forward' if forward else 'backward'}"


class _Clock:
    """Counts rounds over all threads, and ends all chains when one ends early."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress, self._done = progress, 0
        self._lock = threading.Lock()
        self.stopped = False

    def tick(self) -> None:
        with self._lock:
            if self.stopped:
                raise InterruptedError("another chain was interrupted")
            if self._progress is not None:
                self._progress(self._done)
            self._done += 1


def _together(chains: Sequence[Callable[[], None]], clock: _Clock) -> None:
    """Run chains on two threads, where torch may use two. Each adds to numbers of its own."""

    def watched(chain: Callable[[], None]) -> None:
        try:
            chain()
        except BaseException:
            clock.stopped = True
            raise

    tasks: list[threads.Task] = [partial(watched, chain) for chain in chains]
    if torch.get_num_threads() > 1:
        threads.run(tasks)
    else:
        for task in tasks:
            task()
