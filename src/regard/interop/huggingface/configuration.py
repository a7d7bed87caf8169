"""JSON files of Hugging Face folders, checked before anything is built from them."""

import json
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from regard.errors import ModelError, one_line
from regard.translation import checksums
from regard.translation.settings.configuration import Configuration
from regard.translation.settings.data import DataSettings
from regard.translation.settings.search import Beam, LengthPenalty, SearchSettings
from regard.translation.settings.training import TokenizerSettings
from regard.translation.settings.transformer import TransformerSettings

LARGEST_FILE = 64 * 2**20  # bytes

Size = Annotated[int, Field(ge=1, le=1_000_000)]
Id = Annotated[int, Field(ge=0, le=1_000_000)]

# For the search, generation_config.json overrides config.json; for ids, config.json overrides it.
_SEARCH = ("num_beams", "length_penalty", "bad_words_ids")
_IDS = ("pad_token_id", "decoder_start_token_id", "eos_token_id")


class HuggingFaceConfiguration(BaseModel):
    """The keys of config.json that all kinds of models share; unknown keys are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    pad_token_id: Id
    decoder_start_token_id: Id
    eos_token_id: Id
    num_beams: Beam = 1
    length_penalty: LengthPenalty = 1.0
    bad_words_ids: list[list[int]] | None = None

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Raises `ModelError` when it is broken, or our Transformer has no counterpart of a setting."""
        path = folder / "config.json"
        generation = read_table(folder / "generation_config.json", missing={})
        ids, search = ({key: generation.get(key) for key in keys} for keys in (_IDS, _SEARCH))
        tables = (ids, read_table(path), search)
        values = {k: v for table in tables for k, v in table.items() if v is not None}
        if isinstance(values.get("eos_token_id"), list) and len(values["eos_token_id"]) == 1:
            values["eos_token_id"] = values["eos_token_id"][0]
        try:
            configuration = cls.model_validate(values)
        except ValidationError as fault:
            error = fault.errors()[0]
            key = ".".join(map(str, error["loc"]))
            raise ModelError(
                f"{path}: {key} is {short(error['input'])}: {error['msg'].lower()}"
            ) from None
        for applies, key, objection in configuration.objections():
            if applies:
                raise ModelError(
                    f"{path}: {key} is {short(getattr(configuration, key))}: {objection}"
                )
        return configuration

    def objections(self) -> list[tuple[bool, str, str]]:
        """Why our Transformer may have no counterpart of a setting: whether that is so here, the key, the reason."""
        barred = ([self.pad_token_id], [self.decoder_start_token_id])
        bars_words = any(words not in barred for words in self.bad_words_ids or [])
        why = "our search excludes padding and the start of a sentence, and no other words"
        return [(bars_words, "bad_words_ids", why)]

    def for_run(
        self,
        model: TransformerSettings,
        *,
        joint: bool,
        source: str = "unknown",
        target: str = "unknown",
    ) -> Configuration:
        """The configuration of a run, as far as the folder has one: it names no corpus and no training."""
        return Configuration.model_construct(
            data=DataSettings.model_construct(source_language=source, target_language=target),
            tokenizer=TokenizerSettings(joint=joint),
            model=model,
            search=SearchSettings(
                beam=self.num_beams, length_penalty=self.length_penalty, capitals=False
            ),
        )


def read_table(path: Path, missing: dict[str, Any] | None = None) -> dict[str, Any]:
    """The object in a JSON file, in which no key stands twice; `missing`, if given, when there is no such file."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            raise ValueError("a key stands twice")
        return table

    if missing is not None and not path.exists():
        return missing
    try:
        table = json.loads(checksums.content(path, None, LARGEST_FILE), object_pairs_hook=once)
    except (ValueError, RecursionError) as fault:
        raise ModelError(f"{path}: not valid JSON: {one_line(fault)}") from None
    if not isinstance(table, dict):
        raise ModelError(f"{path}: expected an object, got {short(table)}")
    return table


def short(value: Any) -> str:
    """A value from a file as one short line of a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def named(name: str) -> str:
    """A name from a file as one short line of a message; unchanged where it is one."""
    return name if name.isprintable() and len(name) <= 200 else short(name)
