"""How well each sentence pair is a translation, by its word links: whether other pairs have the same links."""

import numpy as np
from numpy.typing import NDArray

from regard.translation.linking.cells import Side, TypePairs
from regard.translation.linking.learning import Posteriors, WordPairs

# Below this, a pair is hardly a translation: see benchmarks/quality/mismatches.py.
DOUBTFUL = 0.12


def support(pairs: WordPairs, posteriors: Posteriors) -> NDArray[np.float64]:
    """By pair, the mean over the words of both sides of their strongest link, from 0 to 1, as *other* pairs have it.

    A link's strength is Dice's coefficient of the expected counts of links and of the counts of words, where this one
    is not counted:

        2 links(s, t) / (words(s) + words(t) + 1)

    A pair with an empty side, or one that was too long to learn, has 0.
    """
    readable = list(pairs)
    for number in posteriors.too_long:
        readable[number] = [], []
    source, target = (Side.of([pair[side] for pair in readable], None) for side in (0, 1))
    types = TypePairs.of(source, target)
    means = (posteriors.forward + posteriors.backward) / 2
    links = np.bincount(types.cells, means, len(types.source))[types.cells] - means
    words = sum(
        (np.bincount(side.numbers, minlength=len(side.forms)) - 1)[numbers[types.cells]]
        for side, numbers in ((source, types.source), (target, types.target))
    )
    strength = 2 * links.clip(min=0) / (words + 1)
    answer = np.zeros(len(pairs))
    for number, (ours, theirs) in enumerate(readable):
        cells = strength[types.begins[number] : types.begins[number + 1]]
        if len(cells):
            grid = cells.reshape(len(theirs), len(ours))
            answer[number] = (grid.max(0).sum() + grid.max(1).sum()) / sum(grid.shape)
    return answer
