"""A look of any size as a figure."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib import image

import regard
from regard.attention.looks.caption import Caption
from regard.attention.shapes import ShapeError
from regard.viewing import overview
from regard.viewing.alignment import round_up


def a_look(*batch: int) -> regard.Look:
    torch.manual_seed(0)
    return regard.look(torch.randn(*batch, 20, 4), torch.randn(*batch, 30, 4))


def ticks(axis: Any) -> list[str]:
    """What stands beside an axis."""
    axis.figure.draw_without_rendering()
    return [tick.get_text() for tick in axis.get_ticklabels() if tick.get_text()]


def test_a_panel_for_each_head_all_on_one_scale() -> None:
    look = a_look(2, 3)
    figure = look.plot(height=10, width=5)
    *panels, bar = figure.axes[:6], figure.axes[-1]
    images = [axes.images[0] for axes in panels[0]]
    titles = ["[0, 0]", "[0, 1]", "[0, 2]", "[1, 0]", "[1, 1]", "[1, 2]"]
    assert [axes.get_title() for axes in panels[0]] == titles
    cells = torch.stack([torch.as_tensor(image.get_array().data) for image in images])
    assert torch.allclose(cells.view(2, 3, 10, 5), look.map(10, 5))
    assert {image.get_clim() for image in images} == {(0.0, round_up(float(cells.max())))}
    assert bar.get_ylabel() == "weight"


def test_the_axes_are_positions() -> None:
    figure = a_look().plot(rows=range(5, 10), columns=slice(-4, None), reduce="max")
    assert tuple(figure.axes[0].images[0].get_extent()) == (25.5, 29.5, 9.5, 4.5)
    assert figure.axes[-1].get_ylabel() == "highest weight"
    odd = a_look().plot(rows=[4, 9, 2])
    assert tuple(odd.axes[0].images[0].get_extent()) == (-0.5, 29.5, 2.5, -0.5)
    assert ticks(odd.axes[0].yaxis) == ["4", "9", "2"]


def test_one_entry_of_a_batch() -> None:
    look = a_look(20, 2)
    figure = look.plot(entry=7)
    assert [axes.get_title() for axes in figure.axes[:2]] == ["[7, 0]", "[7, 1]"]
    cells = torch.as_tensor(figure.axes[1].images[0].get_array().data)
    assert torch.allclose(cells, look.map(20, 30)[7, 1])
    assert len(look.plot(entry=(7, 1)).axes) == 2


def test_too_many_panels_or_none() -> None:
    with pytest.raises(ShapeError, match=r"batch axes \[20\], of which entry \[\] leaves 20 maps"):
        a_look(20).plot()
    with pytest.raises(ShapeError, match="pass an entry that leaves 1 to 16"):
        a_look(2).plot(entry=(0, 1))
    with pytest.raises(ShapeError, match="leaves 0 maps"):
        a_look(0).plot()


def test_both_themes_can_be_saved() -> None:
    from regard.viewing import figures

    light, dark = (overview.plot(a_look(), theme=theme) for theme in ("light", "dark"))
    assert light.get_facecolor() != dark.get_facecolor()
    assert figures.render(light, "png", dots_per_inch=40).startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="theme"):
        overview.plot(a_look(), theme="pink")


def test_the_caption_of_a_look_names_model_attention_entry_and_head() -> None:
    look = a_look(2, 3)
    look.caption = Caption("BertModel: encoder.1.self", (range(2), (2, 5, 7)), headed=True)
    figure = look.plot(entry=1)
    assert figure.get_suptitle() == "BertModel: encoder.1.self"
    heads = ["entry 1, head 2", "entry 1, head 5", "entry 1, head 7"]
    assert [axes.get_title() for axes in figure.axes[:3]] == heads
    assert look[1, 2].plot().axes[0].get_title() == "entry 1, head 7"
    assert look.plot(title="mine").get_suptitle() == "mine"


def test_one_query_has_one_tick_and_generated_queries_their_own_positions() -> None:
    look = regard.look(torch.zeros(1, 4), torch.zeros(6, 4))
    assert ticks(look.plot().axes[0].yaxis) == ["0"]
    look.caption = Caption(places=torch.tensor([5]))
    assert ticks(look.plot().axes[0].yaxis) == ["5"]
    batch_look = regard.look(torch.zeros(4, 4), torch.zeros(9, 4))
    batch_look.caption = Caption(places=torch.arange(5, 9))
    assert ticks(batch_look.plot().axes[0].yaxis) == ["5", "6", "7", "8"]
    assert ticks(batch_look.plot(rows=[0, 3]).axes[0].yaxis) == ["5", "8"]


def test_words_name_queries_and_keys() -> None:
    look = regard.look(torch.zeros(2, 4), torch.zeros(3, 4))
    axes = look.plot(queries=["the", "cat"], keys=["el", "gato", "مرحبا"]).axes[0]
    assert ticks(axes.yaxis) == ["the", "cat"]
    assert ticks(axes.xaxis) == ["el", "gato", "مرحبا"]
    piece = look.plot(queries=["the", "cat"], rows=[1]).axes[0]
    assert ticks(piece.yaxis) == ["cat"]


@pytest.mark.parametrize("rows", [None, [0], []])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_words_are_as_many_as_queries_or_keys(count: int, rows: list[int] | None) -> None:
    look = regard.look(torch.zeros(2, 4), torch.zeros(2, 4))
    for kind, axis in (("query", "queries"), ("key", "keys")):
        with pytest.raises(ShapeError, match=f"{count} words for 2: pass one for each {kind}"):
            look.plot(rows=rows, **{axis: ["word"] * count})


def test_masked_cells_are_hatched_and_zeros_are_not() -> None:
    query = torch.tensor([[200.0], [-200.0]])
    key = torch.tensor([[1.0], [-1.0], [1.0]])
    look = regard.look(query, key, mask=torch.tensor([True, True, False]))
    assert look.weights()[0].tolist() == [1.0, 0.0, 0.0]
    axes, *_ = look.plot().axes
    assert axes.patch.get_hatch()
    cells = axes.images[0].get_array()
    assert np.ma.getmaskarray(cells).tolist() == [[False, False, True]] * 2
    plain = regard.look(query, key).plot()
    assert not np.ma.is_masked(plain.axes[0].images[0].get_array())
    assert "hatched" in look.plot().get_supxlabel()
    assert "hatched" not in plain.get_supxlabel()


def test_a_cell_of_several_weights_is_masked_where_all_of_them_are() -> None:
    x = torch.randn(64, 4)
    look = regard.look(x, x, mask=regard.masks.causal(align="start"))
    cells = look.plot(8, 8).axes[0].images[0].get_array()
    above = np.triu(np.ones((8, 8), dtype=bool), 1)
    assert (np.ma.getmaskarray(cells) == above).all()


def test_a_largest_weight_that_is_small_is_not_drawn_in_full_ink() -> None:
    look = regard.look(torch.zeros(2, 4), torch.zeros(9, 4))  # each weight is 0.111
    assert look.plot().axes[0].images[0].get_clim() == (0.0, 0.2)


def test_a_notebook_shows_the_figure() -> None:
    assert a_look().plot()._repr_png_().startswith(b"\x89PNG")


def test_a_notebook_with_inline_pictures_does_not_cut_the_title_off() -> None:
    """`%matplotlib inline` saves figures with `bbox_inches="tight"`."""
    figure, content = a_look().plot(title="a title"), io.BytesIO()
    figure.savefig(content, dpi=100, bbox_inches="tight", pad_inches=0)
    content.seek(0)
    wide, tall = image.imread(content).shape[1::-1]
    assert (wide, tall) == pytest.approx(tuple(100 * figure.get_size_inches()), abs=1)


def test_the_words_below_every_panel_are_turned_and_small() -> None:
    panels = a_look(2).plot(keys=[f"word {place}" for place in range(a_look(2).shape[-1])]).axes[:2]
    styles = [
        {(tick.get_rotation(), tick.get_fontsize()) for tick in panel.get_xticklabels()}
        for panel in panels
    ]
    assert styles == [{(90.0, 7.0)}] * 2
