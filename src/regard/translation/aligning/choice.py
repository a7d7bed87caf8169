"""The choice of the attention that aligns words, and its file in the folder of a model."""

import json
import os
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError, with_config
from pydantic.dataclasses import dataclass as pydantic_dataclass

from regard.errors import ConfigurationError, ModelError, one_line
from regard.translation import checksums
from regard.translation.runs import Run
from regard.translation.runs.layout import ALIGNMENT, MODEL, checkpoint_sums
from regard.translation.settings.configuration import Configuration
from regard.translation.settings.toml import toml

Rows = Literal["written", "read"]
Method = Literal["argmax", "mutual", "threshold"]
_LARGEST_FILE = 2**16


@with_config(ConfigDict(extra="forbid", strict=True))
@dataclass(frozen=True)
class Choice:
    """One way to read word links off a model's attention to the source.

    Attributes:
        layer: of the decoder, from 0; None for the mean of all layers.
        head: of the layer, from 0; None for the mean of its heads.
        rows: "written", the steps that write a target word, or "read", the steps that have just
            read it, one later, which are called shifted (Chen et al. 2020, arXiv 2004.14837).
        balanced: whether the words of the source compete for those of the target (`sinkhorn`).
        method: "argmax" links each target word to one source word; "mutual" keeps of those links
            those that hold from the source as well; "threshold" links every pair with the weight.
        threshold: the least weight of a link, for the method of that name.

    Raises:
        ConfigurationError: a number out of its range.

    >>> print(Choice(layer=1, head=2, rows="read"))
    layer 1, head 2, rows of the word read (shifted), argmax
    """

    layer: int | None = None
    head: int | None = None
    rows: Rows = "written"
    balanced: bool = False
    method: Method = "argmax"
    threshold: float = 0.25

    def __post_init__(self) -> None:
        for name in ("layer", "head"):
            number = getattr(self, name)
            if number is not None and number < 0:
                raise ConfigurationError(f"{name} {number}: they count from 0")
        if self.layer is None and self.head is not None:
            raise ConfigurationError(f"head {self.head} of which layer? Give the layer as well")
        if not 0 < self.threshold <= 1:
            raise ConfigurationError(f"threshold {self.threshold:g}: use a share in (0, 1]")

    def __str__(self) -> str:
        where = "mean of all layers" if self.layer is None else f"layer {self.layer}"
        if self.layer is not None:
            where += ", mean of its heads" if self.head is None else f", head {self.head}"
        rows = "word written" if self.rows == "written" else "word read (shifted)"
        share = f" {self.threshold:g}" if self.method == "threshold" else ""
        balanced = "balanced, " if self.balanced else ""
        return f"{where}, rows of the {rows}, {balanced}{self.method}{share}"


def usual(layers: int) -> Choice:
    """The default choice: the layer before the last (Garg et al. 2019, arXiv 1909.02074), the mean
    of its heads, balanced.
    """
    return Choice(layer=max(layers - 2, 0), balanced=True)


def of_run(run: Run) -> Choice:
    """The choice that is stored with a model, or the head that its training taught, or the usual one."""
    if (stored := find(run)) is not None:
        return stored.choice
    return taught(run.configuration) or usual(run.configuration.model.decoder_layers)


def taught(configuration: Configuration) -> Choice | None:
    """The head that training guided towards linked words (`[training.guide]`), if it did."""
    guide = configuration.training.guide
    return Choice(layer=guide.layer, head=guide.head, rows=guide.rows) if guide else None


def _plain(text: str) -> str:
    """Text without quotes, backslashes and line breaks."""
    return "".join(c if c.isprintable() and c not in '"\\' else "_" for c in text)


@pydantic_dataclass(frozen=True, config=ConfigDict(strict=True))
class StoredChoice:
    """A choice as it is stored in the folder of a model.

    Attributes:
        gold: the name of the file of gold links that it was chosen with.
        sentences: the number of sentences in that file.
        aer: the error rate on them, in percent.
        current: whether the model still has the weights that the choice was made for.
    """

    choice: Choice
    gold: Annotated[str, AfterValidator(_plain)]
    sentences: int
    aer: Annotated[float, Field(ge=0, le=100)]
    current: bool = True


def keep(run: Run, stored: StoredChoice) -> Path:
    """Write a choice into the folder of a model."""
    choice = {name: value for name, value in asdict(stored.choice).items() if value is not None}
    table = {
        "gold": stored.gold,
        "sentences": stored.sentences,
        "aer": round(stored.aer, 2),
        "weights": fingerprint(run),
        "choice": choice,
    }
    content = (
        f"# How word links are read from this model: by `regard align --choose`.\n{toml(table)}"
    )
    return run.keep(ALIGNMENT, content.encode())


def find(run: Run) -> StoredChoice | None:
    """The choice in the folder of a model, if one was made. Raises `ModelError` when it cannot be used."""
    path = run.folder / ALIGNMENT
    if not os.path.isfile(path):
        return None
    try:
        table = tomllib.loads(run.content(ALIGNMENT, _LARGEST_FILE).decode("utf-8"))
        table["current"] = table.pop("weights", None) == fingerprint(run)
        # As JSON: strict validation of Python objects would refuse a table for a `Choice`.
        return TypeAdapter(StoredChoice).validate_json(json.dumps(table))
    except ValidationError as fault:
        error = fault.errors()[0]
        key = ".".join(map(str, error["loc"]))
        raise ModelError(
            f"{path}: {key}: {error['msg']}: choose again with regard align --choose"
        ) from None
    except (ValueError, TypeError, RecursionError, ConfigurationError) as fault:
        raise ModelError(
            f"{path}: cannot be read as the choice of an alignment: {one_line(fault)}"
        ) from None


def fingerprint(run: Run) -> str:
    """The sha256 of the weights in use."""
    path = run.folder / MODEL
    newest = None if path.exists() else run.newest_checkpoint()
    if newest is not None:
        return checkpoint_sums(newest)[MODEL]
    return run.checksum(MODEL) or checksums.of(path)
