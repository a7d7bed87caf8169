"""samples.txt: translations of a few validation sentences, for every validation of a run."""

from __future__ import annotations

import re
from collections.abc import Sequence

from regard import files
from regard.errors import TrainingError
from regard.translation.runs import Run
from regard.translation.training.events import Sample

SAMPLES = "samples.txt"
_STEP = re.compile(r"^step (\d+)$", re.MULTILINE)


def lines(sample: Sample) -> list[str]:
    """A sample as three lines.

    >>> print("\\n".join(lines(Sample("El gato.", "The cat.", "A cat."))))
      source     El gato.
      reference  The cat.
      output     A cat.
    """
    return [
        # A translation may contain characters that end a line.
        f"  {name:<9}  {' '.join(text.splitlines())}".rstrip()
        for name, text in zip(("source", "reference", "output"), sample, strict=True)
    ]


def write(run: Run, step: int, samples: Sequence[Sample]) -> None:
    """Add the samples of a step. Samples of this and later steps, from before an interruption, are removed.

    Raises:
        TrainingError: the file cannot be written.
    """
    if not samples:
        return
    path = run.folder / SAMPLES
    try:
        before = files.read(path).decode("utf-8", "replace") if path.exists() else ""
        later = (found.start() for found in _STEP.finditer(before) if int(found[1]) >= step)
        blocks = "\n\n".join("\n".join(lines(sample)) for sample in samples)
        text = f"{before[: next(later, None)]}step {step}\n{blocks}\n\n"
        files.write(path, text.encode("utf-8", "replace"))
    except OSError as fault:
        raise TrainingError(f"{path}: cannot be written: {fault.strerror}") from None
