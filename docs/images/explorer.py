"""Take the pictures of the explorer: python docs/images/explorer.py [NAME ...]

NAME is one of `PICTURES`; all are taken unless told. It needs playwright and the system's chromium.
Pictures have a palette of 256 colours, so that they stay small.
"""

from __future__ import annotations

import io
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
from playwright.sync_api import Browser, sync_playwright

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
    small = io.BytesIO()
    Image.open(io.BytesIO(taken)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
        small, "PNG", optimize=True
    )
    return small.getvalue()


def main() -> None:
    names = sys.argv[1:] or list(PICTURES)
    models = served(Explorer(Models({"es-en": "es-en", "es-en-recurrent": "es-en-recurrent"})))
    deep = served(Explorer(Models({}), long())) if "explorer-map" in names else ""
    with sync_playwright() as running:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = running.chromium.launch(executable_path=chromium, args=flags)
        for name in names:
            address = deep if name == "explorer-map" else models
            path = Path(__file__).parent / f"{name}.png"
            path.write_bytes(picture(browser, address, *PICTURES[name]))
            print(f"wrote {path}, {path.stat().st_size / 1e3:.0f} kB")
        browser.close()


if __name__ == "__main__":
    main()
