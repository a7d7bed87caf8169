"""Replacements of characters in a text, and where its words are afterwards."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_WORD = re.compile(r"\S+")


class Replacement(NamedTuple):
    """The characters from `start` to `stop` of a text become `text`."""

    start: int
    stop: int
    text: str


def replaced(text: str, changes: Iterable[Replacement]) -> str:
    """The text after replacements, which are in their order and do not overlap.

    >>> replaced("Tom runs.", [Replacement(0, 3, "Ana Paz")])
    'Ana Paz runs.'
    """
    pieces, end = list[str](), 0
    for change in changes:
        pieces += text[end : change.start], change.text
        end = change.stop
    return "".join([*pieces, text[end:]])


def occurrences(words: str, text: str) -> Iterator[re.Match[str]]:
    """Where a text has some words that are no part of others.

    >>> [match.span() for match in occurrences("cat", "A cat, cats.")]
    [(2, 5)]
    """
    return re.finditer(rf"(?<!\w){re.escape(words)}(?!\w)", text)


def word_spans(text: str) -> list[tuple[int, int]]:
    """Where each word, between white space, begins and ends."""
    return [match.span() for match in _WORD.finditer(text)]


def unmoved_words(text: str, changes: Sequence[Replacement]) -> list[list[int]]:
    """For each word of the replaced text the words of the text that are in it: the inverse of `moved_words`.

    >>> unmoved_words("Tom runs away.", [Replacement(0, 3, "Ana Paz"), Replacement(4, 9, "")])
    [[0], [0], [2]]
    """
    answer: list[list[int]] = [[] for _ in word_spans(replaced(text, changes))]
    for word, places in enumerate(moved_words(text, changes)):
        for place in places:
            answer[place].append(word)
    return answer


def moved_words(text: str, changes: Sequence[Replacement]) -> list[range]:
    """For each word of a text the words of the replaced text that have characters of it, or stand in its place.

    >>> moved_words("Tom runs away.", [Replacement(0, 3, "Ana Paz"), Replacement(4, 9, "")])
    [range(0, 2), range(0, 0), range(2, 3)]
    """
    images = list[tuple[int, int]]()  # where each character is in the new text
    size = 0
    for change in [*changes, Replacement(len(text), len(text), "")]:
        unchanged = change.start - len(images)
        images += ((place, place + 1) for place in range(size, size + unchanged))
        size += unchanged
        images += [(size, size + len(change.text))] * (change.stop - change.start)
        size += len(change.text)
    new_words = word_spans(replaced(text, changes))
    starts, stops = [start for start, _ in new_words], [stop for _, stop in new_words]
    ranges = []
    for start, stop in word_spans(text):
        begin, end = images[start][0], images[stop - 1][1]
        low, high = bisect_right(stops, begin), bisect_left(starts, end)
        ranges.append(range(low, high) if begin < end and low < high else range(0))
    return ranges
