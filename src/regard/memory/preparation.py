"""Compiles the loops that read and search a large memory, for keys and values of all precisions."""

from functools import partial
from typing import Any

import torch

from regard.memory.bounded import Linear
from regard.memory.one_pass import best_of, part_of
from regard.memory.row_loops import KINDS, rows_of


def compile_loops() -> None:
    """Call each loop with one query and one key."""
    form = Linear(torch.ones(1, 1), False, 0.0, 1.0)
    columns = [rows_of(torch.ones(1, 1, dtype=dtype)) for dtype in KINDS]
    for keys in columns:
        best_of(form, [((0, 1), keys)], 1)
        for values in columns:
            part_of(form, [(0, 1)], partial(_reader, keys, values), 1, None)


def _reader(keys: Any, values: Any) -> Any:
    """Reads the same block, whichever is wanted."""
    return lambda _: (keys, values)
