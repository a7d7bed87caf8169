"""What can be named, what is refused, and the sums of a cost."""

import json
from pathlib import Path

import pytest

from regard.costs import cost
from regard.costs.counting import find
from regard.costs.measuring import measured
from regard.costs.parts import short
from regard.errors import ConfigurationError, ModelError
from regard.translation.settings import toml
from regard.translation.translator import Translator
from regard.viewing.costs import picture


def test_a_run_its_model_and_its_configuration_are_found():
    run = cost("es-en", queries=5, keys=7)
    model = cost(Translator.open("es-en").model, queries=5, keys=7)
    assert run.parts == model.parts
    shipped = cost("tatoeba-es-en", queries=5, keys=7)
    file = cost(Path("src/regard/configs/tatoeba-es-en.toml"), queries=5, keys=7)
    table = cost(toml.read(Path("src/regard/configs/tatoeba-es-en.toml")), queries=5, keys=7)
    assert shipped.parts == file.parts == table.parts == run.parts
    wider = cost("tatoeba-es-en", changes=("model.feed_forward=2048",), queries=5, keys=7)
    assert wider["feed-forward"].parameters == 2 * run["feed-forward"].parameters


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("gpt-5", {}, "gpt-5: no such model or run folder.*named are bahdanau-2015, .*gpt-3"),
        ("gpt-3", {"queries": 0}, "queries is 0: pass a whole number, 1 to 1,000,000,000,000"),
        ("gpt-3", {"queries": 1, "keys": 10**13}, "keys is 10000000000000: pass"),
        (
            "gpt-2",
            {"queries": 9, "keys": 5},
            "keys is 5: gpt-2 reads its queries too, pass 9 or more",
        ),
        ("gpt-3", {"batch": 1.5}, "batch is 1.5: pass"),
        ("multi-head", {"heads": 7}, "7 heads do not divide the width 512"),
        ("multi-head", {"width": 0}, "width is 0: pass a whole number, 1 to 65,536"),
        (
            "gpt-3",
            {"width": 512},
            "width, heads, value_width and learned_keys are sizes of single-head",
        ),
        (
            "gpt-3",
            {"changes": ("model.width=8",)},
            "gpt-3: a key is changed in the file of a configuration",
        ),
        ("multi-head", {"changes": ("model.width=8",)}, "multi-head: a key is changed in"),
        ("single-head", {"heads": 3}, "heads is 3: single-head has 1"),
        ("tatoeba-es-en", {"changes": ("model.widht=8",)}, "did you mean model.width"),
    ],
)
def test_what_cannot_be_counted_is_refused_by_name(kind, options, message):
    with pytest.raises(ConfigurationError, match=message):
        cost(kind, **options)


def test_a_configuration_takes_no_sizes_besides_its_own():
    table = toml.read(Path("src/regard/configs/tatoeba-es-en.toml"))
    for options in ({"width": 8}, {"changes": ("model.width=8",)}):
        with pytest.raises(ConfigurationError, match="a configuration: "):
            cost(table, **options)


def test_what_has_no_cost_is_refused_by_its_type():
    with pytest.raises(TypeError, match="of type int is not counted: pass a name, a path"):
        cost(5)
    with pytest.raises(
        ConfigurationError, match="inputs are for modules: leave them out for gpt-3"
    ):
        cost("gpt-3", 5)


@pytest.mark.parametrize("name", ["../configs/dates", "dates.toml", "a\0b"])
def test_only_shipped_names_stand_for_files_of_the_package(name):
    with pytest.raises(ConfigurationError, match="no such model or run folder"):
        cost(name)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(ModelError, match="it has no config"):
        cost(tmp_path)


def test_a_part_that_a_model_lacks_is_refused_with_those_that_it_has():
    with pytest.raises(KeyError, match="no part 'recurrence' in gpt-2; there are embeddings, W_Q"):
        cost("gpt-2")["recurrence"]


def test_the_sums_are_those_of_the_parts_and_survive_json():
    costs = cost("bert-base", batch=10**9)
    read = json.loads(json.dumps(costs.as_object()))
    assert read["multiply_adds"] == sum(part["multiply_adds"] for part in read["parts"].values())
    assert read["parameters"] == costs.parameters
    assert read["bytes"]["scores"] == costs.memory.scores == 4 * costs["scores"].scores


def test_a_configuration_is_measured_beside_its_counts():
    result, model = cost("reverse", queries=6, keys=9, batch=2), find("reverse")
    counted = measured(result, model)
    assert (counted.parameters, counted.multiply_adds) == (result.parameters, result.multiply_adds)
    assert counted.seconds > 0
    assert counted.peak_bytes > result.memory.weights + result.memory.activations


def test_without_the_matrix_the_scores_are_not_stored():
    costs = cost("single-head", width=8, queries=2000)
    counted = measured(costs, find("single-head", width=8))
    assert counted.peak_bytes < costs.memory.scores < counted.matrix_bytes


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gpt-3", {}, "gpt-3 needs .* GB for weights, activations, scores and their"),
        ("single-head", {"queries": 50_000_000}, "needs 20,0.* this machine has"),
        ("gpt-2", {"queries": 2, "keys": 3}, "whole texts: give as many queries"),
        ("gpt-2", {"queries": 1025}, "gpt-2 has learned 1,024 positions: leave"),
    ],
)
def test_what_cannot_run_here_is_not_measured(name, options, message):
    with pytest.raises(ConfigurationError, match=message):
        measured(cost(name, **options), find(name))


def test_the_picture_has_a_bar_for_each_part_and_two_lines():
    costs = cost("gpt-2")
    figure = picture(costs, [cost("gpt-2", queries=n) for n in (64, 128)])
    bars, work, lines = figure.axes
    assert len(bars.patches) == len(work.patches) == len(costs.parts)
    assert [bar.get_width() for bar in bars.patches] == [
        part.parameters / costs.parameters for part in costs.parts
    ]
    with_scores, without = lines.lines
    (short, long), (lowest, highest) = with_scores.get_ydata(), without.get_ydata()
    assert long > 2 * short > 2 * lowest
    assert highest == 2 * lowest


@pytest.mark.parametrize(
    ("number", "text"),
    [(999, "999"), (1000, "1.00 k"), (999_499, "999 k"), (999_500, "1.00 M"), (9_996, "10.0 k"),
     (10**40, "10,000,000,000,000,000 Y")],
)  # fmt: skip
def test_short_numbers(number, text):
    assert short(number) == text
