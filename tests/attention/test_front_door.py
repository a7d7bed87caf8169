"""`import regard` is quick: torch is loaded when something is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import regard


@pytest.mark.parametrize("name", [n for n in regard.__all__ if n != "__version__"])
def test_every_name_leads_somewhere(name: str) -> None:
    assert getattr(regard, name) is not None
    assert name in dir(regard)


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'attention_please'"):
        regard.attention_please  # noqa: B018


def test_importing_loads_no_torch() -> None:
    script = "import regard, sys; print(regard.__version__, 'torch' in sys.modules)"
    completed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    version, loaded = completed.stdout.split()
    assert version.count(".") == 2
    assert loaded == "False"
