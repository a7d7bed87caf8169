"""The standalone page holds any text as text, and the licences of the packages in its script."""

from __future__ import annotations

import base64
import re

import torch

import regard
from regard.explorer import Attention, Scene, Sequence, write
from regard.explorer.page import built_file, standalone

HOSTILE = "</script><img src=x onerror=alert(1)> \ud800 {title} \"'"


def test_hostile_text_stays_inside_of_the_data(tmp_path):
    vectors = torch.randn(1, 2, 4)
    attention = Attention(HOSTILE, "self", regard.look(vectors, vectors), 0, 0)
    scene = Scene(HOSTILE, [Sequence(HOSTILE, [HOSTILE, "b"])], [attention], HOSTILE)
    page = write(tmp_path / "page.html", scene).read_text("utf-8")
    assert "<img" not in page.replace(re.search("<script type=.module.*", page, re.DOTALL)[0], "")
    assert "<title>&lt;/script&gt;&lt;img" in page
    data = re.search('id="regard-bundle">([^<]*)</script>', page)[1]
    assert base64.b64decode(data)[:4] == b"RGRD"
    policy = re.search('Content-Security-Policy" content="([^"]*)"', page)[1]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


def test_pages_carry_the_notices_of_the_packages_in_the_front_end():
    notices = built_file("third-party.txt")
    assert {"preact", "@preact/signals", "@preact/signals-core"} == set(
        re.findall(r"(\S+) \d+\.\d+\.\d+", notices)
    )
    assert "Copyright (c) 2015-present Jason Miller" in notices
    assert notices.count("Permission is hereby granted") == notices.count(
        "THE SOFTWARE IS PROVIDED"
    )
    assert built_file("explorer.js").startswith(f"/*! {notices}*/")
    assert notices in standalone(b"", "")
