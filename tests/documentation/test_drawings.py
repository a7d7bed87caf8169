"""The drawings of the lessons are what their script draws, and each is on a page with alternative text."""

import importlib.util
import re
from xml.etree import ElementTree as ET

import pytest
from tests.documentation.blocks import ROOT

IMAGES = ROOT / "docs" / "images"
SPEC = importlib.util.spec_from_file_location("drawings", IMAGES / "drawings.py")
DRAWINGS = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(DRAWINGS)
PAGES = [path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("name", DRAWINGS.DRAWINGS)
def test_a_drawing_is_committed_as_its_script_draws_it(name):
    drawn = DRAWINGS.DRAWINGS[name]().svg()
    assert (IMAGES / f"{name}.svg").read_text("utf-8") == drawn


@pytest.mark.parametrize("name", DRAWINGS.DRAWINGS)
def test_a_drawing_stays_inside_its_paper_and_loads_nothing(name):
    drawn = DRAWINGS.DRAWINGS[name]()
    width, height = drawn.size
    root = ET.fromstring(drawn.svg())
    for element in root.iter("{http://www.w3.org/2000/svg}rect"):
        if element.get("class") == "paper":
            continue
        x, y, wide, high = (float(element.get(key)) for key in ("x", "y", "width", "height"))
        assert min(x, y) >= 0, element.attrib
        assert x + wide <= width, element.attrib
        assert y + high <= height, element.attrib
    assert not re.search(r"href|url\((?!#)|<script|@import", drawn.svg())


@pytest.mark.parametrize("name", DRAWINGS.DRAWINGS)
def test_a_drawing_is_on_a_page_with_alternative_text(name):
    texts = [
        text
        for page in PAGES
        for text in re.findall(rf"!\[([^]]*)\]\([./]*images/{name}\.svg\)", page)
    ]
    assert texts
    assert all(len(text.split()) >= 6 for text in texts)
