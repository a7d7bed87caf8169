"""The scorer of the benchmark of word links, against the definition, on gold files as they are on disk."""

from __future__ import annotations

import json
import runpy
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from regard.translation.evaluation.gold import read_gold

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "quality" / "aligners.py"
GOLD = [
    {"src": ["a", "b", "c"], "tgt": ["x", "y"], "sure": [[0, 0]], "possible": [[2, 1], [1, 1]]},
    {"src": ["a"], "tgt": ["x", "y", "z"], "sure": [[0, 2], [0, 0]], "possible": []},
    {"src": [], "tgt": ["x"], "sure": [], "possible": []},
    {"src": ["a", "b"], "tgt": ["x", "y"], "sure": [[0, 1], [1, 0]], "possible": [[0, 1], [0, 0]]},
]
HANDMADE = {
    "none": lambda source, target: [],
    "all": lambda source, target: [(s, t) for s in range(source) for t in range(target)],
    "diagonal": lambda source, target: [(word, word) for word in range(min(source, target))],
    "shifted": lambda source, target: [(s, s + 1) for s in range(min(source, target - 1))],
    "slanted": lambda source, target: [(t * source // target, t) for t in range(target) if source],
    "reversed": lambda source, target: [(s, target - 1 - s) for s in range(min(source, target))],
}


def error_rate(file: Path, aligned: list[set[tuple[int, int]]]) -> tuple[float, float, float]:
    """Error rate, precision and recall in percent, after Och and Ney 2003, section 5.

    A sure link is possible too: S is a part of P. Each link is counted by itself, as an exact fraction.
    """
    linked = sure_links = sure_hits = possible_hits = 0
    for line, links in zip(file.read_text(encoding="utf-8").splitlines(), aligned, strict=True):
        sentence = json.loads(line)
        sure, possible = ({tuple(link) for link in sentence[name]} for name in ("sure", "possible"))
        for source in range(len(sentence["src"])):
            for target in range(len(sentence["tgt"])):
                in_a = (source, target) in links
                in_s = (source, target) in sure
                in_p = in_s or (source, target) in possible
                linked, sure_links = linked + in_a, sure_links + in_s
                sure_hits, possible_hits = (
                    sure_hits + (in_a and in_s),
                    possible_hits + (in_a and in_p),
                )
    error = 1 - Fraction(sure_hits + possible_hits, linked + sure_links)
    precision = Fraction(possible_hits, linked) if linked else Fraction(1)
    return tuple(
        float(100 * share) for share in (error, precision, Fraction(sure_hits, sure_links))
    )


@pytest.fixture(scope="module")
def benchmark() -> dict[str, Any]:
    if not SCRIPT.is_file():
        pytest.skip("benchmarks: there is no such folder beside the tests")
    with pytest.MonkeyPatch.context() as surroundings:
        surroundings.syspath_prepend(str(SCRIPT.parent))
        return runpy.run_path(str(SCRIPT))


def check(benchmark: dict[str, Any], file: Path) -> None:
    gold = read_gold(file)
    for name, links_of in HANDMADE.items():
        aligned = [set(links_of(len(source), len(target))) for source, target in gold.words or []]
        ours = benchmark["scores"](aligned, gold)
        expected = error_rate(file, aligned)
        assert (ours["aer"], ours["precision"], ours["recall"]) == pytest.approx(expected), name


def test_the_scorer_agrees_with_the_definition(benchmark, tmp_path):
    file = tmp_path / "gold.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in GOLD), encoding="utf-8")
    check(benchmark, file)
    # By hand: of the diagonal 4 links, 1 sure one of 5; (0, 0), (1, 1), (0, 0), (0, 0) are possible.
    aligned = [set(HANDMADE["diagonal"](len(line["src"]), len(line["tgt"]))) for line in GOLD]
    assert error_rate(file, aligned)[0] == pytest.approx(100 * (1 - (2 + 4) / (5 + 5)))


@pytest.mark.parametrize(
    "name",
    [
        "wa-golden-europarl/en-es.dev.jsonl",
        "wa-golden-europarl/en-fr.dev.jsonl",
        "wa-enfr-hansards/dev.jsonl",
        "wa-roen/test.jsonl",
    ],
)
def test_the_scorer_agrees_with_the_definition_on_gold_files(benchmark, data_folder, name):
    if not (data_folder / name).is_file():
        pytest.skip(f"{name}: not in the folder that REGARD_DATA names")
    check(benchmark, data_folder / name)
