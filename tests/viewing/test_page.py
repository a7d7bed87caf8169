"""The page: complete in itself, closed to markup in its texts, and alive when its script runs."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.viewing import colours, page
from regard.viewing.alignment import Alignment

HERE = Path(__file__).parent
EVIL = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"onmouseover=',
    "@data@",
]
CROSS = Alignment([[0.1, 0.7, 0.2], [0.6, 0.3, 0.1]], ["my", "house"], ["mi", "casa", "</s>"])
OTHER = Alignment([[0.3, 0.3, 0.4], [0.0, 0.1, 0.9]], ["my", "house"], ["mi", "casa", "</s>"])
OWN = Alignment(
    [[1.0, 0.0], [1.0, 0.0]],
    ["my", "house"],
    ["my", "house"],
    readable=np.array([[True, False], [True, True]]),
)


class _Reader(HTMLParser):
    """Collects elements with their attributes, and what stands in each script and style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[tuple[str, str]] = []
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open = tag if tag in ("script", "style", "title") else ""

    def handle_data(self, data: str) -> None:
        if self._open:
            self.inside.append((self._open, data))
            self._open = ""

    def of(self, tag: str) -> list[str]:
        return [data for name, data in self.inside if name == tag]


def _evil() -> _Reader:
    alignment = Alignment([[0.25] * 4] * 4, EVIL, EVIL)
    return _Reader(page.render({EVIL[1]: [alignment]}, title=EVIL[0] + "\ud800"))


def test_texts_never_become_markup() -> None:
    plain, evil = _Reader(page.render({"a": [CROSS]})), _evil()
    assert [tag for tag, _ in evil.elements] == [tag for tag, _ in plain.elements]
    data = json.loads(evil.of("script")[0])
    assert data["layers"][0]["queries"] == EVIL
    assert evil.of("title") == [EVIL[0] + "\\ud800"]


def test_the_policy_lets_in_this_script_and_style_and_nothing_else() -> None:
    reader = _evil()
    policy = next(
        a["content"] for tag, a in reader.elements if tag == "meta" and a.get("http-equiv")
    )
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for content in (reader.of("script")[1], reader.of("style")[0]):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_the_page_asks_for_nothing_outside_and_has_no_inline_handlers() -> None:
    text = page.render({"a": [CROSS]})
    assert not re.search(r"(https?:)?//(?!\s|\sn|\st|\sw|\sp|-)[a-z]", text)
    assert not re.search(r"innerHTML|insertAdjacent|document\.write|eval\(|Function\(", text)
    for tag, attributes in _Reader(text).elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag


def test_the_style_has_the_colours_of_the_themes() -> None:
    style = _Reader(page.render({"a": [CROSS]})).of("style")[0]
    for theme in colours.THEMES.values():
        for colour in (theme.paper, theme.ink, theme.faint, theme.rule, theme.accent):
            assert colour in style


def test_the_page_is_written_whole_and_the_same_twice(tmp_path: Path) -> None:
    one = page.write(tmp_path / "one.html", {0: [CROSS, OTHER]}, title="¿Qué?")
    two = page.write(tmp_path / "two.html", {0: [CROSS, OTHER]}, title="¿Qué?")
    assert one.read_bytes() == two.read_bytes()
    assert len(list(tmp_path.iterdir())) == 2


def test_layers_without_heads_or_with_other_words_are_refused() -> None:
    for layers, message in [
        ({}, "no layers"),
        ({"a": []}, "no heads"),
        ({"a": [CROSS, OWN]}, "different"),
    ]:
        with pytest.raises(ValueError, match=message):
            page.render(layers)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a reader of the page sees, told by its script running over a small stand-in document."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node to run the page's script")
    path = tmp_path_factory.mktemp("page") / "page.html"
    layers = {"encoder.0.self": [OWN], "decoder.0.cross": [CROSS, OTHER]}
    page.write(path, layers, title="mi casa")
    command = [node, str(HERE / "reader.js"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_opens_on_the_cross_attention_with_the_mean_of_heads(seen: dict[str, Any]) -> None:
    opened = seen["opened"]
    assert opened["keys"] == ["mi", "casa", "</s>"]
    assert opened["queries"] == ["my", "house"]
    assert opened["heads"] == ["mean of heads", "head 0", "head 1"]
    assert opened["cells"] == ["20", "50", "30", "30", "20", "50"]


def test_it_opens_on_the_last_layer_where_none_is_named_cross() -> None:
    def first(*names: str | int) -> int:
        text = page.render({name: [CROSS] for name in names})
        return int(json.loads(_Reader(text).of("script")[0])["first"])

    assert first(0, 1, 2) == 2
    assert first("decoder.0.cross", "decoder.1.cross", "encoder.0.self") == 1


def test_heads_keep_their_numbers() -> None:
    data = json.loads(_Reader(page.render({1: {2: CROSS}, 2: [CROSS, OTHER]})).of("script")[0])
    assert [layer["numbers"] for layer in data["layers"]] == [[2], [0, 1]]


def test_a_long_title_takes_two_lines() -> None:
    style = _Reader(page.render({"a": [CROSS]})).of("style")[0]
    heading = re.search(r"h1 \{(.*?)\}", style, re.DOTALL)
    assert heading is not None
    assert "-webkit-line-clamp: 2" in heading[1]
    assert "overflow: hidden" in heading[1]


def test_hovering_a_word_shades_what_it_looked_at(seen: dict[str, Any]) -> None:
    assert seen["hovered"]["shares"] == ["20%", "50%", "30%"]
    strongest = seen["hovered"]["shades"]
    assert len(set(strongest)) == 3
    assert "“\u2068my\u2069” looks most at “\u2068casa\u2069” 50%" in seen["hovered"]["readout"]
    assert seen["left"]["shares"] == ["", "", ""]


def test_pickers_and_keys_choose(seen: dict[str, Any]) -> None:
    assert seen["head 0"]["cells"] == ["10", "70", "20", "60", "30", "10"]
    assert seen["arrow"]["focused"] == "house"
    assert seen["arrow"]["shares"] == ["60%", "30%", "10%"]
    assert seen["self"]["keys"] == ["my", "house"]
    assert json.loads(seen["download"])["layers"][1]["heads"][1][1] == [0.0, 0.1, 0.9]


def test_masked_cells_differ_from_zeros(seen: dict[str, Any]) -> None:
    data = json.loads(_Reader(page.render({"a": [OWN]})).of("script")[0])
    assert data["layers"][0]["heads"] == [[[1.0, None], [1.0, 0.0]]]
    assert seen["self"]["cells"] == ["100", "", "100", "0"]
    assert seen["self"]["kinds"] == ["", "masked", "", "quiet"]
    assert seen["self"]["note"]
    assert not seen["opened"]["note"]
    assert seen["masked"]["shares"] == ["100%", "masked"]
    assert seen["masked"]["readout"] == "“\u2068my\u2069” looks most at “\u2068my\u2069” 100%"
