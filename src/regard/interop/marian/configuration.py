"""What config.json and generation_config.json of a Marian folder say, checked before anything is built from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from regard.interop.marian.layout import ACTIVATIONS
from regard.translation.errors import ModelError
from regard.translation.models.transformer import TransformerSettings

_LARGEST_FILE = 64 * 2**20
_Size = Annotated[int, Field(ge=1, le=1_000_000)]
_Width = Annotated[int, Field(ge=2, le=65_536, multiple_of=2)]
_Small = Annotated[int, Field(ge=1, le=1_000)]


class MarianConfiguration(BaseModel):
    """The keys that we understand, with Hugging Face's defaults; others say nothing about what is computed."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    vocab_size: _Size = 58101
    decoder_vocab_size: _Size | None = None
    d_model: _Width = 1024
    encoder_layers: _Small = 12
    decoder_layers: _Small = 12
    encoder_attention_heads: _Small = 16
    decoder_attention_heads: _Small = 16
    encoder_ffn_dim: _Width = 4096
    decoder_ffn_dim: _Width = 4096
    activation_function: str = "gelu"
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    dropout: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.1
    pad_token_id: int = 58100
    decoder_start_token_id: int = 58100
    eos_token_id: int = 0
    normalize_before: bool = False
    normalize_embedding: bool = False
    add_final_layer_norm: bool = False
    num_beams: Annotated[int, Field(ge=1, le=1000)] = 1
    length_penalty: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 1.0
    bad_words_ids: list[list[int]] | None = None

    @property
    def target_size(self) -> int:
        shared = self.share_encoder_decoder_embeddings
        return self.vocab_size if shared or not self.decoder_vocab_size else self.decoder_vocab_size

    def settings(self) -> TransformerSettings:
        """The shape of our Transformer that computes the same."""
        tied = "three_way" if self.share_encoder_decoder_embeddings else "target"
        return TransformerSettings(
            encoder_layers=self.encoder_layers,
            decoder_layers=self.decoder_layers,
            width=self.d_model,
            heads=self.encoder_attention_heads,
            feed_forward=self.encoder_ffn_dim,
            activation=ACTIVATIONS[self.activation_function],
            norm="post",
            tied=tied if self.tie_word_embeddings else "none",  # type: ignore[arg-type]
            dropout=self.dropout,
            attention_bias=True,
            output_bias=True,
            scale_embedding=self.scale_embedding,
        )


def read(folder: Path) -> MarianConfiguration:
    """The configuration of a folder.

    Raises:
        ModelError: it is not Marian's, it is broken, or the model does what ours do not.
    """
    path = folder / "config.json"
    table = read_table(path)
    kind = table.get("model_type")
    if kind is None and (folder / "model.bin").exists():
        raise ModelError(f"{folder}: a CTranslate2 model: regard.interop.engine.Engine opens it")
    if kind != "marian":
        raise ModelError(
            f"{path}: model_type is {_short(kind)}: only Marian models (OPUS-MT) are read; T5 has relative "
            "positions and norms of another kind, BART a norm after its embeddings, which our layers have not"
        )
    said = read_table(folder / "generation_config.json", missing={})
    searching = {key: said[key] for key in _SEARCH if said.get(key) is not None}
    given = {key: value for key, value in (table | searching).items() if value is not None}
    if isinstance(given.get("eos_token_id"), list) and len(given["eos_token_id"]) == 1:
        given["eos_token_id"] = given["eos_token_id"][0]
    try:
        found = MarianConfiguration.model_validate(given)
    except ValidationError as fault:
        first = fault.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise ModelError(
            f"{path}: {key} is {_short(first['input'])}: {first['msg'].lower()}"
        ) from None
    _check(path, found)
    return found


_SEARCH = ("num_beams", "length_penalty", "bad_words_ids")


def _check(path: Path, found: MarianConfiguration) -> None:
    def refuse(key: str, why: str) -> None:
        raise ModelError(f"{path}: {key} is {_short(getattr(found, key))}: {why}")

    if found.activation_function not in ACTIVATIONS:
        refuse("activation_function", f"known are {', '.join(ACTIVATIONS)}")
    if found.encoder_attention_heads != found.decoder_attention_heads:
        refuse("decoder_attention_heads", "our encoder and decoder have the same number of heads")
    if found.encoder_ffn_dim != found.decoder_ffn_dim:
        refuse("decoder_ffn_dim", "our encoder and decoder have feed-forward layers of one width")
    if found.d_model % found.encoder_attention_heads:
        refuse("d_model", f"it is no multiple of {found.encoder_attention_heads} heads")
    for key in ("normalize_before", "normalize_embedding", "add_final_layer_norm"):
        if getattr(found, key):
            refuse(key, "Marian normalises after each sublayer and nowhere else")
    barred = ([found.pad_token_id], [found.decoder_start_token_id])
    if any(words not in barred for words in found.bad_words_ids or []):
        refuse(
            "bad_words_ids",
            "our search bars padding and the start of a sentence, and no other words",
        )


def read_table(path: Path, missing: dict[str, Any] | None = None) -> dict[str, Any]:
    """The object in a JSON file; `missing`, where it is given, for a file that is not there.

    Raises:
        ModelError: it cannot be read, is no JSON object, or says something twice.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            raise ValueError("a key stands twice")
        return table

    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise ModelError(f"{path}: larger than {_LARGEST_FILE} bytes")
        table = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=once)
    except FileNotFoundError:
        if missing is not None:
            return missing
        raise ModelError(f"{path}: is not there") from None
    except OSError as fault:
        raise ModelError(f"{path}: cannot be read: {fault.strerror}") from None
    except (ValueError, RecursionError) as fault:
        raise ModelError(f"{path}: not valid JSON: {' '.join(str(fault).split())[:200]}") from None
    if not isinstance(table, dict):
        raise ModelError(f"{path}: expected an object, got {_short(table)}")
    return table


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
