"""While the loops of a search are compiled, the layers of the model search; then one signature serves every model."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import torch
from tests.journeys.commands import run_apart as run
from tests.loops.unfinished import Unfinished
from tests.translation.engines.test_compiled import LENGTHS, SHAPES, small, source

from regard.cli.options.model import FEW
from regard.translation.decoding import preparation, search_loops
from regard.translation.decoding.search import Search, translate_batch
from regard.translation.engines import choose, engine
from regard.translation.engines.compiled import forward_loops
from regard.translation.engines.compiled.model import CompiledState
from regard.translation.models.transformer.layers import TransformerState


@pytest.fixture
def unfinished(monkeypatch, tmp_path) -> Unfinished:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    loops = Unfinished("regard.translation.decoding.preparation")
    monkeypatch.setattr(engine, "LOOPS", loops)
    return loops


@torch.no_grad()
def test_a_search_ends_as_it_began_and_the_next_one_is_compiled(unfinished):
    model, words = small(), torch.full((3,), 2)
    searching = choose(model)
    state = searching.begin(source(), LENGTHS)
    assert isinstance(state, TransformerState)
    unfinished.finish()
    expected = model.step(words, model.begin(source(), LENGTHS))[0]
    assert torch.equal(searching.step(words, state)[0], expected)
    assert isinstance(searching.begin(source(), LENGTHS), CompiledState)


def test_both_ways_translate_alike(unfinished):
    model, search = small(), Search(beam=3, max_length=9)
    layers = translate_batch(model, source(), LENGTHS, search, engine=choose(model))
    unfinished.finish()
    compiled = translate_batch(model, source(), LENGTHS, search, engine=choose(model))
    assert [[one.tokens for one in few] for few in layers] == [
        [one.tokens for one in few] for few in compiled
    ]


@pytest.fixture
def informative() -> Iterator[None]:
    """What the preparation tells is shown, as it is outside of tests."""
    logger = logging.getLogger("regard.loops")
    before = logger.level
    logger.setLevel(logging.INFO)
    yield
    logger.setLevel(before)


@pytest.mark.usefixtures("informative")
def test_a_command_says_once_that_code_is_compiled_and_translates(unfinished):
    result = run("translate", stdin=("Hola.\n" + "Hace frío.\n" * FEW).encode())
    assert result.code == 0
    assert result.lines[1:] == ["It's cold."] * FEW
    assert result.err.count("compiled for this processor, once") == 1


@torch.no_grad()
@pytest.mark.parametrize("threads", [1, 2])
def test_no_model_and_no_number_of_threads_compiles_more(threads):
    preparation.compile_loops()
    loops = forward_loops.encode, forward_loops.step, search_loops.best_few
    torch.set_num_threads(threads)
    try:
        for changes in SHAPES.values():
            model = small(**changes)
            batch = source().repeat(9, 1), LENGTHS.repeat(9)
            translate_batch(model, *batch, Search(beam=2, max_length=3), engine=choose(model))
    finally:
        torch.set_num_threads(1)
    assert [len(loop.signatures) for loop in loops] == [1, 1, 1]


@torch.no_grad()
@pytest.mark.parametrize("beam", [1, 3])
def test_threads_share_a_batch_and_change_no_bit(beam):
    model, search = small(), Search(beam=beam, max_length=12)
    batch = source().repeat(11, 1), LENGTHS.repeat(11)
    alone = translate_batch(model, *batch, search, engine=choose(model))
    torch.set_num_threads(2)
    try:
        shared = translate_batch(model, *batch, search, engine=choose(model))
    finally:
        torch.set_num_threads(1)
    assert shared == alone
