"""Pairs in which a name or a number is exchanged on both sides, so that a model learns to copy it."""

import datetime
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from random import Random

from regard.translation.text.corpora import Pair
from regard.translation.text.generated.dates import CALENDARS, render
from regard.translation.text.letters import WORD, has_capital
from regard.translation.text.numbers import NUMBER, Marks

_CALENDARS = {calendar.language: calendar for calendar in CALENDARS}
# The end of a way to write dates.
_YEAR = re.compile(r"(,| del?)? \{year\}$")
# A name is written in small letters at most this often, beside its capital.
_SMALL_LETTERS = 0.05


class Exchange:
    """Exchanges names and numbers of sentence pairs; all it draws from is learnt from the pairs.

    A name is a word with a capital that both sides have, as often, and that the text hardly writes in small letters.
    New names are those of the text and invented ones. A number is a run of digits that both sides have. New numbers
    are counts, years, times, dates, decimals, telephone numbers and more; each side has its marks for decimals and
    thousands, learnt from the text. Of six languages (ISO 639-1), dates with the name of the month are among them.

    `languages` are the codes of source and target. `named` and `numbered` are the pairs that have names or numbers,
    with these.
    """

    def __init__(self, pairs: Sequence[Pair], languages: tuple[str, str] = ("", "")) -> None:
        self.named = named(pairs)
        self.numbered = [(pair, numbers) for pair in pairs if (numbers := shared(pair, NUMBER))]
        self._names = sorted(set(chain.from_iterable(names for _, names in self.named)))
        self._inventor = Inventor(self._names)
        self._writing = Writing(pairs, languages)

    def with_name(self, random: Random) -> Pair:
        """A pair with other names. `named` must not be empty."""
        pair, names = random.choice(self.named)
        return _replaced(pair, WORD, {name: (self.name(random),) * 2 for name in names})

    def with_number(self, random: Random) -> Pair:
        """A pair with other numbers, or with a number in the place of a name. One of both lists must have pairs."""
        if self.numbered and (not self.named or random.random() < 0.5):
            pair, numbers = random.choice(self.numbered)
            new = {number: self._writing.number(random, number) for number in numbers}
            return _replaced(pair, NUMBER, new)
        pair, names = random.choice(self.named)
        return _replaced(pair, WORD, {random.choice(names): self._writing.number(random)})

    def name(self, random: Random) -> str:
        """A name of the text, or an invented one; one in ten has two words."""
        count = 2 if random.random() < 0.1 else 1
        return " ".join(
            random.choice(self._names) if random.random() < 0.5 else self._inventor.name(random)
            for _ in range(count)
        )


class Inventor:
    """Invents words that look like given ones, by a Markov chain of their letters of order 2."""

    def __init__(self, words: Sequence[str]) -> None:
        small = [word.lower() for word in words]
        self._longest = max(map(len, small), default=0)
        self._next: dict[str, list[str]] = defaultdict(list)
        for word in small:
            letters = f"  {word} "
            for at in range(len(letters) - 2):
                self._next[letters[at : at + 2]].append(letters[at + 2])

    def name(self, random: Random) -> str:
        """A word with a capital, of two letters or more and no longer than the longest one given."""
        while True:
            word = "  "
            while (letter := random.choice(self._next[word[-2:]])) != " ":
                word += letter
            if 2 <= len(word) - 2 <= self._longest:
                return word.strip().title()


class Writing:
    """Draws numbers as the two sides of a corpus write them."""

    def __init__(self, pairs: Sequence[Pair], languages: tuple[str, str] = ("", "")) -> None:
        self._calendars = [_CALENDARS[name] for name in languages if name in _CALENDARS]
        self._marks = Marks.learn(pairs)

    def number(self, random: Random, old: str = "") -> tuple[str, str]:
        """A number as the source and as the target write it; half of them are of the form of an old one."""
        if old and random.random() < 0.5:
            return (_like(old, random),) * 2
        integer, two = random.randrange(1, 1000), f"{random.randrange(100):02}"
        hour = random.randrange(24)
        day, month, year = random.randint(1, 31), random.randint(1, 12), random.randint(1400, 2099)
        kinds: tuple[str | tuple[str, str], ...] = (
            str(random.randrange(10 ** random.randint(1, 6))),
            str(year),
            f"{hour}:{random.randrange(60):02}",
            random.choice(
                (
                    f"{day}/{month}/{year}",
                    f"{day:02}/{month:02}/{year}",
                    f"{day:02}-{month:02}-{year}",
                    f"{day}.{month}.{year}",
                    f"{year}-{month:02}-{day:02}",
                    f"{day}/{month}/{two}",
                    f"{day}.{month}.{two}",
                )
            ),
            _telephone(random),
            f"{integer}{random.choice('.-/')}{two}",
            self._marks.decimal(str(integer), str(random.randrange(1, 1000))),
            self._marks.grouped([str(integer), *_thousands(random)]),
        )
        if len(self._calendars) == 2:
            kinds += (self._date(random, datetime.date(year, month, min(day, 28))),)
        number = random.choice(kinds)
        return (number, number) if isinstance(number, str) else number

    def _date(self, random: Random, date: datetime.date) -> tuple[str, str]:
        """A date with the name of its month, in one of the ways of the source and the first way of the target."""
        source, target = self._calendars
        ways = [way for way in source.formats if "{month}" in way and "{weekday}" not in way]
        formats = [random.choice(ways), target.formats[0]]
        if random.random() < 0.25:
            formats = [_YEAR.sub("", way) for way in formats]
        return render(source, formats[0], date), render(target, formats[1], date)


def named(pairs: Sequence[Pair]) -> list[tuple[Pair, list[str]]]:
    """The pairs that have names, with these: words with a capital that both sides have, equally often.

    The text hardly writes them in small letters.
    """
    lines = chain.from_iterable(pair[:2] for pair in pairs)
    counts = Counter(chain.from_iterable(map(WORD.findall, lines)))

    def is_name(word: str) -> bool:
        small = counts[word.lower()]
        return has_capital(word) and small <= _SMALL_LETTERS * counts[word]

    return [(pair, names) for pair in pairs if (names := list(filter(is_name, shared(pair, WORD))))]


def shared(pair: Pair, pattern: re.Pattern[str]) -> list[str]:
    """The matches of a pattern that both sides have, equally often."""
    sources, targets = pattern.findall(pair.source), pattern.findall(pair.target)
    return [text for text in dict.fromkeys(sources) if sources.count(text) == targets.count(text)]


def _replaced(pair: Pair, pattern: re.Pattern[str], new: dict[str, tuple[str, str]]) -> Pair:
    def replaced_side(text: str, side: int) -> str:
        return pattern.sub(lambda match: new[match[0]][side] if match[0] in new else match[0], text)

    return pair._replace(source=replaced_side(pair.source, 0), target=replaced_side(pair.target, 1))


def _thousands(random: Random) -> Iterator[str]:
    """One or two groups of three digits."""
    return (f"{random.randrange(1000):03}" for _ in range(random.randint(1, 2)))


def _like(old: str, random: Random) -> str:
    """A number with as many digits and the same marks, whose first digit is not 0."""
    digits = iter([random.choice("123456789"), *random.choices("0123456789", k=len(old))])
    return re.sub(r"\d", lambda _: next(digits), old)


def _telephone(random: Random) -> str:
    mark = random.choice(" -.")
    groups = (
        "".join(random.choices("0123456789", k=random.randint(2, 4)))
        for _ in range(random.randint(2, 4))
    )
    return random.choice(("", "", "+")) + mark.join(groups)
