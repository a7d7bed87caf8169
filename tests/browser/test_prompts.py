"""A language model in the explorer: from a prompt to the head that counts, by keyboard alone."""

from __future__ import annotations

import pytest
from tests.browser.conftest import explored
from tests.explorer.languages import language

from regard.explorer.prompt_runs import read
from regard.explorer.server import Explorer, Models

TEXT = "Mary saw"
EVIL = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def tiny():
    return language()


@pytest.fixture(scope="module")
def address(tiny, browser):
    with explored(Explorer(Models({}), languages=[tiny])) as address:
        yield address


def tab_to(page, selector, most=60):
    """Press Tab until an element has the focus."""
    for _ in range(most):
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"no Tab leads to {selector}")


@pytest.mark.parametrize("width", [360, 1280])
def test_the_head_that_counts_is_reached_by_keyboard(address, open_page, tiny, width):
    recorded = open_page(address, width=width)
    page = recorded.page
    page.locator(".tokens button").first.wait_for()
    assert page.locator("h1").inner_text() == TEXT
    tab_to(page, "textarea")
    page.keyboard.press("End")
    page.keyboard.type(" Tom")
    page.keyboard.press("Enter")
    page.locator("h1", has_text="Mary saw Tom").wait_for()
    rows = page.locator(".next tbody tr")
    longer = read(tiny, tiny.ids("Mary saw Tom"))
    expected = longer.predictions.rows(None, longer.names)[-1][0]["log_probability"]
    assert float(rows.first.locator(".score").inner_text().replace("−", "-")) == pytest.approx(
        expected, abs=1e-3
    )
    assert page.locator(".next thead").inner_text().count("change") == 1  # beside the prompt before
    page.locator("[role=tab]").first.focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    cells = page.locator(".head-grid button")
    page.locator(".head-grid button:not([data-value=''])").first.wait_for()
    tab_to(page, ".head-grid button")
    values = [abs(float(cell.get_attribute("data-value"))) for cell in cells.all()]
    largest = cells.nth(values.index(max(values)))
    assert largest.evaluate("(cell) => cell === document.activeElement")
    name = largest.get_attribute("data-cell")
    page.keyboard.press("Enter")
    heading = page.locator("main h2").first
    heading.wait_for()
    attention, place = name.split("/")
    assert heading.inner_text() == f"{attention} head {place}"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert recorded.errors == []


def test_numbers_and_changes_are_those_of_the_model(address, open_page, tiny):
    state = "#view=numbers&attention=layer.1.self&head=2&row=5&column=2"
    recorded = open_page(address + state)
    page = recorded.page
    weight = page.locator(".weight").nth(2)
    weight.wait_for()
    reading = read(tiny, tiny.start)
    expected = float(reading.seen["layer.1.self"].weights()[0, 2, 5, 2])
    assert float(weight.get_attribute("data-weight")) == pytest.approx(expected, abs=1e-6)
    page.locator(".direct").wait_for()
    page.get_by_role("tab", name="Change").click()
    page.get_by_role("button", name="Off").click()
    page.locator(".next td.was").first.wait_for()
    page.locator("canvas[aria-label*='layer.1.self after']").wait_for()
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("heading", name="no change yet").wait_for()
    page.get_by_text("Side by side").click()
    page.locator(".beside-runs input").fill("John saw")
    page.get_by_role("button", name="Show beside").click()
    page.locator(".beside-runs .next td.was").first.wait_for()
    assert recorded.errors == []


def test_hostile_prompts_are_text(address, open_page):
    recorded = open_page(address)
    page = recorded.page
    page.locator(".tokens button").first.wait_for()
    page.locator("textarea").fill(EVIL)
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator("h1", has_text=EVIL).wait_for()
    for view in ("Heads", "Map", "Numbers", "Change", "Effects"):
        page.get_by_role("tab", name=view).click()
        recorded.settle()
    assert page.locator("img[src='x']").count() == 0
    assert recorded.errors == []
