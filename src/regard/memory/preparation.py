"""Compiles the loops that read and search a large memory, for keys and values of one precision."""

import torch

from regard.memory.bounded import Linear
from regard.memory.one_pass import best_of, part_of
from regard.memory.row_loops import rows_of


def compile_loops() -> None:
    """Call each loop with one query and one key."""
    form = Linear(torch.ones(1, 1), False, 0.0, 1.0)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        rows = rows_of(torch.ones(1, 1, dtype=dtype))
        part_of(form, [((0, 1), rows, rows)], 1, None)
        best_of(form, [((0, 1), rows)], 1)
