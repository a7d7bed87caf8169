"""Noise: the pairs that a pass changes, so that a model reads more than its corpus writes."""

import re
from collections.abc import Sequence
from random import Random

from regard.translation.settings.data import NoiseSettings
from regard.translation.text.corpora import Pair, by_people
from regard.translation.text.exchange import Exchange
from regard.translation.text.letters import in_title_case, without_accents

_OPENING, _FINAL = "¿¡", ".?!…。？！؟۔।"
_LONG_WORD = re.compile(r"[^\W\d_]{4,}")
_WORD = re.compile(r"[^\W\d_]{2,}")


def without_marks(text: str, *, opening: bool = False, final: bool = True) -> str:
    """Without the marks that open or end a sentence; a text of marks alone stays.

    >>> without_marks("¿Vienes?"), without_marks("¿Vienes?", opening=True, final=False)
    ('¿Vienes', 'Vienes?')
    """
    bare = text.lstrip(_OPENING) if opening else text
    bare = bare.rstrip(_FINAL) if final else bare
    return bare.strip() or text


def emphasised(text: str, random: Random) -> str:
    """One word in capitals."""
    words = list(_WORD.finditer(text))
    if not words:
        return text
    word = random.choice(words)
    return text[: word.start()] + word[0].upper() + text[word.end() :]


def mistyped(text: str, random: Random) -> str:
    """One typing error in a word of four letters or more: two letters exchanged, or one lost, doubled or replaced.

    Belinkov and Bisk 2018 (arXiv 1711.02173); as training data, Karpukhin et al. 2019 (arXiv 1902.01509).
    """
    words = [word for word in _LONG_WORD.finditer(text) if len(set(word[0])) > 1]
    if not words:
        return text
    word = random.choice(words)
    while True:  # equal letters exchanged, or a letter replaced by itself, are no error
        place = random.randrange(word.start(), word.end() - 1)
        letter_before, letter_after = text[place], text[place + 1]
        letter = random.choice(word[0]).lower()
        typed = random.choice(
            (
                letter_after + letter_before,
                letter_after,
                letter_before + letter_before + letter_after,
                letter + letter_after,
            )
        )
        if typed != letter_before + letter_after:
            return text[:place] + typed + text[place + 2 :]


# Sentences of a joined pair at most.
_JOINED = 4


class Noise:
    """Draws the changed pairs of each pass. The random numbers alone decide which."""

    def __init__(
        self, settings: NoiseSettings, pairs: Sequence[Pair], languages: tuple[str, str] = ("", "")
    ) -> None:
        self._settings, self._pairs = settings, pairs
        read = by_people(pairs) if settings.names or settings.numbers else ()
        self._exchange = Exchange(read, languages)
        self._names = settings.names if self._exchange.named else 0.0
        copied = self._exchange.named or self._exchange.numbered
        self._numbers = settings.numbers if copied else 0.0

    def draw(self, random: Random) -> dict[int, Pair]:
        """The changed pairs of a pass, by their rows."""
        pairs = ((row, self._noisy_pair(pair, random)) for row, pair in enumerate(self._pairs))
        return {row: new for row, new in pairs if new is not self._pairs[row]}

    def _noisy_pair(self, pair: Pair, random: Random) -> Pair:
        settings, chance = self._settings, random.random
        old = pair
        if chance() < self._names:
            pair = self._exchange.with_name(random)
        if chance() < self._numbers:
            pair = self._exchange.with_number(random)
        copied = pair is not old
        if chance() < settings.joined:
            pair = self._joint_pair(pair, random)
        source = pair.source
        if chance() < settings.capitals:
            source = emphasised(source, random)
        if chance() < settings.title:
            source = in_title_case(source)
        if chance() < settings.lower:
            source = source.lower()
        if chance() < settings.marks:
            opening = chance() < 0.5
            source = without_marks(source, opening=opening, final=not opening or chance() < 0.5)
        # A name or number that is to be copied must be read as it is.
        if chance() < settings.accents and not copied:
            source = without_accents(source)
        if chance() < settings.typos and not copied:
            source = mistyped(source, random)
        return pair if source == pair.source else pair._replace(source=source)

    def _joint_pair(self, pair: Pair, random: Random) -> Pair:
        """A pair and one to three others of the same tags, as one."""
        drawn_pairs = [random.choice(self._pairs) for _ in range(random.randrange(1, _JOINED))]
        pairs = [pair, *(pair_drawn for pair_drawn in drawn_pairs if pair_drawn.tags == pair.tags)]
        return pair._replace(
            source=" ".join(sentence.source for sentence in pairs),
            target=" ".join(sentence.target for sentence in pairs),
        )
