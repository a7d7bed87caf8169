"""metrics.jsonl: one line for each report and each validation of a run."""

from __future__ import annotations

import json

from regard import files
from regard.errors import TrainingError
from regard.translation.runs import METRICS, Run


def write(run: Run, line: dict[str, object]) -> None:
    """Add a line. Raises `TrainingError` when it cannot be written."""
    try:
        files.append(run.folder / METRICS, (json.dumps(line) + "\n").encode())
    except OSError as fault:
        raise TrainingError(
            f"{run.folder / METRICS}: cannot be written: {fault.strerror}"
        ) from None


def forget(run: Run, step: int, *, unvalidated: bool = False) -> None:
    """Drop the lines of later steps and, if `unvalidated`, of the validation of this step: they will be repeated."""
    path = run.folder / METRICS
    if not path.exists():
        return
    kept = []
    before = path.read_bytes()
    for line in before.decode("utf-8", "replace").splitlines():
        try:
            made = json.loads(line)
            again = unvalidated and made["step"] == step and made["kind"] == "validation"
            if made["step"] <= step and not again:
                kept.append(line)
        except (ValueError, KeyError, TypeError):
            continue  # a line that was cut off by a kill
    after = "".join(line + "\n" for line in kept).encode()
    if after != before:
        files.write(path, after)
