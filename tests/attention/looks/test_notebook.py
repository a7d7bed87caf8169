"""What a notebook shows of a look: small, of its own, escaped, and nothing that takes long."""

from __future__ import annotations

import io
import re
from base64 import b64decode
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.attention.looks import StoredLook, notebook
from regard.attention.looks.caption import Caption
from regard.attention.normalisers import Identity


def pictures(look: regard.Look) -> list[Any]:
    """The pixels of every picture, (height, width, 4), each from 0 to 1."""
    from matplotlib.image import imread

    sources = re.findall(r'src="data:image/png;base64,([^"]+)"', look._repr_html_())
    return [imread(io.BytesIO(b64decode(source)), "png") for source in sources]


def test_the_more_weight_the_less_transparent() -> None:
    weights = torch.tensor([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]])
    (pixels,) = pictures(StoredLook(weights))
    assert pixels.shape == (2, 3, 4)
    assert torch.allclose(torch.tensor(pixels[..., 3]), weights, atol=0.01)
    assert "the darkest is 1" in StoredLook(weights)._repr_html_()


def test_a_picture_for_each_head_up_to_eight() -> None:
    look = regard.look(torch.randn(3, 4, 60, 2), torch.randn(3, 4, 70, 2))
    visible_pictures = pictures(look)
    assert [each.shape for each in visible_pictures] == [(48, 48, 4)] * 8
    assert "4 more" in look._repr_html_()
    assert "[1, 3]" in look._repr_html_()
    assert len(look._repr_html_()) < 60_000


def test_weights_below_zero_have_their_own_colour_and_what_is_no_number_none() -> None:
    look = regard.look(
        torch.ones(1, 1), torch.tensor([[1.0], [-1.0], [torch.nan]]), normaliser=Identity()
    )
    (pixels,) = pictures(look)
    assert pixels[0, :, 3].tolist() == [1.0, 1.0, 0.0]
    assert pixels[0, 0, 0] < pixels[0, 1, 0]


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 2, 3)])
def test_nothing_is_drawn_of_nothing(shape: tuple[int, ...]) -> None:
    html = StoredLook(torch.zeros(shape))._repr_html_()
    assert "<img" not in html
    assert str(shape) in html


def test_what_takes_long_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "QUICK", 11)
    calls: list[int] = []

    def score(query: Tensor, key: Tensor) -> Tensor:
        calls.append(1)
        return query @ key.mT

    look = regard.look(torch.ones(3, 2), torch.ones(4, 2), score=score)
    calls.clear()  # one row, when it was made
    assert ".map(height, width)" in look._repr_html_()
    assert not calls


def test_it_stands_alone_and_is_escaped() -> None:
    class Odd(StoredLook):
        def __repr__(self) -> str:
            return "<b onclick='x'>&"

    html = Odd(torch.eye(2))._repr_html_()
    assert "&lt;b onclick=&#x27;x&#x27;&gt;&amp;" in html
    assert "http" not in html
    assert "<script" not in html


def test_the_caption_is_shown_and_escaped() -> None:
    look = regard.look(torch.zeros(2, 3, 3, 4), torch.zeros(2, 3, 3, 4))
    look.caption = Caption("<Bert>: encoder.1.self", (range(2), (4, 9, 11)), headed=True)
    html = look[1]._repr_html_()
    assert "&lt;Bert&gt;: encoder.1.self" in html
    assert re.findall("<figcaption>(.*?)<", html) == [
        f"entry 1, head {head}" for head in (4, 9, 11)
    ]


def test_masked_cells_differ_from_zeros() -> None:
    x = torch.tensor([[0.0], [100.0]])
    look = regard.look(x, torch.tensor([[0.0], [2.0]]), mask=regard.masks.causal(align="start"))
    (pixels,) = pictures(look)
    assert (pixels * 255).round().astype(int)[0, 1].tolist() == list(notebook.GREY)
    assert pixels[1, 0, 3] == 0
    assert "grey: masked" in look._repr_html_()
    (zeros,) = pictures(StoredLook(torch.eye(2)))
    assert zeros[0, 1, 3] == 0
    assert "masked" not in StoredLook(torch.eye(2))._repr_html_()


def test_a_cell_of_several_weights_is_masked_where_all_of_them_are() -> None:
    x = torch.zeros(2 * notebook.SIDE, 1)
    look = regard.look(x, x, mask=regard.masks.causal(align="start"))
    (pixels,) = pictures(look)
    grey = (pixels[..., :3] == pixels[..., :1]).all(-1) & (pixels[..., 3] > 0)
    assert grey.tolist() == torch.ones(48, 48).triu(1).bool().tolist()
