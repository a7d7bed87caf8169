"""Tables: the cells of some columns are translated, and all else stays to the character."""

import pytest

from regard.errors import DataError
from regard.translation.formats import tables

TABLE = "\ufeffuno\tx y\t dos \r\n\r\n12\tz\ttres\tw\n"


def translated(text: str, *columns: int) -> str:
    document = tables.read(text, "a.tsv", columns)
    return document.translated([cell.upper() for cell in document.texts])


def test_only_the_columns_are_translated():
    assert translated(TABLE, 3, 1, 3) == TABLE.replace("uno", "UNO").replace("dos", "DOS").replace(
        "tres", "TRES"
    )
    assert translated(TABLE, 2) == TABLE.replace("x y", "X Y").replace("z", "Z")
    assert list(tables.read(TABLE, "a.tsv", [3]).lines()) == [1, 3]


def test_a_translation_makes_no_cells_and_no_lines():
    assert tables.read("a\tb", "a.tsv", [1]).translated(["x\ty\nz"]) == "x y z\tb"


def test_a_short_line_is_refused():
    with pytest.raises(DataError, match=r"a\.tsv:3: expected at least 4 columns .* got 2"):
        tables.read("a\tb\tc\td\n\na\tb\n", "a.tsv", [4])
