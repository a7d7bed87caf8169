"""The interactive page: one HTML file that needs no network.

Its content security policy allows only its own script and style, by their hashes. All words are
stored as JSON and displayed as text, never as markup.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from regard import files
from regard.viewing import colours
from regard.viewing.alignment import Alignment, scale_of
from regard.viewing.labels import visible

Heads = Sequence[Alignment] | Mapping[int, Alignment]
Layers = Mapping[str | int, Heads]

_SHADES = 33
_DIGITS = 5


def write(
    path: str | os.PathLike[str],
    alignments: Layers,
    *,
    title: str = "",
) -> Path:
    """Write the page to a file, atomically.

    Args:
        path: the file; an existing one is replaced, or kept if writing fails.
        alignments: for each layer name, the alignments of the heads in order, or by the numbers of
            the heads. The page opens on the last layer with "cross" in its name, else on the last.
        title: the page's heading.

    Raises:
        ValueError: there are no alignments, or heads of one layer have different words.
        OSError: the file cannot be written.
    """
    return files.write(path, render(alignments, title=title).encode("utf-8"))


def render(alignments: Layers, *, title: str = "") -> str:
    """The page as one string of HTML; arguments as for `write`."""
    style, script = _part("page.css"), _part("page.js")
    heading = visible(title) or "What each word looked at"
    parts = {
        "@policy@": f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'",
        "@title@": html.escape(heading),
        "@style@": style,
        "@data@": _json(_data(alignments, heading)),
        "@script@": script,
    }
    page = _part("page.html")
    pieces: list[str] = []
    # In the order of the page, so that no inserted text is searched.
    for mark, part in parts.items():
        before, _, page = page.partition(mark)
        pieces += [before, part]
    return "".join([*pieces, page])


def _data(alignments: Layers, title: str) -> dict[str, Any]:
    layers = [_layer(name, heads) for name, heads in alignments.items()]
    if not layers:
        raise ValueError("no layers to show: pass at least one with at least one head")
    steps = [step / (_SHADES - 1) for step in range(_SHADES)]
    shades = {
        name: [colours.hexadecimal(theme.shade(step)) for step in steps]
        for name, theme in colours.THEMES.items()
    }
    crossing = [place for place, layer in enumerate(layers) if "cross" in layer["name"]]
    first = max(crossing, default=len(layers) - 1)
    return {"title": title, "first": first, "layers": layers, "shades": shades}


def _layer(name: str | int, given: Heads) -> dict[str, Any]:
    numbered = dict(given) if isinstance(given, Mapping) else dict(enumerate(given))
    heads = list(numbered.values())
    if not heads:
        raise ValueError(f"layer {name!r} has no heads: pass at least one alignment")
    first = heads[0]
    if any((head.queries, head.keys) != (first.queries, first.keys) for head in heads):
        raise ValueError(f"the heads of layer {name!r} have different words: pass one layer a name")
    return {
        "name": f"layer {name}" if isinstance(name, int) else name,
        "queries": first.queries,
        "keys": first.keys,
        "scale": scale_of(heads),
        "numbers": list(numbered),
        "heads": [head.masked.round(_DIGITS).tolist() for head in heads],  # null for a masked cell
    }


def _json(data: dict[str, Any]) -> str:
    r"""Strict JSON in ASCII in which no tag can begin or end: < is \u003c."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _part(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text("utf-8")


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
