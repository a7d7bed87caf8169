"""The settings of a training, as in the `[tokenizer]` and `[training]` tables."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from regard.translation.settings.base import Count, NotNegative, Rate, Settings, Small


class TokenizerSettings(Settings):
    """How text is cut into word pieces."""

    kind: Literal["unigram", "bpe"] = "unigram"
    """How sentencepiece chooses word pieces: a unigram language model, or byte-pair encoding."""
    vocabulary_size: Annotated[int, Field(ge=8, le=1_000_000)] = 6000
    """Word pieces of a vocabulary, including 4 special ones, the tags and 256 bytes. A small text gives fewer."""
    joint: bool = True
    """Whether source and target share one vocabulary."""
    character_coverage: Annotated[float, Field(ge=0.98, le=1)] | Literal["auto"] = "auto"
    """The part of the text whose characters are word pieces of their own; other characters are written
    as bytes. "auto" is 1 for alphabets, and 0.9995 for a text of more than 1,000 different characters.
    """
    sampling: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.0
    """Subword regularisation (arXiv 1804.10959): words are cut anew in each pass, with probability proportional to
    P^sampling. 0 always takes the best segmentation.
    """

    @field_validator("character_coverage", mode="before")
    @classmethod
    def _most_of_the_text(cls, value: Any) -> Any:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value != "auto" and not (number and 0.98 <= value <= 1):
            raise ValueError('use "auto", or a number from 0.98 to 1')
        return value

    def faults(self) -> Iterator[str]:
        if self.sampling and self.kind != "unigram":
            yield 'sampling needs kind = "unigram": BPE has one segmentation of a word'


class GuideSettings(Settings):
    """Guided attention: teaches one attention of the decoder the word links of the training corpora. Without `links` of
    a corpus they are learnt from the training text, as `regard align --adapt` does.
    """

    layer: Annotated[int, Field(ge=0, lt=1000)] = 0
    """The decoder layer that is taught, counted from 0."""
    head: Annotated[int, Field(ge=0, lt=1000)] | None = None
    """The head that is taught, counted from 0. Without it: the mean of the heads."""
    rows: Literal["written", "read"] = "read"
    """Which decoder steps are taught: those that write a linked word ("written"), or those that have just read it
    ("read").
    """
    words: Literal["spaces", "marks"] = "spaces"
    """How the words of the links were separated: by white space ("spaces"), or by white space and punctuation
    ("marks": each run of letters and digits, and each run of other characters, is a word).
    """
    weight: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] = 0.5
    """The weight of a linked piece in the loss; a target word has weight 1."""


class TrainingSettings(Settings):
    """How a model is trained."""

    max_steps: Annotated[int, Field(ge=0, le=1_000_000_000)] = 10_000
    """The number of updates after which training ends. 0 sets no limit; so does leaving it out beside `max_epochs`."""
    max_epochs: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """The number of passes over the training corpus after which training ends. 0 sets no limit. With `max_steps`, the
    limit that is reached first ends it.
    """
    max_minutes: Annotated[float, Field(ge=0, le=10_000_000, allow_inf_nan=False)] = 0.0
    """Minutes of steps and validations after which training ends, after a validation; those before an interruption
    count. 0 sets no limit. `max_steps` or `max_epochs` is needed beside it, because the schedule of the learning rate
    follows them: choose about as many steps as fit.
    """
    batch_tokens: Annotated[int, Field(ge=1, le=10_000_000)] = 2048
    """Target tokens of a batch, with end marks and without padding."""
    accumulate: Small = 1
    """Batches whose gradients are summed for one update."""
    optimiser: Literal["adam", "adamw", "muon"] = "adam"
    """Adam; AdamW with its decoupled weight decay; or Muon (arXiv 2502.16982) for the matrices of layers, and AdamW for
    all other weights.
    """
    learning_rate: Annotated[float, Field(gt=0, le=10, allow_inf_nan=False)] = 1e-3
    """The highest learning rate; `schedule` and `warmup` scale it."""
    betas: Annotated[tuple[Rate, Rate], Field(strict=False)] = (0.9, 0.98)
    """Decay rates of the two moments of Adam."""
    weight_decay: NotNegative = 0.0
    """Weight decay: added to the gradient by Adam, applied to the weights by AdamW."""
    schedule: Literal["constant", "inverse_square_root", "cosine", "plateau"] = (
        "inverse_square_root"
    )
    """The learning rate after warm-up: constant; falling with the inverse square root of the step; half a cosine
    down to 0 at the last step; or halved when two validations in a row bring no progress ("plateau").
    """
    warmup: Annotated[int, Field(ge=0, le=100_000_000)] = 400
    """Steps in which the learning rate rises linearly from 0."""
    label_smoothing: Rate = 0.1
    """The part of the target probability that is spread evenly over the vocabulary (arXiv 1512.00567)."""
    consistency: NotNegative = 0.0
    """The weight of R-Drop (arXiv 2106.14448): each batch is read twice, and the difference between the two predictions
    is part of the loss. A good value is 5. A step takes twice as long; with enough steps, a small corpus gives a
    better model. 0 reads each batch once.
    """
    clip: NotNegative = 1.0
    """The largest norm of the gradient; a larger gradient is scaled down to it. 0 switches clipping off."""
    precision: Literal["auto", "float32", "medium", "bfloat16"] = "auto"
    """The arithmetic of a step: float32; "medium", float32 whose matrix products may round to bfloat16; bfloat16
    autocast; or "auto", which measures them at the start and takes float32 unless another one is clearly faster.
    """
    threads: Annotated[int, Field(ge=0, le=1024)] = 0
    """Threads of the processor that one process uses. 0 measures 1, 4, 16, ... and as many as torch uses by itself at
    the start, and takes few unless more are clearly faster.
    """
    validate_every: Count = 500
    """Steps from one validation to the next."""
    validate_sentences: Annotated[int, Field(ge=0, le=10_000_000)] = 500
    """Sentences that a validation translates, drawn from the validation corpus. 0 takes all."""
    validate_samples: Annotated[int, Field(ge=0, le=1000)] = 3
    """Translations that each validation prints and adds to samples.txt, of the same sentences every time."""
    save_every: Count = 500
    """Steps from one checkpoint to the next."""
    keep_best: Small = 3
    """How many of the best checkpoints are kept."""
    average: bool = True
    """Whether the mean of the best checkpoints is published where it is better on the validation corpus."""
    patience: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Validations without progress after which training ends. 0 never ends it early."""
    log_every: Count = 50
    """Steps from one line of progress to the next."""
    shard: bool = False
    """Whether several processes each keep only a part of the weights, gradients and moments (FSDP2)."""
    tensorboard: bool = False
    """Whether scalars for TensorBoard are written into the run folder."""
    guide: GuideSettings | None = None

    @model_validator(mode="before")
    @classmethod
    def _epochs_alone(cls, table: Any) -> Any:
        """Where `max_epochs` is given alone, the default of `max_steps` ends no training."""
        if isinstance(table, dict) and table.get("max_epochs") and "max_steps" not in table:
            return {**table, "max_steps": 0}
        return table

    def faults(self) -> Iterator[str]:
        if not self.max_steps and not self.max_epochs:
            yield "give max_steps, max_epochs or both: 0 is no limit"
        if self.shard and self.optimiser == "muon":
            yield 'shard and optimiser = "muon" exclude each other: Muon needs whole matrices'


# Keys that may change on --resume: budgets, patience, logging, settings of the machine, and a text of the card.
FREE_ON_RESUME = {"data.attribution"} | {
    f"training.{name}"
    for name in (
        "max_steps max_epochs max_minutes patience log_every shard tensorboard save_every keep_best precision threads "
        "validate_every validate_sentences validate_samples average"
    ).split()
}
