"""`pytest --shapes` checks the annotated shapes of arguments and results at each call."""

from __future__ import annotations

import pytest
import torch
from jaxtyping import TypeCheckError

from regard.attention.positions import rotate


def test_a_wrong_shape_is_found(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--shapes"):
        pytest.skip("without --shapes")
    with pytest.raises(TypeCheckError, match="rotate"):
        rotate(torch.zeros(4), 0)
