"""The `[training]` and `[search]` tables: how a model learns, and how it is asked."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from regard.translation.configuration.section import Count, NotNegative, Rate, Section, Small


class GuideSection(Section):
    """Which look at the source learns from the links of the training corpora.

    `layer` counts the decoder's from 0; without a `head` the mean of its heads is taught. `rows` are the steps that
    write a linked word, or that have just read it; `weight` is what a linked piece counts beside a word of the loss.
    The links' `words` are what white space keeps apart, or, with "marks", what punctuation keeps apart as well: each
    run of letters and digits and each run of other characters is a word.
    """

    layer: Annotated[int, Field(ge=0, lt=1000)] = 0
    head: Annotated[int, Field(ge=0, lt=1000)] | None = None
    rows: Literal["written", "read"] = "read"
    words: Literal["spaces", "marks"] = "spaces"
    weight: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] = 0.5


class TrainingSection(Section):
    max_steps: Count = 10_000
    batch_tokens: Annotated[int, Field(ge=1, le=10_000_000)] = 2048
    accumulate: Small = 1
    optimiser: Literal["adam", "adamw"] = "adam"
    learning_rate: Annotated[float, Field(gt=0, le=10, allow_inf_nan=False)] = 1e-3
    betas: Annotated[tuple[Rate, Rate], Field(strict=False)] = (0.9, 0.98)
    weight_decay: NotNegative = 0.0
    schedule: Literal["constant", "inverse_square_root", "cosine", "plateau"] = (
        "inverse_square_root"
    )
    warmup: Annotated[int, Field(ge=0, le=100_000_000)] = 400
    label_smoothing: Rate = 0.1
    clip: NotNegative = 1.0
    precision: Literal["auto", "float32", "medium", "bfloat16"] = "auto"
    threads: Annotated[int, Field(ge=0, le=1024)] = 0
    validate_every: Count = 500
    validate_sentences: Annotated[int, Field(ge=0, le=10_000_000)] = 500
    save_every: Count = 500
    keep_best: Small = 3
    average: bool = True
    patience: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    log_every: Count = 50
    shard: bool = False
    tensorboard: bool = False
    guide: GuideSection | None = None


class SearchSection(Section):
    beam: Annotated[int, Field(ge=1, le=1000)] = 5
    length_penalty: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 1.0


# What a resumed training may change: budgets, patience, logging and what the machine decides.
FREE_ON_RESUME = {
    ("training", name)
    for name in (
        "max_steps",
        "patience",
        "log_every",
        "shard",
        "tensorboard",
        "save_every",
        "keep_best",
        "threads",
        "validate_every",
        "validate_sentences",
        "average",
    )
}
