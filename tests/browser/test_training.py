"""The explorer beside a training: its checkpoints, one after the other and side by side."""

from __future__ import annotations

import shutil
from urllib.parse import quote

import pytest
import torch
from tests.browser.conftest import explored

from regard.translation.opening import find
from regard.translation.runs import Run
from regard.translation.training import checkpoints
from regard.translation.training.progress import Progress
from regard.translation.translator import Translator

TEXT = "¿Dónde está el gato?"


@pytest.fixture
def training(browser, tmp_path):
    """The address of an explorer of a run, a function that saves a checkpoint of scaled weights, and the translation
    of the text by the weights as they are.
    """
    from regard.explorer.server import Explorer, Models

    folder = shutil.copytree(find("es-en-recurrent"), tmp_path / "own")
    translator = Translator.open(folder)
    [translation] = translator.translate([TEXT])
    model = translator.model.float()
    run = Run.open(folder)
    for name in ("model.safetensors", "checksums.json"):
        (folder / name).unlink()
    own_copies = {name: weight.clone() for name, weight in model.state_dict().items()}
    optimiser = torch.optim.Adam(model.parameters())

    def save(step: int, factor: float) -> None:
        model.load_state_dict({name: weight * factor for name, weight in own_copies.items()})
        checkpoints.save(run, Progress(step=step), model, optimiser)

    with explored(Explorer(Models({"own": folder}))) as address:
        yield address, save, translation.text


def test_each_new_checkpoint_translates_again(training, open_page):
    base, save, translation = training
    save(100, 0.01)
    page = open_page(f"{base}#text={quote(TEXT)}").page
    expect = pytest.importorskip("playwright.sync_api").expect
    page.locator("canvas").first.wait_for()
    assert translation not in page.locator("h1").inner_text()
    page.get_by_label("follow the training").check()
    model_choice = page.get_by_label("Model").first
    expect(model_choice).to_have_value("own@step-100", timeout=20_000)
    save(200, 1.0)
    expect(model_choice).to_have_value("own@step-200", timeout=20_000)
    expect(page.locator("h1")).to_have_text(f"{TEXT} → {translation}")
    page.get_by_label("follow the training").uncheck()
    save(300, 0.01)
    page.wait_for_timeout(3000)
    expect(model_choice).to_have_value("own@step-200")


def test_two_checkpoints_are_shown_side_by_side(training, open_page):
    base, save, _ = training
    save(100, 0.01)
    save(200, 1.0)
    page = open_page(f"{base}#view=change&model=own@step-200&text={quote(TEXT)}").page
    page.get_by_text("Side by side").click()
    page.get_by_label("Model").select_option("own@step-100")
    page.get_by_role("button", name="Show beside").click()
    page.get_by_text("own@step-100: decoder.attention.cross").wait_for()
    assert page.get_by_text("own@step-200: decoder.attention.cross").count() == 1
