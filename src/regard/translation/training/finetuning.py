"""Starting from what another run has learnt: its published weights and tokenizers, a new optimiser and schedule."""

from __future__ import annotations

from regard.errors import CheckpointError, ConfigurationError
from regard.translation import weights
from regard.translation.runs import MODEL, Run, Tokenizers
from regard.translation.settings import Configuration
from regard.translation.training import checkpoints
from regard.translation.training.loop import Trainer

# How strongly a model is held back while it learns is no part of what it has learnt.
_FREE = {"dropout", "scheduled_sampling", "longest"}


def fitted(configuration: Configuration, start: Run) -> Configuration:
    """A configuration with the tokenizers of the run that it starts from.

    Raises:
        ConfigurationError: its model has another shape; names every key, and both values.
    """
    old, new = start.configuration.model.model_dump(), configuration.model.model_dump()
    # Learned positions are weights, sinusoidal ones go as far as needed.
    free = _FREE - ({"longest"} if old.get("positions") == "learned" else set())
    # Models of two kinds have other keys, too: their kinds say it all.
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
            f"--from {start.folder}: its tokenizer is BPE, of which tokenizer.sampling = "
            f"{tokenizer.sampling} can draw nothing: set it to 0"
        )
    return configuration.model_copy(update={"tokenizer": tokenizer})


def check_tags(configuration: Configuration, start: Run, tokenizers: Tokenizers) -> None:
    """Raises `ConfigurationError` when a corpus has a tag that the tokenizers of the start do not know."""
    missing = [tag for tag in configuration.data.tags if tag not in tokenizers.source.tags]
    if missing:
        raise ConfigurationError(
            f"--from {start.folder}: its tokenizer has no tag {', '.join(missing)} (it has "
            f"{', '.join(tokenizers.source.tags) or 'none'}): train from the start, or leave the tags out"
        )


def begin(trainer: Trainer, start: Run) -> None:
    """Give a trainer at step 0 the published weights of a run, and save them as its first checkpoint.

    The checkpoint is there before the run folder counts as one, so that a training killed before its first own
    checkpoint goes on from these weights and not from fresh ones.

    Raises:
        ModelError: the run has published nothing, or something that is not whole.
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
