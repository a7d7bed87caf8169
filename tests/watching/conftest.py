"""What many tests of the watch share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from regard.watching.interception import intercepted


@pytest.fixture(scope="module")
def one_interception() -> Iterator[None]:
    """Functions are replaced once for a file: to open the only watch searches all modules, for 50 ms.

    Files about what is replaced, and about models that are not watched, do without.
    """
    with intercepted(torch.nn.Identity()):
        yield
