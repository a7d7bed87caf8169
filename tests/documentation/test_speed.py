"""The speeds in the documents are those that were measured: benchmarks/results is the only source."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CELLS = ("greedy-1", "greedy-32", "beam5-1", "beam5-32")
PAIRS = {
    "Hugging Face's generate": ("regard", "hugging face"),
    "CTranslate2, both in float32": ("regard", "ctranslate2 float32"),
    "CTranslate2 in int8, ours in float32": ("regard", "ctranslate2 int8"),
}


def ratios(processor: str, pair: str) -> dict[str, str]:
    """Our speed over that of the other program, in each cell."""
    name = {"AVX2": "search-avx2", "AVX-512": "search"}[processor]
    results = json.loads((ROOT / f"benchmarks/results/{name}.json").read_text(encoding="utf-8"))
    ours, theirs = PAIRS[pair]
    rates = {cell: results["cells"][cell] for cell in CELLS}
    return {
        cell: f"{rate[ours]['sentences_per_second'] / rate[theirs]['sentences_per_second']:.2f}"
        for cell, rate in rates.items()
    }


def span(numbers: list[str]) -> str:
    return f"{min(numbers)} to {max(numbers)}"


@pytest.mark.parametrize("processor", ["AVX2", "AVX-512"])
@pytest.mark.parametrize("pair", PAIRS)
def test_the_table_has_the_measured_ratios(processor, pair):
    page = (ROOT / "docs/reference/translate.md").read_text(encoding="utf-8")
    assert f"| {pair}, {processor} | {' | '.join(ratios(processor, pair).values())} |" in page


def test_the_claim_of_the_readme_is_that_of_the_table():
    rows = dict(
        re.findall(
            r"^\| (AVX-512|AVX2)[^|]*\| (.*) \|$", (ROOT / "README.md").read_text("utf-8"), re.M
        )
    )
    new = {pair: ratios("AVX-512", pair) for pair in PAIRS}
    old = {pair: list(ratios("AVX2", pair).values())[:2] for pair in PAIRS}  # greedy
    generate, floats, bytes_ = new.values()
    assert rows["AVX-512"] == " | ".join(
        [
            span([*generate.values()]),
            f"{span([floats['greedy-32'], floats['beam5-32']])} in batches of 32, "
            f"{span([floats['greedy-1'], floats['beam5-1']])} for single sentences",
            span([*bytes_.values()]),
        ]
    )
    assert rows["AVX2"] == " | ".join(span(numbers) for numbers in old.values())


@pytest.mark.parametrize("page", ["docs/comparison.md", "docs/benchmarks/index.md", "CHANGELOG.md"])
def test_other_pages_link_to_the_table(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert "reference/translate.md#how-fast" in text
    assert not re.search(r"(generate|CTranslate2)[^.|]*\d\.\d+ (to|times)", text)
