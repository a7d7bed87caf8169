"""The table of first phrases in docs/guides/limits.md: the translations of today, and the marks of doubt.

    python benchmarks/quality/first_phrases.py

It translates the phrases of the page anew and writes the page. Where a translation has not changed, it
keeps the judgement of the reader; elsewhere the judgement is "?". The marks of doubt are those of the doubts of today.
"""

import re
from pathlib import Path

from regard.translation.translator import Translator

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "limits.md"
MODELS = ("en-es", "en-fr")
_ROW = re.compile(r"\| (.+?) \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|")
DOUBTED = ", doubted"


def rows_of(page: str) -> list[list[str]]:
    """The cells of each phrase."""
    table = page.split("## First phrases")[1].split("\n## ")[0]
    return [list(match.groups()) for match in map(_ROW.fullmatch, table.splitlines()) if match][1:]


def main() -> None:
    page = PAGE.read_text("utf-8")
    rows = rows_of(page)
    new_rows = [[row[0]] for row in rows]
    for number, name in enumerate(MODELS):
        translations = Translator.open(name).translate([row[0] for row in rows])
        right = doubted_wrong = 0
        for row, new_row, translation in zip(rows, new_rows, translations, strict=True):
            text, judgement = row[1 + 2 * number], row[2 + 2 * number].removesuffix(DOUBTED)
            judgement = judgement if text == translation.text else "?"
            right += judgement == "yes"
            doubted_wrong += judgement != "yes" and bool(translation.doubts)
            new_row += [translation.text, judgement + DOUBTED * bool(translation.doubts)]
        print(f"{name}: {right} of {len(rows)} right; of the others {doubted_wrong} doubted")
    for row, new_row in zip(rows, new_rows, strict=True):
        page = page.replace(f"| {' | '.join(row)} |", f"| {' | '.join(new_row)} |")
    PAGE.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
