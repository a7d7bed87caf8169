"""Pictures that people save, words of any script, and heads whose weights are not all in the file."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
import torch
from tests.browser.conftest import scene

from regard.explorer import write

TEXT = "¿Dónde está el gato?"
WORDS = ["שלום", "مرحبا", "القسطنطينيةوالإسكندريةالكبرى", "世界", "日本語", "cat"]


def saved(page, name: str, number: int = 0) -> bytes:
    """The content of the file that a button of this name saves."""
    with page.expect_download() as download:
        page.get_by_role("button", name=name, exact=True).nth(number).click()
    assert download.value.suggested_filename.endswith(f".{name.lower()}")
    return download.value.path().read_bytes()


@pytest.mark.parametrize("view", ["translate", "heads", "map", "numbers", "change"])
def test_every_view_is_saved_as_png_and_svg(translators, open_page, view):
    state = f"view={view}&text={quote(TEXT)}&attention=decoder.1.cross&head=1&row=1&column=1"
    recorded = open_page(f"{translators}#{state}")
    page = recorded.page
    page.get_by_role("button", name="SVG", exact=True).first.wait_for()
    page.wait_for_timeout(500)
    png, svg = saved(page, "PNG"), saved(page, "SVG").decode()
    assert png.startswith(b"\x89PNG")
    assert svg.startswith("<svg ")
    assert "<text" in svg
    if view == "heads":  # a picture of each head, with its name
        assert svg.count("<image") == page.locator("ul.grid li").count() == 36
        assert svg.count("data:image/png;base64,") == svg.count("<image")
        assert "cross 2.3" in svg
    assert page.evaluate(
        """svg => !new DOMParser().parseFromString(svg, "image/svg+xml").querySelector("parsererror")""",
        svg,
    )
    assert recorded.errors == []


def test_words_from_right_to_left_keep_their_side(open_page, tmp_path):
    path = write(tmp_path / "words.html", scene(1, 1, len(WORDS), WORDS))
    page = open_page(path.as_uri() + "#view=heads&attention=layer.0.self&head=0").page
    page.locator("figure.matrix canvas").first.wait_for()
    svg = saved(page, "SVG", 1).decode()
    texts = re.findall(r'direction="(\w+)" text-anchor="(\w+)"( transform)?[^>]*>([^<]*)<', svg)
    for word in ("שלום", "مرحبا"):
        assert {each[:3] for each in texts if each[3] == word} == {
            ("rtl", "start", ""),  # a row's label ends at the matrix, at the right
            ("rtl", "end", " transform"),
        }
    assert {each[:3] for each in texts if each[3] == "世界"} == {
        ("ltr", "end", ""),
        ("ltr", "start", " transform"),
    }
    assert any(each[3].endswith("…") and each[0] == "rtl" for each in texts)


def test_a_head_without_whole_weights_shows_the_largest_keys_of_a_row(open_page, tmp_path):
    actual_scene = scene(2, 16, 300)  # too many weights to be sent one by one
    path = write(tmp_path / "large.html", actual_scene)
    recorded = open_page(path.as_uri() + "#view=heads", offline=True)
    page = recorded.page
    page.locator("ul.grid button").nth(20).click()
    picture = page.locator("figure.matrix canvas").first
    page.wait_for_function("document.querySelector('figure.matrix canvas')?.clientHeight > 100")
    box = picture.bounding_box()
    picture.click(position={"x": box["width"] / 2, "y": box["height"] / 2})  # beside the axes
    row = int(page.get_by_label("Row", exact=True).input_value())
    assert abs(row - 150) < 10
    assert f"row={row}" in page.url
    page.get_by_label("Row", exact=True).fill("151")
    table = page.get_by_role("region", name="The chosen row")
    table.get_by_text("t151 (151) read most").wait_for()
    weights, keys = (x[4, 151] for x in actual_scene.attentions[1].look.top(8))
    rows = table.locator("tbody tr").all()
    assert [each.locator("td").first.inner_text() for each in rows] == [
        f"t{key} ({key})" for key in keys.tolist()
    ]
    numbers = torch.tensor([float(each.locator("td").nth(1).inner_text()) for each in rows])
    torch.testing.assert_close(numbers, weights, atol=1e-3, rtol=0)
    assert recorded.errors == []


PIXELS = """canvas => {
    const found = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    const colour = (x, y) => found.slice(4 * (y * canvas.width + x), 4 * (y * canvas.width + x) + 3).join();
    return [colour(canvas.width - 1, 0), colour(0, canvas.height - 1), colour(0, 0)];
}"""


def test_colours_can_be_logarithmic_and_masked_pixels_have_their_own(open_page, tmp_path):
    path = write(tmp_path / "large.html", scene(2, 16, 300))
    page = open_page(path.as_uri() + "#view=heads").page
    picture = page.locator("ul.grid canvas").first
    page.wait_for_function("document.querySelector('ul.grid canvas').width === 128")
    masked, low, high = picture.evaluate(PIXELS)
    assert masked not in (low, high)
    page.get_by_label("Colours").select_option("logarithmic")
    assert "scale=log" in page.url
    page.wait_for_timeout(200)
    stays, other_pixel, top = picture.evaluate(PIXELS)
    assert (stays, top) == (masked, high)
    assert other_pixel != low
    page.get_by_role("tab", name="Map").click()
    legend = page.locator(".legend")
    expect = pytest.importorskip("playwright.sync_api").expect
    expect(legend).to_have_text(
        "0.01% 100%, logarithmic: 1.0% in the middle masked: may not be read"
    )
    page.get_by_label("Colours").select_option("square root")
    expect(legend).to_have_text("0% 100%, square root: 25% in the middle masked: may not be read")


def test_tables_hold_the_measures_and_the_numbers(translators, open_page):
    state = f"text={quote(TEXT)}&attention=decoder.1.cross&head=1&row=1&column=1"
    page = open_page(f"{translators}#view=heads&{state}").page
    page.get_by_text("Table of measures").click()
    rows = page.get_by_role("region", name="Measures of the heads").locator("tbody tr")
    rows.first.wait_for()
    assert rows.count() == page.locator("ul.grid li").count()
    page.get_by_role("tab", name="Numbers").click()
    page.get_by_text("Table of numbers").first.click()
    page.get_by_role("region", name="Numbers of the strips").wait_for()


def test_the_means_of_layers_are_those_of_their_heads(translators, open_page):
    page = open_page(f"{translators}#view=heads&sort=entropy&text={quote(TEXT)}").page
    heads = page.locator("ul.grid li")
    heads.first.wait_for()

    def numbers():
        """The number of each tile by its label."""
        labels = (" ".join(each.split()).rpartition(" ") for each in heads.all_inner_texts())
        return {label: float(number) for label, _, number in labels}

    entropy = numbers()
    page.get_by_label("means of layers").check()
    assert heads.count() == 9
    assert "means=1" in page.url
    entropies = numbers()
    of_heads = [value for name, value in entropy.items() if name.startswith("cross 1.")]
    (mean,) = [value for name, value in entropies.items() if name.startswith("cross 1")]
    assert mean == pytest.approx(sum(of_heads) / len(of_heads), abs=2e-3)
    page.locator("ul.grid button").first.click()
    page.locator("figure.matrix").first.wait_for()
