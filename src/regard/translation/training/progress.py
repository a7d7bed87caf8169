"""progress.json: how far a training has come. Each checkpoint has one."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from regard.errors import CheckpointError, CorruptedError
from regard.translation import checksums
from regard.translation.settings.training import TrainingSettings

VERSION = 1
# So many validations without a better score are a plateau.
PLATEAU_PATIENCE = 2

# pydantic checks what is read from a file: counts are not negative, and numbers are finite.
Count = Annotated[int, Field(ge=0, lt=2**63)]
Number = Annotated[float, Field(allow_inf_nan=False)]


@dataclass
class Progress:
    """How far a training has come.

    Attributes:
        step: updates that were made.
        epoch, batch: the present pass, from 0, and how many of its batches were taken.
        precision: the arithmetic; "" before it is chosen.
        threads: 0 before they are chosen, and in checkpoints that did not keep them.
        measured: target tokens a second measured with this precision and these threads; 0 if not measured.
        tokenizer: that of BLEU in all validations; "" in checkpoints that did not keep it.
        validation_sentences: of a validation; 0 in checkpoints that did not keep it.
        best: score and step of the best validations, best first.
        without_progress: validations since the best score.
        plateaus: how often the learning rate was halved.
        unvalidated: the validation of this step was stopped, and comes first when the training is resumed.
        seconds: of all steps.
        validation_seconds: of all validations; 0 in checkpoints that did not keep it.
        since: sums for the next report: loss in nats, target tokens, seconds.
    """

    step: Count = 0
    epoch: Count = 0
    batch: Count = 0
    precision: str = ""
    threads: Count = 0
    measured: Annotated[Number, Field(ge=0)] = 0.0
    tokenizer: str = ""
    validation_sentences: Count = 0
    best_score: Number | None = None
    best: list[tuple[Number, Count]] = field(default_factory=list)
    without_progress: Count = 0
    plateaus: Count = 0
    unvalidated: bool = False
    target_tokens: Count = 0
    seconds: Number = 0.0
    validation_seconds: Number = 0.0
    since: Annotated[list[Number], Field(max_length=3)] = field(default_factory=list)
    version: int = VERSION
    __pydantic_config__ = ConfigDict(extra="forbid")

    @property
    def minutes(self) -> float:
        """Of all steps and validations."""
        return (self.seconds + self.validation_seconds) / 60

    def count_step(self, loss: float, tokens: int, seconds: float) -> None:
        """Count one more step, with its loss in nats a target token."""
        self.step += 1
        self.target_tokens += tokens
        self.seconds += seconds
        sums = (*self.since, 0.0, 0.0, 0.0)
        self.since = [sums[0] + loss * tokens, sums[1] + tokens, sums[2] + seconds]

    def count_validation(self, score: float, settings: TrainingSettings) -> bool:
        """Count a validation of the present step; whether its score is better than all before."""
        better = self.best_score is None or score > self.best_score
        if better:
            self.best_score = score
        self.without_progress = 0 if better else self.without_progress + 1
        waited = not better and self.without_progress % PLATEAU_PATIENCE == 0
        if settings.schedule == "plateau" and waited:
            self.plateaus += 1
        self.best = sorted([*self.best, (score, self.step)], reverse=True)[: settings.keep_best]
        self.unvalidated = False
        return better


_PROGRESS = TypeAdapter(Progress)


def read_progress(path: Path, checksum: str) -> Progress:
    """Read a progress.json.

    Raises:
        CheckpointError: it is corrupted, or written in another format.
    """
    content = checksums.content(path, checksum)
    try:
        table = json.loads(content)
        if table.get("version") != VERSION:
            raise CheckpointError(
                f"{path}: written in format {table.get('version')}, this program reads format {VERSION}"
            )
        table.pop("finished", None)  # an unused key of checkpoints until 0.1
        return _PROGRESS.validate_json(json.dumps(table), strict=True)
    except ValidationError as fault:
        error = fault.errors()[0]
        why = f"{'.'.join(map(str, error['loc']))} is {error['input']!r}: {error['msg']}"
    except (ValueError, TypeError, AttributeError, RecursionError) as fault:
        why = str(fault)
    raise CorruptedError(f"{path}: corrupted or truncated: {' '.join(why.split())[:200]}")
