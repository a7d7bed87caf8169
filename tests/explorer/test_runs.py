"""What the server keeps of runs is bounded."""

from __future__ import annotations

import pytest
import torch

import regard
from regard.explorer import Attention, Scene, Sequence
from regard.explorer.server.runs import KEPT, PYRAMIDS, Run, Runs
from regard.serving.errors import Refused


def scene(heads: int) -> Scene:
    vectors = torch.randn(heads, 6, 4)
    tokens = Sequence("tokens", list("abcdef"))
    return Scene("", [tokens], [Attention("self", "self", regard.look(vectors, vectors), 0, 0)])


def test_old_runs_are_dropped_and_those_in_use_kept():
    runs, new_scene = Runs(), scene(1)
    first_run, second = runs.add(Run(new_scene)), runs.add(Run(new_scene))
    for _ in range(KEPT - 1):
        assert runs[first_run]
        runs.add(Run(new_scene))
    assert runs[first_run]
    with pytest.raises(Refused) as refused:
        runs[second]
    assert refused.value.status == 410


def test_tiles_are_kept_of_the_last_heads_over_all_runs():
    runs, new_scene = Runs(), scene(8)
    for _ in range(5):  # a page that is reloaded has another run of the same scene
        attention = runs[runs.add(Run(new_scene))].attention("self")
        tiles = [runs.tiles(attention, head) for head in range(-1, 8)]
        assert runs.tiles(attention, 7) is tiles[-1]
        assert runs.tiles.cache_info().currsize == PYRAMIDS
    torch.testing.assert_close(
        tiles[0].look.weights(), new_scene.attentions[0].look.weights().mean(0)
    )
    torch.testing.assert_close(tiles[3].look.weights(), new_scene.attentions[0].look.weights()[2])
