"""The checks of the exercises: right answers of every form pass, wrong ones get the reason that is theirs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import torch
from tests.documentation.exercises import bound, cells, exercise, needed, numbers
from torch import Tensor

from regard.named import Named

mpl.use("Agg")

EXERCISES = [pytest.param(*each, id="{}.{}".format(*each)) for each in numbers()]


def forms(answer: Any) -> Iterator[Any]:
    """The same answer as other types: lists, arrays, other precisions, tensors with one number."""
    match answer:
        case Named():
            yield Named(answer.tensor.double(), " ".join(answer.axes))
        case Tensor() if answer.requires_grad:
            yield from (answer.double(), answer.half())
        case Tensor():
            yield from (answer.numpy(), answer.tolist())
            if answer.is_floating_point():
                yield from (answer.double(), answer.half())
        case bool() | int() | float():
            array = np.array(answer)
            yield from (torch.tensor(answer), array, array[()], np.array([answer]))
        case list() if all(isinstance(word, int) for word in answer):
            yield from (tuple(answer), torch.tensor(answer), np.array(answer))
        case list():
            yield tuple(answer)
        case (list(), list()):
            yield from (list(answer), tuple(map(torch.tensor, answer)))
        case tuple():
            yield from (list(answer), tuple(map(float, answer)), tuple(map(np.float64, answer)))
            yield tuple(torch.as_tensor(each).half() for each in answer)


def no_number(answer: Any) -> Any:
    """The answer with NaN for each number; None where it has none."""
    match answer:
        case Tensor() if answer.is_floating_point():
            return answer * math.nan
        case float():
            return math.nan
        case tuple() if not isinstance(answer[0], list):
            return tuple(no_number(each) for each in answer)
    return None


def answers(namespace: dict[str, Any], form: Callable[[Any], Any]) -> str:
    """What the check says to the solution, with its answers in another form."""
    message: str = namespace["check"](lambda *given: form(namespace["solution"](*given)))
    return message


def kinds(namespace: dict[str, Any]) -> list[Any]:
    """The answers of a solution that the check asks for."""
    attentions: list[Any] = []

    def note(answer: Any) -> Any:
        attentions.append(answer)
        return answer

    assert answers(namespace, note) == namespace["RIGHT"]
    return attentions


@pytest.mark.parametrize(("lesson", "which"), EXERCISES)
def test_a_check_accepts_the_solution_in_every_form(lesson, which):
    namespace = exercise(lesson, which)
    solved = kinds(namespace)  # once, but for gradients: some solutions train a model
    is_learning = any(isinstance(each, Tensor) and each.requires_grad for each in solved)
    count = max(len(list(forms(answer))) for answer in solved)
    for number in range(count):
        remaining = iter(solved)

        def other_form(*given, number=number, remaining=remaining):
            answer = namespace["solution"](*given) if is_learning else next(remaining)
            return ([*forms(answer)] or [answer])[number % max(1, len([*forms(answer)]))]

        assert namespace["check"](other_form) == namespace["RIGHT"], number


@pytest.mark.parametrize(("lesson", "which"), EXERCISES)
def test_a_check_refuses_a_mistake_a_gap_and_what_is_no_number(lesson, which):
    namespace = exercise(lesson, which)
    options = {
        "mistake": namespace["check"](namespace["mistake"]),
        "gap": namespace["check"](lambda *_: ...),
        "text": namespace["check"](lambda *_: "an answer"),
        "nothing": namespace["check"](lambda *_: None),
    }
    if any(no_number(answer) is not None for answer in kinds(namespace)):
        options["NaN"] = answers(namespace, no_number)
    for kind, sentence in options.items():
        assert isinstance(sentence, str), kind
        assert sentence != namespace["RIGHT"], kind
        assert sentence[-1] in ".?", (kind, sentence)


@pytest.mark.parametrize(
    ("lesson", "which", "answer", "reason"),
    [
        (1, 1, "(query @ keys.T / 8**0.5).softmax(-1) @ values", "plain dot product"),
        (1, 2, "sentence[max(sentence, key=lambda k: encode([a[0]]) @ encode([k]).T)]", "None"),
        (2, 1, "-regard.scores.Cosine()(*a)", "sign is wrong"),
        (2, 3, "-1 / (a[1] * a[0] ** 0.5)", "above 0"),
        (6, 2, "(torch.zeros(1), torch.ones(1))", "first number|width"),
        (6, 2, "((w @ v - t) ** 2, w @ (v - t) ** 2)", "sum the error over the width"),
        (6, 2, "tuple(x + len(v) - 2 for x in solution(*a))", "The first number is"),
        (6, 3, "loss", "No gradient reaches the scores"),
        (6, 3, "torch.tensor(1.0)", "No gradient reaches the scores"),
        (6, 3, "loss + loss.detach() * log_weight", "ignores the baseline"),
        (6, 3, "loss - (loss.detach() - baseline) * log_weight", "uphill"),
        (7, 1, "torch.equal(a[0](a[1][:, a[2]]), a[0](a[1])[:, a[2]] + 1e-7)", "rounding"),
        (7, 3, "7 * torch.eye(a[0]).roll(-1, 1).tril()", "make the bias larger"),
        (8, 2, "((states @ U.T + W @ state) @ v).softmax(0) @ states", "tanh is missing"),
        (9, 1, "([*a[0], EOS], [BOS, *a[0]])", "exchanged"),
        (10, 1, "solution(*a)[[0, 2, 1]]", "Row 1 is not the mean"),
        (11, 1, "solution(a[0], 1.0)", "gain is missing"),
        (12, 1, "solution(*a) + 1.0", "scores differ"),
        (12, 2, "unscaled(*a)", "scale is missing"),
        (12, 2, "solution(*a) * 2.0", "readings differ"),
        (13, 1, "indices + 1", "For 'a' the answer is"),
        (14, 1, "solution(*a) * 4 / len(a[1])", "The mean is over all queries|the score is"),
        (14, 2, "a[0].softmax(0)", "not 3"),
    ],
)
def test_a_wrong_answer_gets_its_own_reason(lesson, which, answer, reason):
    namespace = dict(exercise(lesson, which))
    names = {
        (1, 1): "query, keys, values",
        (6, 2): "w, v, t",
        (6, 3): "log_weight, loss, baseline",
        (8, 2): "state, states, W, U, v",
    }.get((lesson, which))
    unpack = "" if names is None else f"    {names} = a\n"
    code = f"def wrong(*a):\n{unpack}    return {answer}\n"
    code += (
        "def unscaled(q, k, v, key_heads, group):\n"
        "    q = q.split('heads', key_heads=key_heads, group=group)\n"
        "    return dot(along(torch.softmax, dot(q, k, 'd_key'), 'keys'), v, 'keys')\n"
    )
    exec(code, namespace)  # noqa: S102
    assert re.search(reason, namespace["check"](namespace["wrong"]))


CHANGES = {
    "outputs": ["self_attention.output_projection", "feed_forward.outer"],
    "values": ["self_attention.value_projection", "feed_forward.outer"],
    "gain": ["self_residual.norm", "feed_forward.outer"],
}


@pytest.mark.parametrize("expressions", CHANGES.values(), ids=CHANGES)
def test_each_way_to_the_identity_is_right(expressions):
    namespace = exercise(11, 3)

    def way(block):
        for expression in expressions:
            for weight in block.get_submodule(expression).parameters():
                torch.nn.init.zeros_(weight)
        return block

    assert namespace["check"](way) == namespace["RIGHT"]
    more = [*expressions, "self_attention.key_projection", "self_attention.query_projection"]
    expressions[:] = more
    assert "three are enough" in namespace["check"](way)


@pytest.mark.parametrize(
    ("far", "accepted"), [(range(6), True), (range(1, 2), False), (range(3, 4), False)]
)
def test_a_test_for_leaks_changes_every_place_and_looks_at_every_place(far, accepted):
    namespace = exercise(3, 2)

    def some_places(model, sequence):
        model_before = model(sequence)
        for place in far:
            changed_copy = sequence.clone()
            changed_copy[place] += 1
            if not torch.equal(model(changed_copy)[:place], model_before[:place]):
                return True
        return False

    def nearest_place(model, sequence):
        model_before = model(sequence)
        for place in range(1, len(sequence)):
            changed_copy = sequence.clone()
            changed_copy[place] += 1
            if not torch.equal(model(changed_copy)[place - 1], model_before[place - 1]):
                return True
        return False

    assert (namespace["check"](some_places) == namespace["RIGHT"]) == accepted
    assert "word 0 reads word 5" in namespace["check"](nearest_place)


def test_generation_that_keeps_a_mark_or_no_bound_is_told_so():
    namespace = exercise(9, 2)
    solution, begin, end = namespace["solution"], namespace["BOS"], namespace["EOS"]
    message = namespace["check"](lambda *given: [begin, *solution(*given)])
    assert message.startswith("The list holds the begin mark")
    message = namespace["check"](lambda *given: [*solution(*given), end])
    assert message.startswith("The list holds the end mark")
    message = namespace["check"](
        lambda model, source, lengths, limit: solution(model, source, lengths, 30)
    )
    assert message.startswith("With most=2")


def test_a_layer_that_is_not_switched_off_is_told_so():
    namespace = exercise(10, 3)
    regard, model, tested = namespace["regard"], namespace["model"], namespace["TESTED"]
    of = namespace["mean_log_probability"]

    def normalised_after(layer):
        with regard.change(model, {f"decoder.{layer}.cross": regard.edits.Scale(0.0)}):
            pass
        return of(tested)

    def for_ever(layer):
        model.decoder[layer].cross_attention.value_projection.weight.data.zero_()
        return of(tested)

    full_output = of(tested)
    assert "inside the `with` block" in namespace["check"](normalised_after)
    assert "inside the `with` block" in namespace["check"](lambda layer: of(tested))
    assert "stays changed" in namespace["check"](for_ever)
    assert of(tested) == pytest.approx(full_output)


def test_the_wrong_head_and_the_wrong_words_are_named():
    namespace = exercise(12, 3)
    message = namespace["check"](lambda model, head: namespace["solution"](model, 1 - head))
    assert message.startswith("Head 1 was removed, not head 0")
    namespace = exercise(4, 3)
    message = namespace["check"](lambda word, k: namespace["solution"](word, k)[::-1])
    assert "order of their weights" in message
    message = namespace["check"](lambda word, k: namespace["solution"](word, k + 1)[1:])
    assert "the largest weights of all English words" in message


def test_the_reader_of_cells_takes_what_is_needed():
    text = "".join(
        f"```{{code-cell}} python\n{code}\n```\n"
        for code in ("import a", "b = a", "c = 1", "def f():\n    return b", "b, d = 2, a")
    )
    actual_cells = cells(text)
    assert [bound(cell) for cell in actual_cells] == [{"a"}, {"b"}, {"c"}, {"f"}, {"b", "d"}]
    assert needed(actual_cells, {"f"}) == [actual_cells[0], actual_cells[1], actual_cells[3]]
    assert needed(actual_cells, {"d"}) == [actual_cells[0], actual_cells[4]]
