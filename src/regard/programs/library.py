"""The programs that come with Regard, and makers of their variants."""

from collections.abc import Sequence
from dataclasses import replace

from regard.programs.language import (
    Column,
    ProgramError,
    Value,
    aggregate,
    elementwise,
    everywhere,
    indices,
    numerical,
    select,
    tokens,
    where,
    width,
)
from regard.programs.running import Program, program

LETTERS = "abc"
same_token = select(tokens, tokens)
earlier = select(indices, indices, "<")
later = select(indices, indices, ">")
up_to_here = select(indices, indices, "<=")


@program(LETTERS, any_tokens=True, example="abcab")
def copy() -> Column:
    """The tokens, each read by its own position."""
    return aggregate(select(indices, indices), tokens)


def shift(by: int = 1, blank: Value = "_") -> Program:
    """The tokens, each `by` positions later; `blank` where there is none."""

    about = f"The token {by} before, or {blank} where there is none."

    @program(LETTERS, any_tokens=True, example="hello", about=about)
    def shift() -> Column:
        return aggregate(select(indices, indices - by), tokens, blank)

    return shift


@program(LETTERS, any_tokens=True, example="hello")
def reverse() -> Column:
    """The tokens from the last to the first."""
    return aggregate(select(indices, width(later)), tokens)


@program(LETTERS, any_tokens=True, example="banana")
def sort() -> Column:
    """The tokens in order."""
    smaller = width(select(tokens, tokens, "<")).named("smaller")
    equal_before = width(same_token & earlier).named("equal before")
    rank = (smaller + equal_before).named("rank")
    return aggregate(select(rank, indices), tokens)


@program(LETTERS, any_tokens=True, example="hello")
def histogram() -> Column:
    """How often the token of each position occurs."""
    return width(same_token)


@program(LETTERS, any_tokens=True, example="abbcc")
def double_histogram() -> Column:
    """How many different tokens occur as often as the token of each position."""
    count = width(same_token).named("count")
    repeated = width(same_token & earlier).named("repeated")
    return width(select(count, count) & select(repeated, 0))


@program(LETTERS, any_tokens=True, example="hello")
def most_frequent() -> Column:
    """The token that occurs most often; of several, the one that occurs first."""
    count = width(same_token).named("count")
    beaten = width(select(count, count, ">")).named("beaten")
    return aggregate(select(beaten, 0), tokens)


@program(LETTERS, any_tokens=True, example="hello")
def first_occurrence() -> Column:
    """The position at which the token of each position occurs first."""
    return aggregate(same_token, indices, 0)


@program(LETTERS, causal=True, any_tokens=True, example="abcabcab")
def induction() -> Column:
    """What followed this token last time, or ? at its first time; causal."""
    previous = aggregate(select(indices, indices - 1), tokens, "?").named("previous")
    return aggregate(select(previous, tokens), tokens, "?", last=True)


def match(pattern: Sequence[Value] = "aba") -> Program:
    """Whether the pattern begins at each position.

    Raises:
        ProgramError: the pattern is empty.
    """
    if not pattern:
        raise ProgramError("the pattern is empty: pass at least one token")

    about = f"Whether {' '.join(map(str, pattern))} begins at each position."

    @program(sorted({*LETTERS, *pattern}), any_tokens=True, example="abacababa", about=about)
    def match() -> Column:
        later = [
            aggregate(select(indices, indices + offset), tokens)
            for offset in range(1, len(pattern))
        ]
        return elementwise(lambda *found: found == tuple(pattern), tokens, *later)

    return match


@program("()", example="(()())")
def dyck_1() -> Column:
    """Whether the brackets are balanced."""
    up = numerical(where(tokens == "(", 1, -1))
    closed_early = (aggregate(up_to_here, up) < 0).named("closed early")
    wrong = aggregate(select(closed_early), closed_early, False)
    return (aggregate(everywhere, up) == 0) & ~wrong


def dyck_2(depth: int = 3) -> Program:
    """Whether brackets of two kinds are balanced and at most `depth` deep.

    Raises:
        ProgramError: the depth is below 1.
    """
    if depth < 1:
        raise ProgramError(f"depth is {depth}: pass one of at least 1")
    pairs = {")": "(", "]": "["}
    about = f"Whether brackets of two kinds are balanced, at most {depth} deep."

    @program("()[]", example="([])[]", about=about)
    def dyck_2() -> Column:
        opens = elementwise(lambda token: token not in pairs, tokens).named("opens")
        opened_brackets = width(select(opens) & up_to_here).named("opened")
        closed_brackets = width(select(opens, False) & up_to_here).named("closed")

        def clipped(opened_brackets: int, closed_brackets: int, opens: bool) -> int:
            return max(0, min(opened_brackets - closed_brackets + (not opens), depth + 1))

        level = elementwise(clipped, opened_brackets, closed_brackets, opens).named("level")
        partner = aggregate(select(level, level) & select(opens) & earlier, tokens, last=True)

        def is_wrong(token: str, level: int, partner: str | None) -> bool:
            return not 1 <= level <= depth or (token in pairs and pairs[token] != partner)

        wrong = elementwise(is_wrong, tokens, level, partner.named("partner")).named("wrong")
        total = aggregate(everywhere, numerical(where(opens, 1, -1)))
        return (total == 0) & ~aggregate(select(wrong), wrong, False)

    return dyck_2


def addition(base: int = 10) -> Program:
    """The sum of two numbers in a base from 2 to 10, such as 27+35.

    The answer ends with the units at the last position; places before it are 0.

    Raises:
        ProgramError: the base is another.
    """
    if not 2 <= base <= 10:
        raise ProgramError(f"base is {base}: pass one from 2 to 10")
    digits = "0123456789"[:base]

    about = f"The sum of two numbers in base {base}, its units at the last position."

    @program(digits + "+", example="127+35" if base == 10 else "101+11", about=about)
    def addition() -> Column:
        place = width(later).named("place")
        behind = aggregate(select(tokens, "+"), place, NOWHERE).named("behind the +")
        is_second = (place < behind).named("is second")
        digit = elementwise(lambda token: digits.find(token) * (token != "+"), tokens)
        other_digit = aggregate(select(place, place + behind + 1), digit, 0).named("first")
        total = elementwise(lambda x, second, y: x * second + y, digit, is_second, other_digit)
        total = total.named("total")
        # The nearest lower place that does not pass a carry on decides.
        carry = aggregate(select(total, base - 1, "!=") & later, total >= base, False)
        return (total + carry) % base

    return addition


NOWHERE = 100  # more than any place, for inputs without a +
_SHIPPED = (
    copy,
    shift(),
    reverse,
    sort,
    histogram,
    double_histogram,
    most_frequent,
    first_occurrence,
    dyck_1,
    dyck_2(),
    addition(),
    replace(addition(2), name="addition-binary"),
    induction,
    match(),
)
PROGRAMS: dict[str, Program] = {each.name: each for each in _SHIPPED}
