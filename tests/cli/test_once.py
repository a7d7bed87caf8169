"""An option that takes one value is refused where it is given twice, in every command."""

from __future__ import annotations

import pytest

from regard.cli.main import command_line, main


def options(group, *path: str):
    """Each command, with each of its options."""
    for param in group.params:
        if param.param_type_name == "option":
            yield path, param
    for name, command in getattr(group, "commands", {}).items():
        yield from options(command, *path, name)


ROOT = command_line()
EVERY = list(options(ROOT))
ONCE = [(path, one) for path, one in EVERY if not (one.multiple or one.is_eager)]
AGAIN = [(path, one) for path, one in EVERY if one.multiple]


def names(path, option) -> str:
    return " ".join([*path, option.opts[0]])


# `main` takes --debug out wherever it stands.
@pytest.mark.parametrize(
    ("path", "option"),
    [pytest.param(*one, id=names(*one)) for one in ONCE if one[1].name != "debug"],
)
def test_a_single_valued_option_given_twice_is_refused(path, option, capsys):
    spellings = [*option.opts, *option.secondary_opts]
    for spelling in spellings:
        for second in spellings:
            value = [] if option.is_flag else ["1"]
            assert main([*path, spelling, *value, second, *value]) == 2
            error = capsys.readouterr().err.splitlines()[-1]
            assert error.startswith(f"error: {option.opts[0]}")
            assert error.endswith("is given 2 times: give it once")


def test_the_walk_meets_every_kind_of_option():
    assert len(ONCE) > 150
    assert {path[0] for path, _ in ONCE if path} >= {"translate", "evaluate", "data", "config"}
    assert any(one.is_flag for _, one in ONCE)
    assert any(one.secondary_opts for _, one in ONCE)


def test_an_option_that_collects_values_takes_several(capsys):
    assert {names(*one) for one in AGAIN} >= {
        "translate --model",
        "evaluate --target",
        "train --set",
    }
    sets = ["--set", "seed=2", "--set", "training.max_steps=7"]
    assert main(["config", "show", "dates", *sets]) == 0
    output = capsys.readouterr().out
    assert "seed = 2" in output
    assert "max_steps = 7" in output


@pytest.mark.parametrize(
    ("first_spelling", "second", "key"),
    [
        ("seed=1", "seed=2", "seed"),
        ("training.clip=1", " training . clip =2", "training.clip"),
    ],
)
def test_a_key_that_is_set_twice_is_refused(first_spelling, second, key, capsys):
    assert main(["config", "show", "dates", "--set", first_spelling, "--set", second]) == 2
    error = capsys.readouterr().err
    assert error.endswith(f"error: --set {key} is given 2 times: give it once\n")
