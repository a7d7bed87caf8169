"""Learning rate schedules, as factors of the configured rate."""

from __future__ import annotations

import math

# A plateau is this number of validations without a better score. It multiplies the rate by this factor.
PLATEAU_FACTOR = 0.5
PLATEAU_PATIENCE = 2


def factor(name: str, step: int, *, warmup: int, total: int, plateaus: int = 0) -> float:
    """The factor at a step (counted from 1): linear warm-up, then the schedule.

    `inverse_square_root`: sqrt(warmup / step) (arXiv 1706.03762, section 5.3, scaled to 1 at its peak);
    `cosine`: half a cosine, down to 0 at step `total` (arXiv 1608.03983); `plateau`: halved after each plateau.
    """
    if step <= warmup:
        return step / max(1, warmup)
    if name == "inverse_square_root":
        return math.sqrt(max(1, warmup) / step)
    if name == "cosine":
        progress = (step - warmup) / max(1, total - warmup)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    if name == "plateau":
        return float(PLATEAU_FACTOR**plateaus)
    return 1.0
