"""The site's own code, docs/conf.py."""

from __future__ import annotations

import importlib.util
import re

import pytest
from docutils.utils.math.latex2mathml import tex2mathml
from tests.documentation.blocks import ROOT


@pytest.fixture(scope="module")
def conf():
    pytest.importorskip("sphinx")
    spec = importlib.util.spec_from_file_location("conf", ROOT / "docs" / "conf.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "HF_HUB_OFFLINE", "COLUMNS"):
            patch.setenv(name, "1")  # the module sets them: they get their old values back
        spec.loader.exec_module(module)
    return module


def test_each_process_reads_some_lessons(conf):
    names = [f"guides/{number}" for number in range(65)]
    names += [f"lessons/{number}" for number in range(1, 15)]
    pages = list(names)
    conf.spread(None, None, pages)
    assert sorted(pages) == sorted(names)
    for start in range(0, 80, 20):
        assert sum(page.startswith("lessons/") for page in pages[start : start + 20]) in (3, 4)


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (r"\ln a_{ts}", "ln ats"),
        (r"L(v) - \ln w", "L(v)−ln w"),
        (r"g \ln a", "g ln a"),
        (r"g_{ts} \ln a_{ts}", "gts ln ats"),
        (r"2 \ln 12 = 4", "2 ln 12=4"),
        (r"f(x) \cos y", "f(x) cos y"),
        (r"v^\top \tanh(W s)", "v⊤ tanh(Ws)"),
        (r"x y", "xy"),
    ],
)
def test_functions_are_set_with_a_space(conf, formula, text):
    spaced = conf.spaced(tex2mathml(formula))
    symbols = re.sub(r"<mspace[^>]*></mspace>", "_", re.sub(r"\s+", "", spaced))
    symbols = re.sub(r"<[^_>]*>|&ApplyFunction;", "", symbols)
    assert symbols.replace("_", " ") == text
