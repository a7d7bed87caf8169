"""Compiled programs answer as plain Python does, or are refused with the reason."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
import torch
from tests.programs.random_programs import random_input, random_program

from regard import TransformerBlock
from regard.programs import (
    PROGRAMS,
    Compiled,
    Program,
    ProgramError,
    aggregate,
    compile,
    elementwise,
    everywhere,
    indices,
    numerical,
    plan,
    program,
    select,
    together,
    tokens,
    where,
    width,
)


def differing(program: Program, compiled: Compiled, inputs: Sequence[Any]) -> list[Any]:
    """The inputs to which the two answer differently."""
    answers = compiled.answered(inputs)
    return [one for one, got in zip(inputs, answers, strict=True) if program(one) != got]


def every_input(alphabet: Sequence[Any], longest: int) -> list[tuple[Any, ...]]:
    return [each for n in range(longest + 1) for each in product(alphabet, repeat=n)]


# Up to length 8 over two letters. benchmarks/programs.py goes through whole alphabets.
@pytest.mark.parametrize(
    ("name", "alphabet", "longest"),
    [(name, "ab", 8) for name, each in PROGRAMS.items() if each.any_tokens]
    + [("dyck-1", "()", 8), ("dyck-2", "()[]", 5), ("addition-binary", "01+", 6)],
)
def test_every_input_gets_the_programs_answer(name, alphabet, longest):
    program = PROGRAMS[name]
    program = program.over(alphabet)
    inputs = every_input(alphabet, longest)
    assert differing(program, compile(program, 8), inputs) == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_long_inputs_get_the_programs_answer(name):
    program = PROGRAMS[name]
    draw = random.Random(name)
    inputs = ["".join(draw.choices(program.alphabet, k=14)) for _ in range(50)]
    assert differing(program, compile(program, 14), inputs) == []


@pytest.mark.parametrize("name", ["double-histogram", "dyck-1", "addition-binary"])
def test_float64_gives_the_same_answers(name):
    program = PROGRAMS[name]
    compiled = compile(program, 6)
    compiled.model.double()
    assert differing(program, compiled, every_input(program.alphabet, 5)) == []


def test_a_spoilt_weight_is_noticed():
    program = PROGRAMS["reverse"]
    compiled = compile(program, 4)
    inputs = every_input("abc", 4)
    assert differing(program, compiled, inputs) == []
    compiled.model.output.weight[0], compiled.model.output.weight[1] = 0.0, 1.0
    assert len(differing(program, compiled, inputs)) > 50


def test_random_programs_are_answered_rightly_or_refused():
    refused = 0
    for seed in range(400):
        program, length = random_program(seed)
        draw = random.Random(seed)
        inputs = sorted((random_input(draw, program, length) for _ in range(12)), key=len)
        try:
            compiled = compile(program, length)
        except ProgramError:
            refused += 1
            continue
        assert differing(program, compiled, inputs) == [], seed
    assert 40 < refused < 200


def test_outputs_are_as_exact_as_the_plan_says():
    """One-hot outputs against 0 and 1, numbers against fractions."""
    tight = 0
    for seed in range(400, 600):
        program, length = random_program(seed)
        try:
            new_plan, compiled = plan(program, length), compile(program, length)
        except ProgramError:
            continue
        text = "".join(random.Random(seed).choices(program.alphabet, k=length))
        actual = compiled.model(compiled.ids(text))[0, 1:].double()
        if new_plan.numerical:
            expected = torch.tensor([[float(each)] for each in program(text)]).double()
        else:
            expected = torch.zeros_like(actual)
            for row, answer in zip(expected, program(text), strict=True):
                row[new_plan.answers.index(answer)] = 1.0
        error = float((actual - expected).abs().sum(-1).max())
        assert error <= new_plan.error, seed
        tight += error > new_plan.error / 1000
    assert tight > 20


def test_the_model_is_made_of_ordinary_blocks_of_the_told_size():
    for example in PROGRAMS.values():
        sizes, model = plan(example, 8).sizes, compile(example, 8).model
        assert sum(parameter.numel() for parameter in model.parameters()) == sizes.parameters
        assert [type(block) for block in model.blocks] == [TransformerBlock] * sizes.layers


def test_a_name_changes_no_answer():
    letters, at = tokens.named("letters"), indices.named("at")
    count = width(select(letters, tokens)).named("count")
    named = program("ab", name="named")(lambda: together(letters, at, count))
    assert differing(named, compile(named, 4), every_input("ab", 4)) == []
    assert named("aba") == [("a", 0, 2), ("b", 1, 1), ("a", 2, 2)]


def test_a_causal_model_answers_without_the_rest():
    compiled = compile(PROGRAMS["induction"], 8)
    assert compiled("abcabcab")[:5] == compiled("abcab")


def test_a_look_shows_what_was_read():
    look = compile(PROGRAMS["reverse"], 4).looks("abca")[1]
    assert torch.equal(look.weights()[0, 0, 1:, 1:], torch.eye(4).flip(0))


mean = aggregate(everywhere, numerical(tokens == "a")).named("mean")
third = aggregate(select(indices, indices, "<="), mean).named("third")


@pytest.mark.parametrize(
    ("column", "length", "words"),
    [
        (width(select(mean, mean)), 8, "^select keys must be categorical: 'mean' is numerical$"),
        (width(select(tokens, mean)), 8, "^select queries must be categorical: 'mean' is num"),
        (
            elementwise(max, mean, indices).named("larger"),
            8,
            "'larger' takes categorical columns or one numerical one: 'mean' is numerical"
            " and 'indices' is categorical",
        ),
        (indices + tokens, 8, r"'\(indices \+ tokens\)' fails for the values 0, 'a' \(TypeError"),
        (aggregate(select(tokens, "z"), indices) + 1, 8, "give a default"),
        (numerical(tokens), 8, r"'numerical\(tokens\)' must be numbers"),
        (elementwise(list, tokens), 8, "gives a list: give a value that can be hashed"),
        (aggregate(everywhere, tokens, []), 8, "the default of .* is .*: pass a value that can be"),
        (
            where(tokens == "a", 1, True).named("one"),
            8,
            "'one' has both 1 and True, which are equal: give one of them",
        ),
        (aggregate(everywhere, tokens == "a", 0), 8, "has both 0 and False, which are equal"),
        (numerical(indices) * 10**5, 8, r"can be 700000: keep numbers below 32768"),
        (indices, 0, "length is 0: pass the most tokens of an input, at least 1"),
        (indices, 1000, "'indices' has 1000 values, more than 512"),
        (together(indices, tokens, width(everywhere)), 70, "has 9940 combinations of values"),
        (aggregate(everywhere, third), 12, "can be more than 4096 different numbers"),
        (
            width(select(width(everywhere), indices)),
            60,
            "cannot tell .* apart in float32 at length",
        ),
    ],
)
def test_what_cannot_be_compiled_is_refused_with_the_reason(column, length, words):
    with pytest.raises(ProgramError, match=words):
        compile(program("ab", name="refused")(lambda: column), length)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("abcab", "the input has 5 tokens, reverse was compiled for 4: compile for more"),
        ("abx", "token 2 is 'x': the alphabet of reverse is a b c: .* compile --alphabet`"),
    ],
)
def test_an_input_that_does_not_fit_is_named(text, words):
    with pytest.raises(ProgramError, match=words):
        compile(PROGRAMS["reverse"], 4)(text)


def test_an_empty_input_has_no_answers():
    compiled = compile(PROGRAMS["sort"], 3)
    assert compiled("") == []
    assert compiled.answered([]) == []
    assert compiled.answered(["", "ba", "cab"]) == [[], ["a", "b"], ["a", "b", "c"]]
