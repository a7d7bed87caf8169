"""A new run that starts from the published weights and the tokenizers of another run."""

from __future__ import annotations

from regard.errors import CheckpointError, ConfigurationError
from regard.translation import weights
from regard.translation.runs import MODEL, Run, Tokenizers
from regard.translation.settings import Configuration
from regard.translation.training import checkpoints
from regard.translation.training.loop import Trainer

# These keys change no shape of a weight.
_FREE = {"dropout", "scheduled_sampling", "longest"}


def fitted(configuration: Configuration, start: Run) -> Configuration:
    """A configuration with the tokenizers of the run that it starts from.

    Raises:
        ConfigurationError: its model has another shape.
    """
    old, new = start.configuration.model.model_dump(), configuration.model.model_dump()
    # Learned positions are weights; sinusoidal ones may be of any number.
    free = _FREE - ({"longest"} if old.get("positions") == "learned" else set())
    # Two kinds of models have different keys: the message names the kinds only.
    keys = sorted(old.keys() & new.keys() - free) if old["kind"] == new["kind"] else ["kind"]
    changed = [f"model.{k} = {new[k]!r}, there {old[k]!r}" for k in keys if old[k] != new[k]]
    if changed:
        raise ConfigurationError(
            f"--from {start.folder}: the model must have the shape of the one it starts from: "
            + "; ".join(changed)
        )
    tokenizer = start.configuration.tokenizer.model_copy(
        update={"sampling": configuration.tokenizer.sampling}
    )
    if tokenizer.sampling and tokenizer.kind != "unigram":
        raise ConfigurationError(
            f"--from {start.folder}: its tokenizer is BPE, which "
            f"cannot sample segmentations (tokenizer.sampling = {tokenizer.sampling}): set it to 0"
        )
    return configuration.model_copy(update={"tokenizer": tokenizer})


def check_tags(configuration: Configuration, start: Run, tokenizers: Tokenizers) -> None:
    """Raise `ConfigurationError` when the tokenizers of the start lack a tag of a corpus."""
    missing = [tag for tag in configuration.data.tags if tag not in tokenizers.source.tags]
    if missing:
        raise ConfigurationError(
            f"--from {start.folder}: its tokenizer has no tag {', '.join(missing)} (it has "
            f"{', '.join(tokenizers.source.tags) or 'none'}): train from the start, or leave the tags out"
        )


def begin(trainer: Trainer, start: Run) -> None:
    """Copy the published weights of a run into the model of a trainer at step 0, and save a first checkpoint.

    A training that is killed before its next checkpoint resumes from this one.

    Raises:
        ModelError: the run has no published model, or a broken one.
    """
    path = start.folder / MODEL
    if not path.is_file():
        raise CheckpointError(
            f"{start.folder}: has no {MODEL} to start from: finish its training first"
        )
    model = start.model(start.tokenizers())
    weights.load_into(trainer.model, weights.unique(model), path)
    if trainer.processes.first:
        checkpoints.save(trainer.run, trainer.progress, trainer.model, trainer.optimiser)
