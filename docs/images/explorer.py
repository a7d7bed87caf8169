"""Take the pictures of the explorer: python docs/images/explorer.py [NAME ...]

NAME is one of `PICTURES`; all are taken unless told. It needs playwright and the system's chromium.
Pictures have a palette of 256 colours, so that they stay small.

    python docs/images/explorer.py --names MODULE:CALL FOLDER

answers "which head copies this name?" by keyboard alone, with a model that MODULE:CALL returns with its tokenizer
(SmolLM2 in the documents). It takes each step in two widths and both colours into FOLDER, and those of `NAMES` here.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import sys
import threading
from pathlib import Path
from queue import Queue
from urllib.parse import urlencode

import torch
from PIL import Image
from playwright.sync_api import Browser, Playwright, sync_playwright

import regard
from regard.explorer import Attention, Scene, Sequence
from regard.explorer.server import Explorer, Models, serve

TALL = 1000  # pixels of the longest picture
OFF = json.dumps([{"attention": "decoder.1.cross", "head": 0, "kind": "scale", "factor": 0}])
SENTENCE = {
    "text": "La hermana de mi madre vive en una casa grande.",
    "attention": "decoder.1.cross",
    "row": 5,  # the piece "sister"
    "column": 1,  # "hermana"
}
CHAPTERS = {"scale": "root", "at": "105000,80000,0.012", "row": 104_000, "column": 104_000}
# The name of a picture, its width, its colours and the state that the address of the page gives.
PICTURES = {
    "explorer-translate": (1280, "light", {"view": "translate", **SENTENCE}),
    "explorer-heads": (1280, "light", {"view": "heads", "sort": "entropy", "head": 0, **SENTENCE}),
    "explorer-map": (1280, "light", {"view": "map", **CHAPTERS}),
    "explorer-numbers": (1280, "light", {"view": "numbers", "head": 0, **SENTENCE}),
    "explorer-change": (1280, "light", {"view": "change", "head": 0, "edits": OFF, **SENTENCE}),
    "explorer-dark": (1280, "dark", {"view": "translate", **SENTENCE}),
    "explorer-narrow": (360, "light", {"view": "translate", **SENTENCE}),
}

# The pictures of the documents: their step, width and colours.
NAMES = {
    "explorer-prompt": ("prompt", 1280, "light"),
    "explorer-effects": ("effects", 1280, "light"),
    "explorer-effects-narrow": ("effects", 360, "dark"),
    "explorer-copy": ("head", 1280, "light"),
}
QUESTION = "When Mary and John went to the store, John gave a drink to"


def long() -> Scene:
    """One causal attention over 131,072 tokens in chapters; a chapter reads itself and those of its topic."""
    count, chapters = 1 << 17, 64
    chance = torch.Generator().manual_seed(0)
    topics = torch.randn(9, 16, generator=chance) * 1.6
    chosen = torch.randint(9, (chapters,), generator=chance)
    tokens = topics[chosen].repeat_interleave(count // chapters, 0)
    tokens = tokens + torch.randn(count, 16, generator=chance) * 0.5
    look = regard.look(tokens, tokens, mask=regard.masks.causal(align="end"))
    names = Sequence("tokens", [f"t{i}" for i in range(count)])
    return Scene("131,072 tokens", [names], [Attention("layer.0", "causal", look, 0, 0)])


def served(explorer: Explorer) -> str:
    """The address of an explorer that runs in a thread until this program ends."""
    address: Queue[str] = Queue()
    threading.Thread(target=serve, args=(explorer, 0, address.put), daemon=True).start()
    return address.get(timeout=60)


def picture(browser: Browser, address: str, width: int, scheme: str, state: dict) -> bytes:
    size = {"width": width, "height": 900}
    page = browser.new_page(viewport=size, color_scheme=scheme, reduced_motion="reduce")
    page.goto(f"{address}#{urlencode(state)}")
    page.locator("main canvas").first.wait_for(timeout=120_000)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1000)
    full = page.evaluate("document.documentElement.scrollHeight")
    taken = page.screenshot(
        full_page=True, clip={"x": 0, "y": 0, "width": width, "height": min(full, TALL)}
    )
    page.close()
    return small(taken)


def small(taken: bytes) -> bytes:
    """The picture with a palette."""
    packed = io.BytesIO()
    Image.open(io.BytesIO(taken)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
        packed, "PNG", optimize=True
    )
    return packed.getvalue()


def answered_by_keyboard(
    browser: Browser, address: str, width: int, scheme: str
) -> dict[str, bytes]:
    """The steps from the question to the head, each as a picture; no key but those of the keyboard is used."""
    size = {"width": width, "height": 900}
    page = browser.new_page(viewport=size, color_scheme=scheme, reduced_motion="reduce")
    taken: dict[str, bytes] = {}

    def take(name: str) -> None:
        page.wait_for_function(
            "() => [...document.querySelectorAll('.busy')].every((each) => !each.textContent.trim())",
            timeout=300_000,
        )
        page.wait_for_timeout(800)
        full = page.evaluate("document.documentElement.scrollHeight")
        clip = {"x": 0, "y": 0, "width": width, "height": min(full, 1400)}
        taken[name] = small(page.screenshot(full_page=True, clip=clip))

    def tab_to(selector: str) -> None:
        for _ in range(80):
            page.keyboard.press("Tab")
            if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
                return
        raise SystemExit(f"no Tab leads to {selector}")

    def tab(name: str, steps: int) -> None:
        page.evaluate("document.activeElement.blur()")
        tab_to("[role=tab]")
        for _ in range(steps):
            page.keyboard.press("ArrowRight")
        take(name)

    page.goto(address)
    page.locator(".tokens button").first.wait_for(timeout=300_000)
    tab_to("textarea")
    page.keyboard.press("Control+a")
    page.keyboard.type(QUESTION)
    page.keyboard.press("Enter")
    page.wait_for_timeout(300)
    take("prompt")
    tab("estimates", 5)
    tab_to("input.token[placeholder=none]")
    page.keyboard.type("John")
    page.keyboard.press("Enter")
    page.wait_for_timeout(300)
    take("effects")
    tab_to(".head-grid button")
    page.keyboard.press("Enter")
    page.locator("main figure canvas").first.wait_for()
    tab_to("main figure canvas")
    for key in ["ArrowDown"] * 14 + ["ArrowRight"] * 9:
        page.keyboard.press(key)
    take("head")
    tab("numbers", 2)
    tab("change", 1)
    tab_to("[aria-label=Edits] button")
    page.keyboard.press("Enter")
    page.locator(".next td.was").first.wait_for(timeout=300_000)
    take("off")
    page.close()
    return taken


def names(call: str, folder: Path) -> None:
    """Take the steps of `answered_by_keyboard`."""
    from regard.cli.commands.explore import _answer

    language = _answer(call).language
    address = served(Explorer(Models({}), languages=[language] if language else []))
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as running:
        browser = opened(running)
        for width, scheme in itertools.product((1280, 360), ("light", "dark")):
            for step, taken in answered_by_keyboard(browser, address, width, scheme).items():
                (folder / f"{step}-{width}-{scheme}.png").write_bytes(taken)
                for name, at in NAMES.items():
                    if at == (step, width, scheme):
                        (Path(__file__).parent / f"{name}.png").write_bytes(taken)
            print(f"wrote {width} {scheme}", flush=True)
        browser.close()


def opened(running: Playwright) -> Browser:
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    return running.chromium.launch(executable_path=chromium, args=flags)


def main() -> None:
    if sys.argv[1:2] == ["--names"]:
        names(sys.argv[2], Path(sys.argv[3]))
        return
    chosen = sys.argv[1:] or list(PICTURES)
    models = served(Explorer(Models({"es-en": "es-en", "es-en-recurrent": "es-en-recurrent"})))
    deep = served(Explorer(Models({}), long())) if "explorer-map" in chosen else ""
    with sync_playwright() as running:
        browser = opened(running)
        for name in chosen:
            address = deep if name == "explorer-map" else models
            path = Path(__file__).parent / f"{name}.png"
            path.write_bytes(picture(browser, address, *PICTURES[name]))
            print(f"wrote {path}, {path.stat().st_size / 1e3:.0f} kB")
        browser.close()


if __name__ == "__main__":
    main()
