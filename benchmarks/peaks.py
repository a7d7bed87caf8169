"""Peak memory of every mask and option of attend and look at 4,096 and 16,384 positions, both passes.

python benchmarks/peaks.py [--only NAME...] [--out benchmarks/results/peaks.json]

The cases are those of tests/attention/kernels/test_linear_memory.py: one head of width 8, float32, one thread, each in
a child process, megabytes over what it held after a call at 1,024 positions. Linear growth is 4-fold. Cells that the
file holds are kept.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from _measure import write

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.attention.kernels.test_linear_memory import MASKS, OPTIONS, attend, look, peaks

LENGTHS = 4096, 16384


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=MASKS, default=list(MASKS))
    parser.add_argument("--options", nargs="*", choices=OPTIONS, default=["dots", "additive"])
    parser.add_argument("--look", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/peaks.json"))
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    if arguments.out.exists():
        results = json.loads(arguments.out.read_text())["MB"]
    call = look if arguments.look else attend
    for option in arguments.options:
        for name in arguments.only:
            cell = f"{call.__name__}: {name}, {option}"
            if cell not in results:
                results[cell] = [round(peak, 1) for peak in peaks(call, name, option, *LENGTHS)]
                print(cell, results[cell], flush=True)
                write(arguments.out, {"positions": LENGTHS, "MB": results})


if __name__ == "__main__":
    main()
