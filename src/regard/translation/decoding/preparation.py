"""Compiles all loops of a search. Their types do not depend on the model, so that this serves every one."""

import numpy as np

from regard.translation.datastore import nearest_loops
from regard.translation.decoding.search_loops import best_few
from regard.translation.engines.compiled import forward_loops as loops


def compile_loops() -> None:
    """Call each loop over no rows, with arrays of the types that their callers pass."""
    ids, places = np.zeros(0, np.int64), np.zeros((0, loops.PLACES), np.int64)
    row, table = np.zeros(1, np.float32), np.zeros((1, 1), np.float32)
    end = np.full(3, -1, np.int64)
    shape = loops.Shape(1, 1, 1, 1, True, 0, np.float32(1), np.float32(1))
    buffers = loops.Workspace(row, row, row, row, row, row, row, table)
    arguments, weights = (tuple(shape), tuple(buffers)), (row, places, end)
    cached = np.zeros((1, 1, 1, 2), np.float32), 1, np.zeros((1, 1), np.int64)
    loops.encode(ids, ids, ids, ids, (table, table), weights, weights, arguments, 0, table)
    loops.step(ids, ids, ids, ids, table, cached, (table, table), weights, arguments, 0, row)
    numbers = np.zeros((0, 1), np.int64)
    best_few(False, ids, table[:0], table[:0], table[:0], numbers)
    readings = ((ids, np.zeros((0, 1), np.int8), numbers, table[:0]),) * 2
    queries, few = np.zeros((0, 1), np.int16), (table[:0], numbers)
    nearest_loops.greatest(table[:0], *few)
    nearest_loops.nearest(readings, queries, *few)
    nearest_loops.mix(readings, (ids, ids), (np.float32(1),) * 3, queries, *few, table[:0])
