"""Opening a folder of Hugging Face: its config.json names the kind of model."""

from pathlib import Path

from regard.errors import ModelError
from regard.interop.huggingface.configuration import read_table, short
from regard.interop.huggingface.marian import MarianRun
from regard.interop.huggingface.t5 import T5Run
from regard.translation.runs import Run

# By the model_type in config.json.
_READERS: dict[str, type[Run]] = {"marian": MarianRun, "t5": T5Run, "mt5": T5Run}
_REFUSED = {
    "bart": "its pieces are byte-level BPE (vocab.json, merges.txt) and no sentencepiece, and its embeddings are "
    "normalised before the first layer",
    "mbart": "its embeddings are normalised before the first layer",
    "umt5": "every layer has relative positions of its own, ours share those of the first",
}


def open_folder(folder: Path) -> Run:
    """The folder of a `save_pretrained` as a run. Raises `ModelError` when it cannot be read."""
    path = folder / "config.json"
    kind = read_table(path).get("model_type")
    if kind is None and (folder / "model.bin").exists():
        raise ModelError(
            f"{folder}: a model of CTranslate2: add --engine ctranslate2 (from Python: regard.interop.engine.Engine)"
        )
    name = kind if isinstance(kind, str) else ""
    if name in _READERS:
        return _READERS[name].open(folder)
    why = f"; {_REFUSED[name]}" if name in _REFUSED else ""
    raise ModelError(
        f"{path}: model_type is {short(kind)}: only {', '.join(_READERS)} are read{why}"
    )
