"""What every table of a configuration is: typed, closed to unknown keys, and never changed."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Small = Annotated[int, Field(ge=1, le=1_000)]
Width = Annotated[int, Field(ge=1, le=65_536)]
Rate = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
ScoreName = Literal["scaled_dot", "dot", "cosine", "general", "additive", "concat"]
NormaliserName = Literal["softmax", "sparsemax", "entmax", "hard"]


class Settings(BaseModel):
    """A table of the file: unknown keys are refused, types are not converted.

    The string below a field describes its key in the reference page.
    """

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True
    )

    def faults(self) -> Iterator[str]:
        """Why these values do not fit together."""
        yield from ()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for fault in self.faults():
            raise ValueError(fault)
        return self

    def changed(self, **changes: Any) -> Self:
        """A copy with other values, which are checked."""
        return type(self)(**{**dict(self), **changes})
