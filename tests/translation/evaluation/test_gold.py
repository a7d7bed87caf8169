"""Gold alignments from files, and where a fault in them is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regard.errors import DataError
from regard.translation.evaluation.gold import read_gold, read_links

LINE = {"src": ["a", "b"], "tgt": ["x"], "sure": [[0, 0]], "possible": [[1, 0]]}


def gold_file(folder: Path, *lines: object) -> Path:
    path = folder / "gold"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def test_objects_with_words_are_read_and_flipped(tmp_path: Path):
    gold = read_gold(gold_file(tmp_path, LINE, "", {"src": ["a"], "tgt": [], "sure": []}))
    assert gold.sure == [{(0, 0)}, set()]
    assert gold.possible == [{(1, 0)}, set()]
    assert gold.words == [(["a", "b"], ["x"]), (["a"], [])]
    flipped = gold.flipped()
    assert flipped.possible == [{(0, 1)}, set()]
    assert flipped.words is not None
    assert flipped.words[0] == (["x"], ["a", "b"])
    assert len(read_gold(gold_file(tmp_path, LINE, LINE, LINE), limit=2)) == 2


def test_links_alone_are_read(tmp_path: Path):
    path = gold_file(tmp_path, "0-0 1?2", "")
    gold = read_gold(path)
    assert (gold.sure, gold.possible, gold.words) == ([{(0, 0)}, set()], [{(1, 2)}, set()], None)
    assert read_links(path) == [{(0, 0), (1, 2)}, set()]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({**LINE, "sure": [[0, 1]]}, "2 source and 1 target words"),
        ({**LINE, "sure": [[-1, 0]]}, r"link \[-1, 0\] is outside"),
        ({**LINE, "possible": [[0]]}, r"alignment: possible\.0"),
        ({**LINE, "possible": 3}, "alignment: possible: "),
        ({**LINE, "sure": [[True, 0]]}, r"alignment: sure\.0\.0: "),
        ({**LINE, "tgt": "x"}, "alignment: tgt: "),
        ({**LINE, "src": [1, 2]}, r"alignment: src\.0: "),
        ("{", "not a gold alignment"),
        ("[" * 100_000, "not a gold alignment"),
        ("[]", "alignment: the line: "),
    ],
)
def test_a_fault_is_told_with_its_line(tmp_path: Path, line: object, message: str):
    path = gold_file(tmp_path, LINE, line)
    with pytest.raises(DataError, match=message) as caught:
        read_gold(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert len(str(caught.value)) < 1000


def test_no_links_and_no_lines_are_told(tmp_path: Path):
    with pytest.raises(DataError, match="gold:2: not a link: 'x'"):
        read_links(gold_file(tmp_path, "0-0", "x"))
    with pytest.raises(DataError, match="no gold alignments"):
        read_gold(gold_file(tmp_path))
