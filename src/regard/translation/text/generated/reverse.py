"""Letters in random order and the same letters backwards: an alignment with one right answer.

A trained model reads its source from the last letter to the first, so a picture of its attention
shows the anti-diagonal, and any other cell is a visible mistake.
"""

from __future__ import annotations

import random
import string

from regard.translation.text.corpora import Pair

LETTERS = tuple(string.ascii_lowercase)
SHORTEST, LONGEST = 3, 12


def draw(dice: random.Random) -> Pair:
    """A sequence of 3 to 12 letters, repeats allowed, and its reversal.

    Example:
        >>> pair = draw(random.Random(1))
        >>> pair.source.split() == pair.target.split()[::-1]
        True
    """
    letters = [dice.choice(LETTERS) for _ in range(dice.randint(SHORTEST, LONGEST))]
    return Pair(source=" ".join(letters), target=" ".join(reversed(letters)))
