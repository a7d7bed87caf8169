"""Corpora generated from a seed: small tasks with a known right answer.

reverse   r e g a r d           -> d r a g e r
dates     Dienstag, 3. März 1998 -> 1998-03-03
"""

import hashlib
import random
import string
from collections.abc import Callable

from regard.errors import ConfigurationError
from regard.translation.text.corpora import Pair
from regard.translation.text.generated import dates


def _reversal(dice: random.Random) -> Pair:
    """A sequence of 3 to 12 letters, repeats allowed, and its reversal.

    A picture of the attention of a trained model shows the anti-diagonal; any other cell is a visible mistake.
    """
    letters = [dice.choice(string.ascii_lowercase) for _ in range(dice.randint(3, 12))]
    return Pair(source=" ".join(letters), target=" ".join(reversed(letters)))


TASKS: dict[str, Callable[[random.Random], Pair]] = {"reverse": _reversal, "dates": dates.draw}
# Of twenty sources one is for validation, one for test and eighteen are for training.
SPLITS = {"valid": range(1), "test": range(1, 2), "train": range(2, 20)}


def generate(task: str, seed: int, count: int, split: str = "train") -> list[Pair]:
    """`count` different pairs of a task and split, the same ones for the same arguments on every machine.

    The hash of a source, in lower case, decides its split. So the splits are disjoint for any seeds
    and counts, and a larger count only appends pairs.

    Args:
        task: "reverse" or "dates".
        split: "train", "valid" or "test".

    Raises:
        ConfigurationError: more pairs than the task holds.

    Example:
        >>> [pair.target for pair in generate("reverse", seed=1, count=2)] == [
        ...     pair.target for pair in generate("reverse", seed=1, count=9)
        ... ][:2]
        True
    """
    dice = random.Random(f"{task} {split} {seed}")
    pairs: dict[str, Pair] = {}
    tries = 0
    while len(pairs) < count:
        pair = TASKS[task](dice)
        # The same for DIENSTAG and Dienstag.
        digest = hashlib.sha256(pair.source.casefold().encode()).digest()
        if int.from_bytes(digest[:8], "big") % 20 in SPLITS[split]:
            pairs.setdefault(pair.source, pair)
        tries += 1
        if tries == 100 * (count + 10):
            raise ConfigurationError(
                f"{task} holds too few different {split} pairs: {len(pairs)} found, {count} asked"
            )
    return list(pairs.values())
