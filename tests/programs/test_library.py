"""The shipped programs beside functions that compute the same in another way."""

from collections import Counter
from itertools import product

import pytest

from regard.programs import PROGRAMS, ProgramError
from regard.programs.library import addition, dyck_2, match, shift


def nested(text: str, maximum: int | None = None) -> bool:
    """With a stack."""
    stack: list[str] = []
    for token in text:
        if token in "([":
            stack.append(token)
            if maximum is not None and len(stack) > maximum:
                return False
        elif not stack or stack.pop() + token not in ("()", "[]"):
            return False
    return not stack


def added(text: str, base: int) -> list[int]:
    """By Python's own arithmetic."""
    total = sum(int(each, base) for each in text.split("+"))
    digits = []
    for _ in text:
        total, digit = divmod(total, base)
        digits.append(digit)
    return digits[::-1]


def followed(text: str) -> list[str]:
    last_words: dict[str, str] = {}
    words_after = []
    for place, token in enumerate(text):
        if place:
            last_words[text[place - 1]] = token
        words_after.append(last_words.get(token, "?"))
    return words_after


def often(text: str) -> list[int]:
    counts = Counter(text)
    return [sum(other == counts[token] for other in counts.values()) for token in text]


EXPECTED = {
    "copy": list,
    "shift": lambda text: list("_" + text)[: len(text)],
    "reverse": lambda text: list(text[::-1]),
    "sort": sorted,
    "histogram": lambda text: [text.count(token) for token in text],
    "double-histogram": often,
    "most-frequent": lambda text: (
        [max(text, key=lambda t: text.count(t))] * len(text) if text else []
    ),
    "first-occurrence": lambda text: [text.index(token) for token in text],
    "dyck-1": lambda text: [nested(text)] * len(text),
    "dyck-2": lambda text: [nested(text, 3)] * len(text),
    "induction": followed,
    "match": lambda text: [text[place : place + 3] == "aba" for place in range(len(text))],
}


def inputs(alphabet: str, longest: int) -> list[str]:
    return ["".join(each) for n in range(longest + 1) for each in product(alphabet, repeat=n)]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_program_computes_what_it_says(name):
    program = PROGRAMS[name]
    longest = {2: 8, 3: 5, 4: 5}[len(program.alphabet)]
    for text in inputs("".join(program.alphabet), longest):
        assert program(text) == EXPECTED[name](text), text


def test_addition_is_that_of_python():
    binary, decimal = PROGRAMS["addition-binary"], PROGRAMS["addition"]
    for augend, two in product(range(20), repeat=2):
        text = f"{augend:b}+{two:b}"
        assert binary(text) == added(text, 2), text
    for augend, two in product([0, 1, 7, 99, 123, 909], repeat=2):
        assert decimal(f"{augend}+{two}") == added(f"{augend}+{two}", 10)
    assert decimal("0099") == [0, 0, 9, 9]


def test_variants_are_made_by_functions():
    assert "at most 1 deep" in dyck_2(1).about
    assert shift(2, "*")("abc") == ["*", "*", "a"]
    assert match("bb")("abbb") == [False, True, True, False]
    assert dyck_2(1)("(())") == [False] * 4
    assert addition(8)("7+1") == [0, 1, 0]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: match(""), "the pattern is empty"),
        (lambda: dyck_2(0), "depth is 0: pass one of at least 1"),
        (lambda: addition(11), "base is 11: pass one from 2 to 10"),
        (lambda: PROGRAMS["dyck-1"]("(x)"), r"token 1 is 'x': the alphabet of dyck-1 is \( \)"),
    ],
)
def test_a_wrong_argument_is_named(make, words):
    with pytest.raises(ProgramError, match=words):
        make()


def test_the_programs_are_named_as_in_the_catalogue():
    assert all(name == program.name and program.about for name, program in PROGRAMS.items())
    for program in PROGRAMS.values():
        assert len(program(program.example)) == len(program.example)
