"""What columns and selectors mean, in plain Python."""

from __future__ import annotations

from fractions import Fraction

import pytest

from regard.programs import (
    PROGRAMS,
    ProgramError,
    aggregate,
    elementwise,
    everywhere,
    indices,
    numerical,
    plan,
    program,
    run,
    select,
    together,
    tokens,
    where,
    width,
)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (indices + 1, [1, 2, 3]),
        (1 + indices, [1, 2, 3]),
        (2 - indices, [2, 1, 0]),
        (indices * indices - indices, [0, 0, 2]),
        (3 * indices // 2, [0, 1, 3]),
        (indices % 2, [0, 1, 0]),
        ("x" + tokens, ["xa", "xb", "xb"]),
        (5 // (indices + 1), [5, 2, 1]),
        (7 % (indices + 1), [0, 1, 1]),
        (True & (indices > 0), [False, True, True]),
        ((tokens == "a") | (indices >= 2), [True, False, True]),
        (~(tokens != "a") & (indices <= 1), [True, False, False]),
        ((indices < 1) == (indices > 1), [False, True, False]),
        (where(tokens == "a", indices, "no"), [0, "no", "no"]),
        (where(True, tokens, "no"), ["a", "b", "b"]),
        (elementwise(max, indices, 1), [1, 1, 2]),
        (together(tokens, indices), [("a", 0), ("b", 1), ("b", 2)]),
        (elementwise(str.upper, tokens), ["A", "B", "B"]),
    ],
    ids=str,
)
def test_operators_work_position_by_position(column, values):
    assert run(column, "abb") == values


def test_a_selector_finds_keys_for_each_query():
    later = select(indices, indices, ">")
    same = select(tokens, tokens)
    assert run(width(later), "abb") == [2, 1, 0]
    assert run(width(same & later), "abb") == [0, 1, 0]
    assert run(width(same | later), "abb") == [3, 2, 2]
    assert run(width(~same), "abb") == [2, 1, 1]
    assert run(width(~(same & later)), "abb") == [3, 2, 3]
    assert run(width(everywhere), "abb") == [3, 3, 3]
    assert run(width(~everywhere), "abb") == [0, 0, 0]
    assert run(width(select(tokens == "b")), "abb") == [2, 2, 2]
    assert run(width(select(indices, indices, lambda key, query: key == query + 1)), "abb") == [
        1,
        1,
        0,
    ]


def test_a_causal_program_reads_no_later_key():
    assert run(width(everywhere), "abb", causal=True) == [1, 2, 3]


def test_several_keys_give_the_first_the_last_or_the_mean():
    vowel = select(tokens, "a")
    assert run(aggregate(vowel, indices), "bab a") == [1] * 5
    assert run(aggregate(vowel, indices, last=True), "bab a") == [4] * 5
    assert run(aggregate(vowel, numerical(indices)), "bab a") == [Fraction(5, 2)] * 5


def test_no_key_gives_the_default():
    nothing = select(tokens, "z")
    assert run(aggregate(nothing, tokens), "ab") == [None, None]
    assert run(aggregate(nothing, tokens, "?"), "ab") == ["?", "?"]
    assert run(aggregate(nothing, numerical(indices)), "ab") == [0, 0]
    assert run(aggregate(nothing, numerical(indices), Fraction(1, 3)), "ab") == [Fraction(1, 3)] * 2


def test_numbers_are_exact():
    third = aggregate(everywhere, numerical(tokens == "a"))
    assert run((third - Fraction(1, 3)) * 3 + third == Fraction(1, 3), "abb") == [True] * 3
    assert run(1 - third, "abb") == [Fraction(2, 3)] * 3


def test_a_program_has_the_name_and_words_of_its_function():
    @program("ab", causal=True)
    def count_up():
        """Positions from one.

        More of it.
        """
        return indices + 1

    assert (count_up.name, count_up.about) == ("count-up", "Positions from one.")
    assert count_up("ba") == [1, 2]
    assert count_up("") == []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: select(tokens, tokens, "="), "predicate is '=': pass a function or one of =="),
        (lambda: select(tokens, tokens, 3), r"predicate is 3: pass a function \(key, query\)"),
        (lambda: (tokens == "a") and (indices > 0), "use & | ~, not and, or, not"),
        (lambda: aggregate(everywhere, numerical(indices), "x"), "default is 'x': pass a whole"),
        (lambda: elementwise(max), "elementwise has no column"),
        (lambda: width(tokens), "'tokens' is a column: pass a selector, as select"),
        (lambda: aggregate(True, tokens), "True is none: pass a selector"),
        (lambda: everywhere & tokens, "'tokens' is a column: pass a selector"),
        (
            lambda: program(lambda: tokens),
            r'@program has no alphabet: write it as @program\("abc"\)',
        ),
        (lambda: plan(tokens, 4), r"tokens is no program: put @program\(alphabet\) above"),
        (lambda: list(tokens), r"'tokens' is a column: run\(column, tokens\)"),
        (lambda: run(tokens + 1, "ab"), r"'\(tokens \+ 1\)' fails for the values 'a' \(TypeError"),
        (
            lambda: run(aggregate(select(indices, 9), indices) + 1, "ab"),
            "give a default to the aggregate that finds no key",
        ),
        (lambda: run(numerical(tokens), "ab"), r"'numerical\(tokens\)' must be numbers.*is 'a'"),
        (lambda: program("ab")(lambda: tokens)("abc"), "token 2 is 'c': the alphabet of .* is a b"),
        (lambda: run(PROGRAMS["copy"], "ab"), "a Program is no column.*call a program with its"),
        (lambda: program("ab")(lambda: "tokens"), "returned str: return a column"),
    ],
)
def test_a_mistake_is_named(make, words):
    with pytest.raises(ProgramError, match=words):
        make()
