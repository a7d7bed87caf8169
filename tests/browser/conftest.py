"""A real browser, and explorers in threads of this process."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest
import torch
from tests.servers import served

import regard
from regard.explorer import Attention, Scene, Sequence

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE = 120_000  # milliseconds that a condition may take; the machine may be busy


@pytest.fixture(scope="session")
def browser():
    """The system's Chromium, without its network but for this machine."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    playwright.expect.set_options(timeout=PATIENCE)
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def recorder(browser) -> Recorded:
    """The page of all tests: to make one takes the browser longer than to show the explorer in it."""
    context = browser.new_context(reduced_motion="reduce")
    context.set_default_timeout(PATIENCE)
    return Recorded(context.new_page())


class Recorded:
    """A page with the requests that it made and the errors of its console."""

    def __init__(self, page) -> None:
        self.page = page
        page.on("request", lambda request: self._count_request(request.url))
        page.on("requestfinished", lambda _: self._answered())
        page.on("requestfailed", lambda _: self._answered())
        page.on("pageerror", lambda fault: self.errors.append(str(fault)))
        page.on("dialog", lambda dialog: self.errors.append(f"dialog: {dialog.message}"))
        page.on(
            "console",
            lambda line: self.errors.append(line.text) if line.type == "error" else None,
        )
        self.clear()

    def clear(self) -> None:
        """Show an empty page, and forget what was recorded."""
        self.page.goto("about:blank")
        self.page.mouse.move(0, 0)
        self.requests: list[str] = []
        self.errors: list[str] = []
        self._open = 0

    def _count_request(self, url: str) -> None:
        self.requests.append(url)
        self._open += 1

    def _answered(self) -> None:
        self._open -= 1

    def settle(self, milliseconds: int = 300, seconds: int = 120) -> None:
        """Wait until no request has been open for some milliseconds, for so many seconds at most."""
        end = time.monotonic() + seconds
        self.page.wait_for_timeout(milliseconds)
        while self._open and time.monotonic() < end:
            self.page.wait_for_timeout(milliseconds)


@pytest.fixture
def open_page(recorder):
    """Open an address on an empty page, which has forgotten the address before."""

    def open_recorded(
        address: str,
        width: int = 1280,
        height: int = 900,
        offline: bool = False,
        color_scheme: str = "light",
    ) -> Recorded:
        recorder.clear()
        recorder.page.emulate_media(color_scheme=color_scheme)
        recorder.page.set_viewport_size({"width": width, "height": height})
        recorder.page.context.set_offline(offline)
        recorder.page.goto(address)
        recorder.page.wait_for_selector("#regard-explorer[data-ready]")
        return recorder

    yield open_recorded
    recorder.clear()  # no server waits for its connections


def explored(explorer) -> AbstractContextManager[str]:
    """The address of an explorer that runs in a thread."""
    from regard.explorer.server import application

    return served(lambda host: application(explorer, [host]), "healthz")


@pytest.fixture(scope="session")
def translators(browser) -> Iterator[str]:
    """An explorer of the bundled models."""
    from regard.explorer.server import Explorer, Models

    models = Models({"es-en": "es-en", "es-en-recurrent": "es-en-recurrent"})
    with explored(Explorer(models)) as address:
        yield address


def scene(layers: int, heads: int, tokens: int, names=None, title: str = "a model") -> Scene:
    """Causal attentions of random vectors."""
    generator = torch.Generator().manual_seed(layers * heads)
    sequence = Sequence("tokens", [f"t{i}" for i in range(tokens)] if names is None else names)
    attentions = []
    for layer in range(layers):
        query, key = (torch.randn(heads, tokens, 16, generator=generator) for _ in range(2))
        look = regard.look(query * 2, key, mask=regard.masks.causal(align="end"))
        attentions.append(Attention(f"layer.{layer}.self", "causal", look, 0, 0))
    return Scene(title, [sequence], attentions)
