"""The explorer in a real browser."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest
import torch
from tests.browser.conftest import explored, scene

import regard
from regard.explorer import Attention, Scene, Sequence, write
from regard.explorer.translating import explore
from regard.translation.translator import Translator
from regard.watching.edits import Scale

TEXT = "La hermana de mi madre vive en una casa grande."
EVIL = "</script><img src=x onerror=alert(1)>"
AXE = Path(__file__).parents[2] / "explorer-web" / "node_modules" / "axe-core" / "axe.min.js"
VIEWS = ("translate", "heads", "map", "numbers", "change")


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator.open("es-en")


def address(base: str, **state: str | int) -> str:
    return f"{base}#" + "&".join(f"{name}={quote(str(value))}" for name, value in state.items())


def test_one_arrow_key_moves_one_word_and_the_lit_row_matches(translators, open_page, translator):
    page = open_page(address(translators, text=TEXT)).page
    words = page.locator(".target-words button")
    words.first.wait_for()
    words.first.click()
    scene, _ = explore(translator, TEXT)
    cross = scene.attentions[-1]
    source, target = (scene.sequences[at].words for at in (0, 1))
    mean = cross.look.weights().mean(0)
    for place, (top, bottom, _) in enumerate(target):
        assert page.locator(".target-words button[aria-pressed=true]").count() == 1
        pressed = words.nth(place)
        assert pressed.get_attribute("aria-pressed") == "true"
        texts = [
            float(each.get_attribute("data-weight"))
            for each in page.locator(".source-words li").all()
        ]
        expected = [float(mean[top:bottom, a:b].sum(1).mean()) for a, b, _ in source]
        assert texts == pytest.approx(expected, abs=1e-3)
        if place:
            text = page.locator(".said").inner_text()
            best = max(range(len(texts)), key=texts.__getitem__)
            assert text.startswith(f"{target[place][2]} ← {source[best][2]} ")
            assert text.endswith("%")
        page.keyboard.press("ArrowRight")


def test_a_chosen_cell_is_the_same_in_every_view(translators, open_page):
    """Words in one view are pieces in another: "sister" is the third word and the sixth piece."""
    page = open_page(address(translators, text=TEXT, attention="decoder.1.cross")).page
    page.get_by_role("button", name="sister", exact=True).click()
    page.get_by_role("tab", name="Numbers").click()
    page.get_by_role("heading", name="Why this score: sister · hermana").wait_for()
    page.get_by_role("tab", name="Map").click()
    page.locator(".exact").wait_for()
    assert page.locator(".exact").inner_text().startswith("sister (5) ← hermana (1)")
    page.get_by_role("tab", name="Translate").click()
    pressed = page.locator(".target-words button[aria-pressed=true]")
    assert pressed.all_inner_texts() == ["sister"]


def test_a_live_page_is_saved_as_a_file_that_needs_no_network(translators, open_page, tmp_path):
    page = open_page(address(translators, text=TEXT)).page
    page.locator(".target-words button").first.wait_for()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save as a file").click()
    path = tmp_path / "regard.html"
    saved.value.save_as(path)
    title = page.locator("h1").inner_text()
    recorded = open_page(path.as_uri() + "#view=heads", offline=True)
    assert recorded.page.locator("h1").inner_text() == title
    recorded.page.wait_for_selector("ul.grid canvas")
    assert recorded.page.get_by_role("button", name="Save as a file").count() == 0
    assert recorded.errors == []


def test_an_attention_too_large_for_a_file_is_refused_with_a_sentence(deep, open_page):
    page = open_page(address(deep[0], view="map")).page
    page.get_by_role("button", name="Save as a file").click()
    page.get_by_text("more than 67,108,864 weights does not go into a file").wait_for()


def test_a_head_switched_off_is_that_of_python_and_undo_restores_the_text(
    translators, open_page, translator
):
    page = open_page(
        address(translators, view="change", text=TEXT, attention="decoder.2.cross")
    ).page
    element_before = page.locator(".text-before")
    element_before.wait_for()
    text = element_before.inner_text()
    with page.expect_response("**/api/change"):
        page.get_by_role("button", name="Off").click()
    edits = {"decoder.2.cross": [Scale(0.0)]}
    scene, _ = explore(translator, TEXT, edits=edits)
    expect = pytest.importorskip("playwright.sync_api").expect
    element_after = page.locator(".text-after")
    expect(element_after).to_have_text(scene.translation["translation"])
    assert scene.translation["translation"] != text
    page.locator(".undo").click()
    expect(element_after).to_have_text("–")
    assert element_before.inner_text() == text
    page.locator(".redo").click()
    expect(element_after).to_have_text(scene.translation["translation"])


def test_the_logits_of_a_head_switched_off(translator):
    """What the server computes: the same change, made by hand on the weights of the model."""
    from regard.explorer.translating import log_probability

    translation = translator.translate([TEXT])[0]
    edited = log_probability(translator, translation, {"decoder.1.cross": [Scale(0.0, heads=[2])]})
    other_translator = Translator.open("es-en")
    with torch.no_grad():
        module = other_translator.model.get_submodule("decoder.1.cross_attention")
        module.output_projection.weight[:, 2 * module.d_head : 3 * module.d_head] = 0
    other_translator.refresh()
    assert edited == pytest.approx(log_probability(other_translator, translation), abs=1e-5)
    assert edited != pytest.approx(log_probability(translator, translation), abs=1e-3)


def test_products_sum_to_the_score_and_weights_to_one(translators, open_page):
    page = open_page(
        address(
            translators,
            view="numbers",
            text=TEXT,
            attention="decoder.1.cross",
            head=1,
            row=3,
            column=5,
        )
    ).page
    page.locator(".weights-sum").wait_for()

    def number(text: str) -> float:
        return float(text.replace("−", "-"))

    terms = sum(number(each) for each in page.locator("td.term").all_inner_texts())
    assert terms == pytest.approx(number(page.locator(".sum").inner_text()), abs=0.01)
    assert number(page.locator(".weights-sum").inner_text()) == pytest.approx(1, abs=1e-3)
    weights = page.locator("td.weight").all()
    total = sum(float(each.get_attribute("data-weight")) for each in weights)
    assert total == pytest.approx(1, abs=1e-5)


def test_a_page_of_144_heads_of_512_tokens_is_small(open_page, tmp_path):
    path = write(tmp_path / "heads.html", scene(12, 12, 512))
    assert path.stat().st_size < 10e6
    recorded = open_page(path.as_uri() + "#view=heads")
    recorded.page.wait_for_selector("ul.grid li:nth-child(144) canvas")
    assert recorded.page.evaluate("document.querySelectorAll('*').length") < 20_000
    assert not recorded.errors


def test_a_file_needs_no_network_and_shows_evil_names_as_text(open_page, tmp_path):
    tokens = [EVIL, "javascript:alert(1)", '"onmouseover=alert(1)', "家", "שלום", "\u202eabc"]
    path = write(tmp_path / "evil.html", scene(2, 2, 6, tokens, title=EVIL))
    for view in ("heads", "map"):
        recorded = open_page(f"{path.as_uri()}#view={view}&attention=layer.1.self", offline=True)
        page = recorded.page
        page.wait_for_selector("canvas")
        assert page.locator("h1").inner_text() == EVIL
        assert page.locator("img").count() == 0
        assert [url for url in recorded.requests if not url.startswith(("file:", "data:"))] == []
        assert recorded.errors == []
    page = open_page(path.as_uri() + "#view=heads&attention=layer.1.self&head=0").page
    page.get_by_text("Table of numbers").first.click()
    page.locator("thead th").first.wait_for()
    headings = page.locator("thead th").all_inner_texts()
    assert EVIL in headings
    assert "\\u202eabc" in headings


def test_evil_input_to_the_server_is_text(translators, open_page):
    recorded = open_page(address(translators, text=EVIL))
    page = recorded.page
    page.locator(".target-words button").first.wait_for()
    assert page.locator("img").count() == 0
    assert not any("alert" in each or "dialog" in each for each in recorded.errors)


def test_terms_are_placed_in_the_text_that_the_command_prints(translators, open_page, translator):
    text = "El <b>gato</b> negro duerme."
    page = open_page(address(translators, text=text), width=360, height=800).page
    printed = page.locator(".printed")
    printed.wait_for()
    assert printed.locator("p").first.inner_text() == translator.translate([text])[0].text
    summary = page.locator(".terms summary")
    summary.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type(f"gato* = {EVIL}")
    with page.expect_response("**/api/printed"):
        page.keyboard.press("Control+Enter")
    printed.get_by_text("terms: gato → ").wait_for()
    assert EVIL in printed.inner_text()
    assert page.locator("img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.keyboard.type("\ngato* = cat")
    page.keyboard.press("Control+Enter")
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert "glossary:2: 'gato*' is 'cat' here" in alert.inner_text()
    assert page.locator(".target-words button").count()  # the model's own reading is there


def test_a_node_of_the_search_is_translated_from_there(translators, open_page, translator):
    page = open_page(address(translators, text=TEXT, tree=1)).page
    page.locator(".beam button.kept").first.wait_for()
    nodes = explore(translator, TEXT)[0].translation["beam"]
    buttons = page.locator(".beam button")
    assert buttons.count() == len(nodes)
    assert page.locator(".beam button.kept").count() == sum(node["kept"] for node in nodes)
    dropped = next(node for node in nodes if not node["kept"] and node["piece"].endswith("great"))
    with page.expect_response("**/api/translate"):
        page.locator(".beam button:not(.kept)").filter(has_text="great").first.click()
    page.get_by_text("free again").wait_for()
    expect = pytest.importorskip("playwright.sync_api").expect
    expect(page.locator("h1")).to_contain_text(dropped["prefix"])


def test_all_lines_of_a_file_are_translated_and_one_is_looked_at(
    translators, open_page, translator, tmp_path
):
    texts = ["¿Dónde está el gato?", TEXT, *(f"Tengo {n} hermanos." for n in range(2, 12))]
    file = tmp_path / "lines.txt"
    file.write_text("\n\n".join(texts) + "\n", "utf-8")
    recorded = open_page(translators)
    page = recorded.page
    page.get_by_label("File").set_input_files(file)
    expect = pytest.importorskip("playwright.sync_api").expect
    expect(page.locator(".lines-done")).to_have_text("12 of 12", timeout=60_000)
    element = page.locator(".lines li")
    new_texts = [one.text for one in translator.translate(texts)]
    assert element.locator("small").all_inner_texts() == new_texts
    assert sum("/api/lines" in url for url in recorded.requests) == 2
    element.nth(1).get_by_role("button").click()
    expect(page.locator("h1")).to_have_text(f"{TEXT} → {new_texts[1]}")
    page.get_by_role("tab", name="Heads").click()
    page.get_by_role("tab", name="Translate").click()
    assert page.locator(".lines li").count() == 12
    assert recorded.errors == []


def test_an_exchanged_word_is_compared_and_undone(translators, open_page, translator):
    other_text = TEXT.replace("casa", "ciudad")
    page = open_page(address(translators, view="change", text=TEXT)).page
    page.locator(".exchanged").fill(other_text)
    with page.expect_response("**/api/change"):
        page.get_by_role("button", name="Exchange words").click()
    expect = pytest.importorskip("playwright.sync_api").expect
    expect(page.locator(".text-after")).to_have_text(translator.translate([other_text])[0].text)
    page.get_by_role("img", name="difference").wait_for()
    page.reload()
    expect(page.locator(".text-after")).to_have_text(translator.translate([other_text])[0].text)
    page.locator(".exchanged").fill(TEXT)
    page.get_by_role("button", name="Exchange words").click()
    expect(page.locator(".text-after")).to_have_text("–")


def test_choices_of_a_view_stay_in_the_address(translators, open_page):
    page = open_page(address(translators, view="heads", text=TEXT)).page
    page.get_by_label("Sort by").select_option("entropy")
    page.get_by_label("Show").select_option("cross")
    assert "sort=entropy" in page.url
    assert "kind=cross" in page.url
    page.get_by_role("tab", name="Change").click()
    page.get_by_role("tab", name="Heads").click()
    assert page.get_by_label("Sort by").input_value() == "entropy"
    assert "sort=entropy" in page.url


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_fault_of_accessibility(translators, open_page, view, scheme):
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm ci in explorer-web")
    page = open_page(
        address(translators, view=view, text=TEXT, attention="decoder.1.cross", row=2, column=3),
        color_scheme=scheme,
    ).page
    page.locator("main canvas, main table").first.wait_for()
    page.wait_for_timeout(300)
    page.evaluate(AXE.read_text("utf-8"))  # the policy of the page forbids another script
    answer = page.evaluate("axe.run().then(found => found.violations)")
    serious = [
        (each["id"], [node["html"][:200] for node in each["nodes"][:3]])
        for each in answer
        if each["impact"] in ("serious", "critical")
    ]
    assert serious == []


@pytest.mark.parametrize("view", VIEWS)
def test_nothing_scrolls_sideways_on_a_phone(translators, open_page, view):
    state = {"view": view, "text": TEXT, "attention": "decoder.1.cross", "row": 2, "column": 3}
    other_text = TEXT.replace("casa", "ciudad")
    recorded_page = open_page(
        address(translators, **state, exchanged=other_text, tree=1), width=360, height=800
    )
    page = recorded_page.page
    page.locator("main canvas, main table").first.wait_for()
    recorded_page.settle()
    for summary in page.locator("summary").all():
        summary.click()
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_reload_restores_the_state(translators, open_page):
    page = open_page(translators).page
    page.locator(".sentence").fill(TEXT)
    page.get_by_role("button", name="Translate", exact=True).click()
    page.locator(".target-words button").nth(2).click()
    page.get_by_role("tab", name="Heads").click()
    page.locator("ul.grid button").nth(5).click()
    address_before = page.url
    page.reload()
    page.locator("ul.grid button.chosen").wait_for()
    assert page.url == address_before
    assert page.get_by_role("tab", name="Heads").get_attribute("aria-selected") == "true"
    page.get_by_role("tab", name="Translate").click()
    page.locator(".target-words button").first.wait_for()
    assert page.locator(".sentence").input_value() == TEXT


@pytest.fixture(scope="module")
def deep(browser):
    """An attention of 36,000 tokens: the rows of its largest level are too wide to be kept."""
    from regard.explorer.server import Explorer, Models

    count = 36_000
    generator = torch.Generator().manual_seed(0)
    walk = torch.randn(count, 16, generator=generator).cumsum(0) / 30
    look = regard.look(walk, walk, mask=regard.masks.causal(align="end"))
    tokens = Sequence("tokens", [f"t{i}" for i in range(count)])
    whole_scene = Scene("36,000 tokens", [tokens], [Attention("layer.0", "causal", look, 0, 0)])
    with explored(Explorer(Models({}), whole_scene)) as base:
        yield base, look


def test_a_map_of_36000_tokens(deep, open_page):
    base, look = deep
    peak_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    recorded = open_page(address(base, view="map", row=30_000, column=29_999))
    page = recorded.page
    page.wait_for_selector("canvas.map")
    element = page.locator(".exact")
    element.wait_for()
    print(f"ready after {time.perf_counter() - start:.2f} s")
    expected = float(look.weights(rows=[30_000], columns=[29_999]))
    assert float(element.get_attribute("data-weight")) == pytest.approx(expected, abs=1e-5)
    recorded.settle()
    page.locator("canvas.map").focus()
    pans = ["Shift+ArrowRight", "Shift+ArrowLeft", "Shift+ArrowRight", "Shift+ArrowDown"]
    for keys in ("++", *pans, "+++", "Shift+ArrowUp"):
        for key in keys.split() if "Arrow" in keys else keys:
            page.keyboard.press(key)
        recorded.settle()
    tile_requests = [url for url in recorded.requests if "/api/tile" in url]
    assert len(tile_requests) == len(set(tile_requests)) > 4
    levels = {parse_qs(urlsplit(url).query)["level"][0] for url in tile_requests}
    assert len(levels) > 3
    peak_after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (peak_after - peak_before) / 1024 < 1024  # megabytes
    assert not recorded.errors
