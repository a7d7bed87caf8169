"""The stored proofs are of the programs as they are now, and the page shows them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from regard.programs import PROGRAMS, plan

ROOT = Path(__file__).parents[2]
RESULTS = json.loads((ROOT / "benchmarks" / "results" / "programs.json").read_text("utf-8"))
PAGE = (ROOT / "docs" / "guides" / "programs.md").read_text("utf-8")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_proof_is_of_the_program_as_it_is(name):
    proof, sizes = RESULTS["programs"][name], plan(PROGRAMS[name], 8).sizes
    assert (proof["layers"], proof["width"], proof["parameters"]) == (
        sizes.layers,
        sizes.width,
        sizes.parameters,
    )
    letters = len(PROGRAMS[name].alphabet)
    assert proof["inputs"] == sum(letters**n for n in range(proof["up_to"] + 1))
    assert proof["differing"] == proof.get("sampled_differing", 0) == 0


def test_random_programs_were_equal_or_refused():
    random_results = RESULTS["random"]
    assert (
        random_results["programs"] == random_results["equal"] + random_results["refused"] == 10_000
    )
    assert random_results["different"] == 0
    assert f"{random_results['equal']:,} were compiled" in PAGE
    assert f"{random_results['refused']:,} were refused" in PAGE


def test_the_page_shows_the_tables_of_the_script():
    script = [sys.executable, str(ROOT / "benchmarks" / "programs.py"), "--table"]
    printed = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    assert len(printed.splitlines()) > 25
    for line in printed.splitlines():
        assert line in PAGE, line
