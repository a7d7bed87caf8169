"""Sentences with gold links: heads sorted by how they agree, links marked in the matrix."""

from __future__ import annotations

import pytest
from tests.browser.conftest import explored
from tests.explorer.bundles import Bundle
from tests.explorer.test_agreement import GOLD

from regard.explorer.contract import pack
from regard.explorer.translating import of_gold
from regard.translation.translator import Translator


@pytest.fixture(scope="module")
def paired(browser):
    from regard.explorer.server import Explorer, Models

    with explored(Explorer(Models({"es-en": "es-en"}), gold=GOLD)) as address:
        yield address


def short_label(name, head):
    """The label of a head in the grid: "cross 1.0" of decoder.1.cross, "enc 0.3" of encoder.0.self."""
    stack, layer, kind = name.split(".")
    return f"{'cross' if kind == 'cross' else stack[:3]} {layer}.{head}"


def test_heads_are_sorted_by_their_agreement_with_gold_links(paired, open_page):
    recorded = open_page(paired)
    page = recorded.page
    page.get_by_role("button", name="¿ Dónde está la casa grande ?").click()
    expect = pytest.importorskip("playwright.sync_api").expect
    expect(page.locator("h1")).to_have_text(
        "¿ Dónde está la casa grande? → Where is the big house?"
    )
    page.get_by_role("tab", name="Heads").click()
    page.get_by_label("Sort by").select_option("agreement")
    scene, _ = of_gold(Translator.open("es-en"), GOLD, 0)
    header = Bundle(pack(scene)).header
    expected = [
        (value, short_label(one["name"], head))
        for one in header["attentions"]
        for head, value in zip(one["heads"], one["measures"].get("agreement", []), strict=False)
    ]
    buttons = page.locator("ul.grid button").all_inner_texts()[: len(expected)]
    values = [float(text.split()[-1]) for text in buttons]
    assert values == sorted(values, reverse=True)
    assert values[0] == pytest.approx(max(expected)[0], abs=1e-3)
    named = {name: value for value, name in expected}
    for text, value in zip(buttons, values, strict=True):
        assert value == pytest.approx(named[" ".join(text.split()[:-1])], abs=1e-3)
    page.locator("ul.grid button").first.click()
    matrix = page.locator("figure.matrix canvas").first
    matrix.focus()
    page.keyboard.press("ArrowRight")  # the first cell: "Where" and "¿"
    page.keyboard.press("ArrowRight")
    printed_text = page.locator(".said").inner_text()
    assert printed_text.startswith("Where ← Dónde ")
    assert printed_text.endswith("%, gold link")
    page.keyboard.press("ArrowRight")
    assert page.locator(".said").inner_text().endswith("%")
    page.reload()
    expect(page.locator("ul.grid button.chosen")).to_have_count(1)
    assert page.get_by_label("Sort by").input_value() == "agreement"
    assert recorded.errors == []


def test_a_typed_sentence_takes_the_place_of_one_with_links(paired, open_page):
    page = open_page(paired + "#pair=0").page
    expect = pytest.importorskip("playwright.sync_api").expect
    page.get_by_text("possible one").first.wait_for()
    page.locator(".sentence").fill("El gato negro duerme.")
    page.get_by_role("button", name="Translate", exact=True).click()
    expect(page.locator("h1")).to_contain_text("El gato negro duerme. → ")
    assert "pair=" not in page.url
    assert page.get_by_text("gold link", exact=True).count() == 0


def test_a_chosen_cell_becomes_a_gold_link_and_none_again(paired, open_page):
    recorded = open_page(
        paired + "#view=heads&attention=decoder.1.cross&text=El gato negro duerme."
    )
    page = recorded.page
    expect = pytest.importorskip("playwright.sync_api").expect
    button = page.get_by_role("button", name="Make it a gold link")
    expect(button).to_be_disabled()
    page.locator("figure.matrix canvas").first.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    button.click()
    expect(page.get_by_label("Sort by").get_by_text("agreement", exact=True)).to_have_count(1)
    assert "links=2-1" in page.url  # the third word of the source, the second of the translation
    page.reload()
    page.get_by_role("button", name="Remove the gold link").click()
    expect(page.get_by_label("Sort by").get_by_text("agreement", exact=True)).to_have_count(0)
    assert "links=" not in page.url
    assert recorded.errors == []
