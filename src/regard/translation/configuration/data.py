"""The `[data]` and `[tokenizer]` tables: which text, and into what pieces it is cut."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from regard.translation.configuration.section import Count, Section


class FilesSection(Section):
    """One corpus: a TSV file, or two files line by line."""

    tsv: str | None = None
    source: str | None = None
    target: str | None = None

    @model_validator(mode="after")
    def _one_form(self) -> FilesSection:
        if (self.tsv is None) == (self.source is None) or (self.source is None) != (
            self.target is None
        ):
            raise ValueError("give either `tsv`, or `source` and `target`")
        return self


class GeneratedSection(Section):
    """A corpus made on the spot."""

    task: Literal["reverse", "dates"]
    train: Count = 20_000
    valid: Count = 1_000
    test: Count = 1_000


class DataSection(Section):
    source_language: str = "source"
    target_language: str = "target"
    train: FilesSection | None = None
    valid: FilesSection | None = None
    generated: GeneratedSection | None = None
    source_column: Annotated[int, Field(ge=0, le=1000)] = 0
    target_column: Annotated[int, Field(ge=0, le=1000)] = 1
    longest: Annotated[int, Field(ge=1, le=100_000)] = 200
    attribution: str = ""

    @model_validator(mode="after")
    def _one_form(self) -> DataSection:
        if self.generated is None and (self.train is None or self.valid is None):
            raise ValueError("give `data.train` and `data.valid`, or `data.generated`")
        if self.generated is not None and (self.train is not None or self.valid is not None):
            raise ValueError("give either `data.generated`, or `data.train` and `data.valid`")
        return self


class TokenizerSection(Section):
    kind: Literal["unigram", "bpe"] = "unigram"
    vocabulary_size: Annotated[int, Field(ge=8, le=1_000_000)] = 6000
    joint: bool = True
    character_coverage: Annotated[float, Field(gt=0, le=1)] = 0.9995
    sampling: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.0

    @model_validator(mode="after")
    def _sampling_needs_unigram(self) -> TokenizerSection:
        if self.sampling and self.kind != "unigram":
            raise ValueError('sampling needs kind = "unigram": BPE has one segmentation of a word')
        return self
