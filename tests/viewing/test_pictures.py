"""Figures: the strongest cell is where the weight is, words stand as they are, none grows endlessly."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
from PIL import Image

from regard.viewing import figures, pictures
from regard.viewing.alignment import Alignment

ODD = ["cost $5", "$\\frac{", "人工知能", "مرحبا", "x\u202ey", "\ud800", "a" * 10_000, "</s>"]


def _random(queries: int, keys: int, seed: int = 0) -> Alignment:
    weights = np.random.default_rng(seed).dirichlet(np.ones(keys), queries)
    names = [f"q{n}" for n in range(queries)], [f"k{n}" for n in range(keys)]
    return Alignment(weights, *names, title="a title")


def _pixels(figure: pictures.Figure) -> np.ndarray:
    content = figures.render(figure, "png", dots_per_inch=60)
    return np.asarray(Image.open(io.BytesIO(content)).convert("L"), dtype=float)


def _texts(figure: pictures.Figure) -> list[str]:
    from matplotlib.text import Text

    return [
        text.get_text() for text in figure.findobj(Text) if text.get_visible() and text.get_text()
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [(5, 7), (60, 70)])  # tiles, and an image
def test_the_strongest_cell_is_where_the_weight_is_largest(
    theme: str, size: tuple[int, int]
) -> None:
    weights = np.zeros(size)
    weights[1, 5] = 1.0
    alignment = Alignment(weights, [""] * size[0], [""] * size[1])
    figure = pictures.heat_map(alignment, theme)
    axes, picture = figure.axes[0], _pixels(figure)
    height, width = picture.shape
    box = axes.get_position()
    grid = picture[int(height * (1 - box.y1)) : int(height * (1 - box.y0))]
    grid = grid[:, int(width * box.x0) : int(width * box.x1)]
    row, column = divmod(int(grid.argmin() if theme == "light" else grid.argmax()), grid.shape[1])
    assert abs(row / grid.shape[0] * size[0] - 1.5) <= 0.75
    assert abs(column / grid.shape[1] * size[1] - 5.5) <= 0.75


def test_queries_go_down_and_keys_across_on_top() -> None:
    figure = pictures.heat_map(_random(3, 4))
    axes = figure.axes[0]
    figure.draw_without_rendering()
    labels = [*axes.get_xticklabels(), *axes.get_yticklabels()]
    places = {text.get_text(): text.get_window_extent() for text in labels}
    assert places["q0"].y0 > places["q2"].y1
    assert axes.get_ylim() == (3.0, 0.0)
    assert places["k0"].x0 < places["k3"].x0
    assert all(places[f"k{n}"].y0 > places["q0"].y1 for n in range(4))


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_odd_words_stand_literally_and_without_a_warning(ending: str) -> None:
    alignment = Alignment(np.eye(len(ODD)), ODD, ODD, title="$x_1$ 人 \\alpha")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = pictures.heat_map(alignment)
        assert figures.render(figure, ending)
    texts = _texts(figure)
    assert "cost $5" in texts
    assert "$\\frac{" in texts
    assert "x\\u202ey" in texts
    assert "$x_1$ 人 \\alpha" in texts
    assert max(map(len, texts)) <= 24


@pytest.mark.parametrize("size", [(1, 1), (1, 400), (250, 300)])
def test_the_size_of_a_figure_is_bounded(size: tuple[int, int]) -> None:
    width, height = pictures.heat_map(_random(*size)).get_size_inches()
    assert 1 < width < 28
    assert 1 < height < 28


def test_everything_written_lies_within_the_figure() -> None:
    alignment = Alignment(np.eye(3), ["a" * 30, "b", "c"], ["d", "e", "f" * 30], "t" * 300)
    figure = pictures.heat_map(alignment)
    figure.draw_without_rendering()
    labels = [t for axes in figure.axes for t in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    for text in [*figure.texts, *labels]:
        box = text.get_window_extent().transformed(figure.transFigure.inverted())
        assert min(box.x0, box.y0) >= 0, text
        assert max(box.x1, box.y1) <= 1, text


def test_numbers_are_percent() -> None:
    shares = Alignment([[0.62, 0.09]], ["a"], ["x", "y"])
    assert "62" in _texts(pictures.heat_map(shares))
    assert "9" not in _texts(pictures.heat_map(shares))


def test_multiples_name_layers_and_heads_and_share_one_scale() -> None:
    panels = {
        layer: {head: _random(4, 5, 10 * layer + head) for head in (0, 1, 2)} for layer in (0, 1)
    }
    figure = pictures.small_multiples(panels, title="cross")
    texts = _texts(figure)
    assert {"layer 0", "layer 1", "head 0", "head 1", "head 2", "cross"} <= set(texts)
    assert texts.count("q0") == 2  # once a layer
    assert texts.count("k0") == 3  # once a head
    limits = {axes.collections[0].get_clim() for axes in figure.axes[:6]}
    assert len(limits) == 1


def test_many_multiples_stay_bounded() -> None:
    panels = {layer: {head: _random(3, 2) for head in range(16)} for layer in range(2)}
    width, height = pictures.small_multiples(panels).get_size_inches()
    assert max(width, height) < 24


def test_masked_cells_are_drawn_unlike_zeros() -> None:
    weights, words = np.array([[1.0, 0.0, 0.0]]), list("abc")
    readable = np.array([[True, True, False]])
    figure = pictures.heat_map(Alignment(weights, ["q"], words, readable=readable))
    plain = pictures.heat_map(Alignment(weights, ["q"], words))
    assert "hatched: masked, may not be read" in _texts(figure)
    assert "hatched: masked, may not be read" not in _texts(plain)
    cells = figure.axes[0].collections[0].get_array()
    assert np.ma.getmaskarray(cells).ravel().tolist() == [False, False, True]
    assert figure.axes[0].patch.get_hatch()


def test_words_of_long_sentences_can_be_read() -> None:
    from matplotlib.text import Text

    long = Alignment(np.eye(60), ["word"] * 60, ["mot"] * 60)
    panels = {layer: dict.fromkeys(range(4), long) for layer in range(2)}
    for figure in (pictures.heat_map(long), pictures.small_multiples(panels)):
        texts = [text for text in figure.findobj(Text) if text.get_text() in ("word", "mot")]
        assert min(text.get_fontsize() for text in texts) >= 5.5
        figure.draw_without_rendering()
        rows = [text for text in texts if text.get_text() == "word"][:2]
        boxes = [row.get_window_extent() for row in rows]
        assert abs(boxes[0].y0 - boxes[1].y0) >= 0.7 * boxes[0].height


def test_a_subtitle_stands_below_the_title() -> None:
    figure = pictures.small_multiples({0: {0: _random(3, 3)}}, title="a → b", subtitle="es-en")
    above, below = (text for text in figure.texts if text.get_text() in ("a → b", "es-en"))
    assert above.get_text() == "a → b"
    assert above.get_position()[1] > below.get_position()[1]


@pytest.mark.parametrize("kind", ["heat_map", "small_multiples"])
def test_a_notebook_shows_a_picture(kind: str) -> None:
    options = {
        "heat_map": lambda: pictures.heat_map(_random(2, 2)),
        "small_multiples": lambda: pictures.small_multiples({0: {0: _random(2, 2)}}),
    }
    assert options[kind]()._repr_png_().startswith(b"\x89PNG")
