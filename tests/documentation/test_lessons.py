"""Every lesson has the same form. The site runs the lessons; here they are only read."""

import re

import pytest
from tests.documentation.blocks import ROOT

LESSONS = sorted((ROOT / "docs" / "lessons").glob("[0-9][0-9]-*.md"))
HEADER = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---
"""
FOLDED = ":jupyter: {source_hidden: true}\n"  # for notebooks; the tags fold a cell on the site
OPTIONS = re.compile(r"\A(?:(?::.*\n)+|---\n(?:.*\n)*?---\n)")  # of a cell: its tags, mostly


def faults(text: str) -> list[str]:
    """What the form of a lesson lacks, a sentence for each."""
    missing = []
    if not text.startswith(HEADER):
        missing.append("the header is not that of a text notebook")
    sections = ("\n# ", "**You will see**", "**What the figure shows.**", "## Sources", "RIGHT =")
    missing += [f"{part.strip()} is missing" for part in sections if part not in text]
    exercises = re.split(r"^### Exercise ", text, flags=re.MULTILINE)[1:]
    if len(exercises) < 2:
        missing.append(f"there are {len(exercises)} exercises: at least 2 are needed")
    for exercise in exercises:
        title = exercise.splitlines()[0]
        cells = re.findall(
            r"^```\{code-cell\} python\n(.*?)^```", exercise, re.DOTALL | re.MULTILINE
        )
        checks = re.findall(r"^def (check_\w+)\(", "".join(cells), re.MULTILINE)
        hidden = [cell for cell in cells if cell.startswith(f":tags: [hide-cell]\n{FOLDED}")]
        if not any(re.search(r"(= |return |^ +)\.\.\.$", cell, re.MULTILINE) for cell in cells):
            missing.append(f"exercise {title}: there is no gap (...) to fill")
        if not checks or f"print({checks[0]}(" not in "".join(cells):
            missing.append(f"exercise {title}: no check runs on the reader's answer")
        elif not any(f"== RIGHT != {checks[0]}(" in cell for cell in hidden):
            missing.append(f"exercise {title}: no folded cell shows a solution and a mistake")
        if any(":tags: [hide-" in cell and FOLDED not in cell for cell in cells):
            missing.append(f"exercise {title}: a cell is folded on the site, but not in a notebook")
    for cell in re.findall(r"^```\{code-cell\} python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        compile(OPTIONS.sub("", cell), "lesson", "exec")
    return missing


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_has_the_form_of_all_lessons(lesson):
    assert faults(lesson.read_text(encoding="utf-8")) == []


def test_each_number_is_that_of_one_lesson_and_in_its_title():
    numbers = [int(lesson.stem[:2]) for lesson in LESSONS]
    assert len(set(numbers)) == len(numbers)
    for number, lesson in zip(numbers, LESSONS, strict=True):
        assert f"\n# {number}. " in lesson.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("section", "instead", "fault"),
    [
        ("format_name: myst", "format_name: light", "header"),
        ("## Sources", "## Books", "Sources"),
        ("**What the figure shows.**", "", "figure"),
        ("### Exercise ", "#### Exercise ", "at least 2"),
        ("return ...", "return 1", "no gap"),
        ("print(check_", "(check_", "no check runs"),
        ("== RIGHT !=", "== RIGHT ==", "folded"),
        (FOLDED, "", "not in a notebook"),
    ],
)
def test_a_missing_part_of_a_lesson_is_found(section, instead, fault):
    text = LESSONS[0].read_text(encoding="utf-8")
    assert section in text
    assert any(fault in found for found in faults(text.replace(section, instead)))
