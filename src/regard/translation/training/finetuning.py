"""A new run that starts from the published weights and the tokenizers of another run."""

from __future__ import annotations

from regard.errors import CheckpointError, ConfigurationError
from regard.translation import weights
from regard.translation.models.protocol import TranslationModel
from regard.translation.runs import Run
from regard.translation.runs.layout import MODEL
from regard.translation.settings import Configuration

# These keys change no shape of a weight.
_FREE = {"dropout", "scheduled_sampling", "longest"}


def fitted(configuration: Configuration, start: Run) -> Configuration:
    """A configuration with the tokenizers of the run that it starts from.

    Raises:
        ConfigurationError: its model has another shape, or its corpora have tags that the tokenizers lack.
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
    known = start.tokenizers().source.tags
    missing = [tag for tag in configuration.data.tags if tag not in known]
    if missing:
        raise ConfigurationError(
            f"--from {start.folder}: its tokenizer has no tag {', '.join(missing)} (it has "
            f"{', '.join(known) or 'none'}): train from the start, or leave the tags out"
        )
    return configuration.model_copy(update={"tokenizer": tokenizer})


def copy_weights(start: Run, model: TranslationModel) -> None:
    """Copy the published weights of a run. Raises `ModelError` if it has no published model, or a broken one."""
    path = start.folder / MODEL
    if not path.is_file():
        raise CheckpointError(
            f"{start.folder}: has no {MODEL} to start from: finish its training first"
        )
    published = start.model(start.tokenizers())
    weights.load_into(model, weights.unique(published), path)
