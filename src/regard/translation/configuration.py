"""Configurations: TOML, typed, every key checked before anything else happens."""

from __future__ import annotations

import difflib
import math
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from regard.translation.errors import ConfigurationError

_LARGEST_FILE = 1_000_000
# tomllib takes quadratic time over a key of many parts.
_MOST_DOTS = 100

Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Small = Annotated[int, Field(ge=1, le=1_000)]
Width = Annotated[int, Field(ge=1, le=65_536)]
Rate = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Section(BaseModel):
    """A table of the file: unknown keys are refused, types are not guessed."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TransformerSection(Section):
    kind: Literal["transformer"] = "transformer"
    encoder_layers: Small = 3
    decoder_layers: Small = 3
    width: Width = 256
    heads: Small = 4
    feed_forward: Width = 1024
    activation: Literal["relu", "gelu", "silu"] = "relu"
    norm: Literal["pre", "post"] = "pre"
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    longest: Count = 512
    tied: Literal["none", "target", "three_way"] = "three_way"
    dropout: Rate = 0.1

    @model_validator(mode="after")
    def _heads_divide(self) -> TransformerSection:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}")
        if self.width % 2 and self.positions == "sinusoidal":
            raise ValueError(f"width {self.width} must be even for sinusoidal positions")
        return self


class RecurrentSection(Section):
    kind: Literal["recurrent"]
    cell: Literal["gru", "lstm"] = "gru"
    encoder_layers: Small = 1
    decoder_layers: Small = 1
    bidirectional: bool = True
    embedding_width: Width = 256
    encoder_width: Width = 256
    decoder_width: Width = 256
    attention: Literal["bahdanau", "luong", "none"] = "bahdanau"
    score: Literal["additive", "concat", "dot", "scaled_dot", "cosine", "general"] = "additive"
    attention_width: Width = 256
    heads: Small = 1
    input_feeding: bool = True
    bridge: Literal["linear", "zero", "copy"] = "linear"
    tied: Literal["none", "target", "three_way"] = "three_way"
    dropout: Rate = 0.1
    scheduled_sampling: Rate = 0.0


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


class SearchSection(Section):
    beam: Annotated[int, Field(ge=1, le=1000)] = 5
    length_penalty: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 1.0


class Configuration(Section):
    """Everything a training needs to know."""

    version: Literal[1] = 1
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    data: DataSection
    tokenizer: TokenizerSection = TokenizerSection()
    model: Annotated[TransformerSection | RecurrentSection, Field(discriminator="kind")]
    training: TrainingSection = TrainingSection()
    search: SearchSection = SearchSection()

    @model_validator(mode="after")
    def _tied_needs_joint(self) -> Configuration:
        if self.model.tied == "three_way" and not self.tokenizer.joint:
            raise ValueError('model.tied = "three_way" needs tokenizer.joint = true')
        return self

    @model_validator(mode="after")
    def _positions_reach(self) -> Configuration:
        model, longest = self.model, self.data.longest
        if not isinstance(model, TransformerSection) or model.positions != "learned":
            return self
        if model.longest <= longest:
            raise ValueError(
                f"model.longest = {model.longest} must be above data.longest = {longest}: "
                "learned positions go no further"
            )
        return self


# What a resumed training may change: budgets, patience, logging and what the machine decides.
FREE_ON_RESUME = {
    ("training", name)
    for name in (
        "max_steps",
        "patience",
        "log_every",
        "save_every",
        "keep_best",
        "threads",
        "validate_every",
        "validate_sentences",
        "average",
    )
}


def read(path: Path, changes: tuple[str, ...] = ()) -> Configuration:
    """The configuration of a TOML file, with `section.key=value` changes applied.

    Raises `ConfigurationError` naming the key, the value and what is allowed.
    """
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise ConfigurationError(f"{path}: larger than {_LARGEST_FILE} bytes, no configuration")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as fault:
        raise ConfigurationError(f"{path}: cannot be read: {fault.strerror}") from None
    except UnicodeDecodeError as fault:
        raise ConfigurationError(f"{path}: byte {fault.start + 1} is not UTF-8") from None
    return parse(text, str(path), changes)


def parse(text: str, name: str = "configuration", changes: tuple[str, ...] = ()) -> Configuration:
    """The configuration written in TOML text (see `read`)."""
    table = _toml(text, name)
    for change in changes:
        _apply(table, change)
    try:
        return Configuration.model_validate(table)
    except ValidationError as fault:
        raise ConfigurationError("\n".join(_explain(e, name) for e in fault.errors()[:5])) from None


def dump(configuration: Configuration) -> str:
    """The configuration as TOML that `parse` reads back to the same."""
    lines: list[str] = []
    _dump(configuration.model_dump(exclude_none=True), (), lines)
    return "\n".join(lines).strip() + "\n"


def differences(old: Configuration, new: Configuration) -> list[str]:
    """What a resumed training would change but may not: `key: old -> new`."""
    before, after = _flat(old.model_dump()), _flat(new.model_dump())
    return [
        f"{'.'.join(key)}: {before.get(key)!r} in the run folder, {after.get(key)!r} asked for"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key) and key not in FREE_ON_RESUME
    ]


def _toml(text: str, name: str) -> dict[str, Any]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") > _MOST_DOTS:
            raise ConfigurationError(f"{name}:{number}: more than {_MOST_DOTS} dots in one line")
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as fault:
        raise ConfigurationError(f"{name}: not valid TOML: {fault}") from None


def _apply(table: dict[str, Any], change: str) -> None:
    path, equals, value = change.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        raise ConfigurationError(f"--set {change}: expected section.key=value")
    if not value.isascii() and value.encode("utf-8", "replace").decode() != value:
        raise ConfigurationError(f"--set {path}: the value is not UTF-8")
    try:
        found = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        found = value.strip()
    for key in keys[:-1]:
        below = table.setdefault(key, {})
        if not isinstance(below, dict):
            raise ConfigurationError(f"--set {change}: {key} is no section")
        table = below
    table[keys[-1]] = found


def _explain(error: Any, name: str) -> str:
    # A union's place names the variant chosen, which is no key of the file.
    place = [str(p) for p in error["loc"]]
    if place[:1] == ["model"]:
        del place[1:2]
    key = _printable(".".join(place)) or "the file"
    if error["type"] == "extra_forbidden":
        return f"{name}: unknown key {key}{_nearest(place, error)}"
    if error["type"] == "missing":
        return f"{name}: missing key {key}"
    if error["type"].startswith("union_tag"):
        return f'{name}: model.kind must be "transformer" or "recurrent"'
    message = error["msg"].removeprefix("Value error, ")
    if not place:
        return f"{name}: {message}"
    return f"{name}: {key} = {_short(error.get('input'))}: {message[:1].lower() + message[1:]}"


def _short(value: Any) -> str:
    return "{...}" if isinstance(value, dict) else _cut(repr(value))


def _printable(key: str) -> str:
    return _cut(key if key.isprintable() else repr(key))


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _nearest(place: list[str], error: Any) -> str:
    known = _known_keys(place[:-1])
    close = difflib.get_close_matches(place[-1], known, n=1, cutoff=0.5)
    return (
        f": did you mean {'.'.join([*place[:-1], close[0]])}?"
        if close
        else f": known are {', '.join(known)}"
    )


def _known_keys(section: list[str]) -> list[str]:
    known: dict[str, list[type[BaseModel]]] = {
        "": [Configuration],
        "data": [DataSection],
        "data.train": [FilesSection],
        "data.valid": [FilesSection],
        "data.generated": [GeneratedSection],
        "tokenizer": [TokenizerSection],
        "model": [TransformerSection, RecurrentSection],
        "training": [TrainingSection],
        "search": [SearchSection],
    }
    return sorted({k for m in known.get(".".join(section), []) for k in m.model_fields})


def _dump(table: dict[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    if path and plain:
        lines += ["", f"[{'.'.join(path)}]"]
    lines += [f"{key} = {_value(value)}" for key, value in plain.items()]
    for key, value in table.items():
        if isinstance(value, dict):
            _dump(value, (*path, key), lines)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} has no place in a configuration")
    return repr(value)


def _string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return (
        '"' + "".join(c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}" for c in escaped) + '"'
    )


def _flat(table: dict[str, Any], path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    flat: dict[tuple[str, ...], Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= _flat(value, (*path, key))
        else:
            flat[(*path, key)] = value
    return flat
