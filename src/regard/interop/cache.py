"""A cache of exported models, so that serving a model twice exports it once."""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from regard import files
from regard.errors import ModelError
from regard.interop import ctranslate2 as exporter
from regard.interop.ctranslate2 import Quantization
from regard.interop.engine import Engine
from regard.translation.translator import Translator


def is_exported(folder: str | Path) -> bool:
    """Whether a folder holds a model of CTranslate2, and not a run of ours."""
    folder = Path(folder)
    return (folder / "model.bin").is_file() and not (folder / "config.toml").is_file()


def cached_engine(translator: Translator, quantization: Quantization) -> Engine:
    """The engine of a translator, from the user's cache folder; exported there the first time.

    Raises:
        ModelError: the model is not a Transformer.
        ConfigurationError: ctranslate2 is not installed.
    """
    library = exporter.library()
    name = _digest(translator, quantization, library.__version__)
    try:
        place = _folder() / name
        place.parent.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # it cannot be made, or the user has no home folder
        return Engine.of(translator, quantization=quantization)
    files.use(place)
    try:
        return Engine(place, translator.tokenizers)
    except ModelError:  # missing or damaged
        shutil.rmtree(place, ignore_errors=True)
    files.remove_unused(place.parent, "[0-9a-f]{32}")
    with suppress(ModelError):  # another process was quicker, or the folder is read-only
        exporter.export(translator, place, quantization)
    try:
        return Engine(place, translator.tokenizers)
    except ModelError:
        return Engine.of(translator, quantization=quantization)


def _folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "regard" / "ctranslate2"


def _digest(translator: Translator, *others: Any) -> str:
    """A digest of everything that an export depends on."""
    model = translator.model
    # The same weights are another model with other heads, another norm or another activation.
    known = others, translator.search, getattr(model, "settings", None)
    digest = hashlib.sha256(repr(known).encode())
    for name, weight in model.state_dict().items():
        numbers = weight.detach().cpu().contiguous().float().numpy()
        digest.update(f"{name} {tuple(weight.shape)}".encode() + numbers.tobytes())
    for name, content in translator.tokenizers.files().items():
        digest.update(name.encode() + content)
    return digest.hexdigest()[:32]
