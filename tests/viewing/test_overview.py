"""A look of any size as a figure."""

from __future__ import annotations

import pytest
import torch

import regard
from regard.attention.shapes import ShapeError
from regard.viewing import overview


def a_look(*batch: int) -> regard.Look:
    torch.manual_seed(0)
    return regard.look(torch.randn(*batch, 20, 4), torch.randn(*batch, 30, 4))


def test_a_panel_for_each_head_all_on_one_scale() -> None:
    look = a_look(2, 3)
    figure = look.plot(height=10, width=5)
    *panels, bar = figure.axes[:6], figure.axes[-1]
    shown = [axes.images[0] for axes in panels[0]]
    assert [axes.get_title() for axes in panels[0]] == [
        "0, 0",
        "0, 1",
        "0, 2",
        "1, 0",
        "1, 1",
        "1, 2",
    ]
    cells = torch.stack([torch.as_tensor(image.get_array().data) for image in shown])
    assert torch.allclose(cells.view(2, 3, 10, 5), look.map(10, 5))
    assert {image.get_clim() for image in shown} == {(0.0, float(cells.max()))}
    assert bar.get_ylabel() == "weight"


def test_the_axes_are_positions() -> None:
    figure = a_look().plot(rows=range(5, 10), columns=slice(-4, None), reduce="max")
    assert tuple(figure.axes[0].images[0].get_extent()) == (26.0, 30.0, 10.0, 5.0)
    assert figure.axes[-1].get_ylabel() == "highest weight"
    odd = a_look().plot(rows=[4, 9, 2])
    assert tuple(odd.axes[0].images[0].get_extent()) == (0.0, 30.0, 3.0, 0.0)


def test_one_entry_of_a_batch() -> None:
    look = a_look(20, 2)
    figure = look.plot(entry=7)
    assert [axes.get_title() for axes in figure.axes[:2]] == ["7, 0", "7, 1"]
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
