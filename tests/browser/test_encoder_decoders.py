"""An encoder-decoder in the explorer: a source, the target that the model writes, and its cross attention."""

from __future__ import annotations

import pytest
from tests.browser.conftest import explored
from tests.explorer.languages import encoder_decoder

from regard.explorer import prompting
from regard.explorer.prompt_runs import read
from regard.explorer.server import Explorer, Models


@pytest.mark.parametrize("width", [360, 1280])
def test_a_target_is_written_typed_and_stepped(open_page, monkeypatch, width):
    monkeypatch.setattr(prompting, "LONGEST", 6)
    bart = encoder_decoder("Bart")
    with explored(Explorer(Models({}), languages=[bart])) as address:
        recorded = open_page(address, width=width)
        page = recorded.page
        source, target = (page.get_by_label(name, exact=True) for name in ("Source", "Target"))
        target.wait_for()
        translation = target.input_value()
        assert (source.input_value(), page.locator("h1").inner_text()) == ("Mary saw", "Mary saw")
        source.fill("Tom saw")
        source.press("Enter")
        page.locator("h1", has_text="Tom saw").wait_for()
        ids = bart.target(bart.ids("Tom saw"), "")
        assert target.input_value() == bart.text(ids[1:]) != translation  # written anew
        target.fill("Maria")
        target.press("Enter")
        tokens = page.locator(".tokens button")
        page.locator(".tokens button", has_text="M").wait_for()
        assert tokens.count() == 6
        tokens.nth(2).click()
        forced = read(bart, [0, *b"Maria"], source=bart.ids("Tom saw"))
        expected = forced.predictions.rows(None, forced.names)[2][0]["log_probability"]
        score = page.locator(".next tbody tr .score").first.inner_text().replace("−", "-")
        assert float(score) == pytest.approx(expected, abs=1e-3)
        page.get_by_role("button", name="and run again").click()
        tokens.nth(4).wait_for(state="detached")
        assert tokens.count() == 4
        page.get_by_role("tab", name="Map").click()
        page.get_by_label("Attention").select_option("decoder.1.cross")
        page.locator("canvas").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert recorded.errors == []
