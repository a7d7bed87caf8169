"""Draw the figures of the lessons: python docs/images/drawings.py writes six SVG files beside this one.

A drawing has a background of its own, and takes its colours from the reader's light or dark mode.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

STYLE = """
svg { font: 14px "DejaVu Sans", Verdana, sans-serif }
.paper { fill: #ffffff } text { fill: #1b1f24; text-anchor: middle; dominant-baseline: central }
.small { font-size: 12px; fill: #57606a } .start { text-anchor: start }
.data, .step, .learnt, .frame { stroke: #57606a; stroke-width: 1.2 }
.data { fill: #f2f4f7 } .step { fill: #dcebfa } .learnt { fill: #fbe6c8 } .frame { fill: none; stroke-dasharray: 5 4 }
.line { fill: none; stroke: #57606a; stroke-width: 1.4 } .head { fill: #57606a }
@media (prefers-color-scheme: dark) {
.paper { fill: #16191d } text { fill: #e6e9ed } .small { fill: #a5adb7 }
.data, .step, .learnt, .frame, .line { stroke: #a5adb7 } .head { fill: #a5adb7 }
.data { fill: #262b31 } .step { fill: #17375a } .learnt { fill: #563c10 } }
"""

Point = tuple[float, float]


class Drawing:
    """Boxes, arrows and words. `data` are tensors, `step` computes, `learnt` has weights."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.size = width, height
        self.title = title
        self.elements: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, *lines: str, kind: str) -> None:
        """A box around its middle (x, y)."""
        corner = f'x="{x - width / 2:g}" y="{y - height / 2:g}"'
        size = f'width="{width:g}" height="{height:g}" rx="6"'
        self.elements.append(f'<rect class="{kind}" {corner} {size}/>')
        for number, line in enumerate(lines):
            at = y + 18 * (number - (len(lines) - 1) / 2)
            self.words(x, at, line, "" if number == 0 else "small")

    def circle(self, x: float, y: float, sign: str) -> None:
        self.elements.append(f'<circle class="step" cx="{x:g}" cy="{y:g}" r="13"/>')
        self.words(x, y, sign)

    def words(self, x: float, y: float, line: str, kind: str = "") -> None:
        """A line of text; `k_j` and `s_{i-1}` have subscripts."""
        parsed = re.sub(
            r"_(?:\{(.+?)\}|(\w))",
            lambda m: (
                f'<tspan dy="4" font-size="75%">{m[1] or m[2]}</tspan><tspan dy="-4">\u200b</tspan>'
            ),
            escape(line),
        )
        name = f' class="{kind}"' if kind else ""
        self.elements.append(f'<text{name} x="{x:g}" y="{y:g}">{parsed}</text>')

    def arrow(self, *points: Point, label: str = "", beside: Point = (0, 0)) -> None:
        """A line through the points, with a head at the end; the label is beside the middle of its first segment."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.elements.append(f'<polyline class="line" points="{path}" marker-end="url(#head)"/>')
        if label:
            (x, y), (to_x, to_y) = points[:2]
            self.words((x + to_x) / 2 + beside[0], (y + to_y) / 2 + beside[1], label, "small")

    def svg(self) -> str:
        width, height = self.size
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
                f' height="{height}" role="img">',
                f"<title>{escape(self.title)}</title>",
                f"<style>{STYLE}</style>",
                '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"'
                ' orient="auto" markerUnits="userSpaceOnUse"><path class="head" d="M0 0 8 4 0 8z"/></marker></defs>',
                f'<rect class="paper" width="{width}" height="{height}" rx="8"/>',
                *self.elements,
                "</svg>\n",
            ]
        )


def lookup() -> Drawing:
    draw = Drawing(640, 400, "A lookup: score the keys, choose, blend the values")
    columns = 210, 330, 450, 570
    draw.box(70, 115, 90, 36, "query q", kind="data")
    draw.arrow((115, 115), (160, 115))
    draw.box(390, 115, 460, 36, "score each key against the query", kind="step")
    draw.box(390, 195, 460, 36, "choose: softmax, the weights sum to 1", kind="step")
    draw.box(390, 325, 460, 32, "blend: add", kind="step")
    for number, x in enumerate(columns, 1):
        draw.box(x, 40, 80, 34, f"key k_{number}", kind="data")
        draw.arrow((x, 57), (x, 97))
        draw.arrow((x, 133), (x, 177), label=f"s_{number}", beside=(14, 0))
        draw.arrow((x - 30, 213), (x - 30, 253), label=f"w_{number}", beside=(-15, 0))
        draw.circle(x - 30, 266, "×")
        draw.box(x + 24, 266, 44, 30, f"v_{number}", kind="data")
        draw.arrow((x + 2, 266), (x - 17, 266))
        draw.arrow((x - 30, 279), (x - 30, 309))
    draw.words(70, 40, "keys", "small")
    draw.words(70, 266, "values", "small")
    draw.arrow((390, 341), (390, 362))
    draw.words(390, 378, "reading r = w_1 v_1 + w_2 v_2 + w_3 v_3 + w_4 v_4")
    return draw


def bahdanau() -> Drawing:
    draw = Drawing(640, 430, "One step of Bahdanau's decoder")
    states = 110, 250, 390, 530
    for number, x in enumerate(states, 1):
        draw.words(x, 412, f"x_{number}")
        draw.arrow((x, 400), (x, 374))
        draw.box(x, 355, 80, 36, f"h_{number}", kind="learnt")
        draw.arrow((x, 337), (x, 279))
        if x != states[-1]:
            draw.arrow((x + 40, 348), (x + 100, 348))
            draw.arrow((x + 100, 362), (x + 40, 362))
    draw.words(320, 322, "both directions", "small")
    draw.box(
        320, 245, 500, 66, "e_{ij} = v · tanh(W s_{i-1} + U h_j)", "choose: a_{ij} = softmax over j",
        "blend: c_i = sum of a_{ij} h_j", kind="step",
    )  # fmt: skip
    draw.box(170, 130, 90, 40, "s_{i-1}", kind="learnt")
    draw.box(470, 130, 90, 40, "s_i", kind="learnt")
    draw.arrow((40, 130), (125, 130))
    draw.arrow((215, 130), (425, 130), label="recurrent cell", beside=(0, -12))
    draw.arrow((515, 130), (600, 130))
    draw.arrow((170, 150), (170, 212), label="query", beside=(28, 0))
    draw.arrow((470, 212), (470, 150), label="context c_i", beside=(44, 0))
    draw.words(330, 40, "y_{i-1}")
    draw.arrow((330, 55), (330, 85), (440, 85), (440, 110))
    draw.arrow((485, 110), (485, 58))
    draw.words(485, 40, "y_i")
    draw.words(72, 112, "decoder", "small")
    return draw


def scaled_dot() -> Drawing:
    draw = Drawing(520, 500, "Scaled dot-product attention: product, scale, mask, softmax, product")
    rows = {
        "products q · k": ("(queries × keys)", 400),
        "scale: divide by √d": ("(queries × keys)", 320),
        "mask: forbidden keys get −∞": ("(queries × keys)", 240),
        "softmax over the keys": ("each row sums to 1", 160),
        "weights × V": ("(queries × width of V)", 80),
    }
    for name, (shape, y) in rows.items():
        draw.box(190, y, 250, 40, name, kind="step")
        draw.words(330, y, shape, "small start")
        draw.arrow((190, y - 20), (190, y - 60 if y > 80 else 30))
    draw.words(190, 18, "reading")
    for x, name in ((120, "Q"), (260, "K")):
        draw.box(x, 472, 60, 34, name, kind="data")
        draw.arrow((x, 455), (x, 420))
    draw.box(30, 472, 44, 34, "V", kind="data")
    draw.arrow((30, 455), (30, 80), (65, 80))
    draw.words(330, 472, "(length × width) each", "small start")
    return draw


def heads() -> Drawing:
    draw = Drawing(680, 470, "Eight heads of width 64 in a model of width 512")
    draw.box(340, 440, 220, 36, "x: length × 512", kind="data")
    for shift in (24, 12, 0):  # the boxes behind show no words
        for x, name in ((110, "W_Q"), (310, "W_K"), (510, "W_V")):
            words = () if shift else (name, "512 → 64")
            draw.box(x + shift, 345 - shift, 130, 46, *words, kind="learnt")
        words = () if shift else ("attend", "length × 64")
        draw.box(310 + shift, 235 - shift, 530, 46, *words, kind="step")
    for x in (110, 310, 510):
        draw.arrow((340, 422), (340, 398), (x, 398), (x, 368))
        draw.arrow((x + 12, 310), (x + 12, 258))
    draw.words(632, 330, "8 heads", "small")
    draw.arrow((334, 188), (334, 148))
    draw.box(334, 128, 400, 40, "side by side: length × (8 · 64) = length × 512", kind="data")
    draw.arrow((334, 108), (334, 82))
    draw.box(334, 60, 180, 44, "W_O", "512 → 512", kind="learnt")
    draw.arrow((334, 38), (334, 22))
    draw.words(334, 12, "length × 512", "small")
    return draw


def _sublayer(draw: Drawing, x: float, bottom: float, name: str, below: str = "norm") -> float:
    """A norm, a layer and their residual, from `bottom` upwards; where the next begins."""
    draw.arrow((x, bottom), (x, bottom - 26))
    draw.box(x, bottom - 43, 130, 32, below, kind="learnt")
    draw.arrow((x, bottom - 59), (x, bottom - 78))
    draw.box(x, bottom - 98, 170, 38, name, kind="learnt")
    draw.arrow((x, bottom - 117), (x, bottom - 137))
    draw.circle(x, bottom - 150, "+")
    draw.arrow(
        (x, bottom - 10), (x + 125, bottom - 10), (x + 125, bottom - 150), (x + 14, bottom - 150)
    )
    return bottom - 163


def block() -> Drawing:
    draw = Drawing(480, 420, "A pre-norm block of the Transformer")
    draw.words(190, 405, "x: length × width")
    middle = _sublayer(draw, 190, 392, "self-attention")
    top = _sublayer(draw, 190, middle, "feed-forward")
    draw.arrow((190, top), (190, 34))
    draw.words(190, 20, "length × width")
    draw.words(325, 280, "residual", "small start")
    draw.words(325, 117, "residual", "small start")
    draw.words(20, 294, "words mix", "small start")
    draw.words(20, 131, "each alone", "small start")
    return draw


def encoder_decoder() -> Drawing:
    draw = Drawing(720, 740, "The whole encoder-decoder")
    left, right = 170, 500
    for x, tokens, name in (
        (left, "source words", "encoder"),
        (right, "target words before", "decoder"),
    ):
        draw.words(x, 722, tokens)
        draw.arrow((x, 710), (x, 690))
        draw.box(x, 670, 190, 38, "embedding + position", kind="learnt")
        draw.words(x - 140, 306 if name == "encoder" else 143, f"{name}, N ×", "small start")
    draw.box(left + 5, 468, 310, 358, kind="frame")
    draw.box(right + 5, 387, 310, 520, kind="frame")
    top = _sublayer(draw, left, 651, "self-attention")
    top = _sublayer(draw, left, top, "feed-forward")
    draw.arrow((left, top), (left, 272))
    draw.box(left, 254, 130, 34, "norm", kind="learnt")
    cross = _sublayer(draw, right, 651, "causal self-attention")
    top = _sublayer(draw, right, cross, "cross-attention")
    draw.arrow((left, 237), (left, 210), (340, 210), (340, cross - 98), (right - 85, cross - 98))
    draw.words(255, 197, "keys and values", "small")
    top = _sublayer(draw, right, top, "feed-forward")
    draw.arrow((right, top), (right, 108))
    draw.box(right, 92, 130, 30, "norm", kind="learnt")
    draw.arrow((right, 77), (right, 66))
    draw.box(right, 50, 250, 30, "output layer, softmax", kind="learnt")
    draw.arrow((right, 35), (right, 26))
    draw.words(right, 14, "probability of the next word")
    return draw


DRAWINGS: dict[str, Callable[[], Drawing]] = {
    "lookup": lookup,
    "bahdanau": bahdanau,
    "scaled-dot": scaled_dot,
    "heads-widths": heads,
    "block": block,
    "encoder-decoder": encoder_decoder,
}

if __name__ == "__main__":
    for name, function in DRAWINGS.items():
        path = Path(__file__).with_name(f"{name}.svg")
        path.write_text(function().svg(), encoding="utf-8")
        print(f"wrote {path.name}")
