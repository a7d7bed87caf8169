"""A folder of Hugging Face as a run; its tensors, and the Transformer that is built from them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from regard.errors import ModelError
from regard.interop.huggingface.configuration import named
from regard.interop.huggingface.tokenizer import VocabularyMap
from regard.translation import weights
from regard.translation.models.building import SkipInitialisation
from regard.translation.models.protocol import TranslationModel
from regard.translation.models.transformer.model import Transformer
from regard.translation.runs import Run, Tokenizers
from regard.translation.settings.transformer import TransformerSettings
from regard.translation.text.tokenizer import BOS, PAD

_FILE = "model.safetensors"
# A logit that leaves a word no probability.
_NEVER = -30000.0


@dataclass(frozen=True)
class HuggingFaceRun(Run):
    """A folder that `save_pretrained` wrote. Search, looks and commands use it like a run of ours.

    It searches as `generation_config.json` says. The length penalty has the same value but another formula: theirs
    divides by n^alpha, ours by ((5 + n) / 6)^alpha.
    """

    @cached_property
    def words(self) -> tuple[VocabularyMap, VocabularyMap]:
        """The vocabularies of source and target."""
        raise NotImplementedError

    def transformer(self) -> Transformer:
        """The model of the folder. Raises `ModelError` when its file of weights cannot be used."""
        raise NotImplementedError

    def model(self, tokenizers: Tokenizers) -> TranslationModel:
        sizes = [len(tokenizers.source), len(tokenizers.target)]
        if sizes != [len(words.rows) for words in self.words]:
            raise ModelError(f"{self.folder}: the tokenizers given are not its own")
        return self.transformer()

    def file(self, name: str) -> Path:
        """The path of a file of the folder. Raises `ModelError` when it is missing."""
        path = self.folder / name
        if not path.is_file():
            hint = f": tokenizer.json cannot be read: put the {name} of this model beside it"
            has_other = (self.folder / "tokenizer.json").exists()
            raise ModelError(f"{self.folder}: it has no {name}{hint * has_other}")
        return path


class Tensors:
    """The tensors of a folder: checked when they are taken; `build` refuses those that were not taken.

    `unneeded` are the ends of the names of tensors that a model does not need. All methods raise `ModelError`.
    """

    def __init__(self, folder: Path, unneeded: tuple[str, ...]) -> None:
        self.path = _file(folder)
        tensors = weights.load(self.path)
        self.tensors = {name: t for name, t in tensors.items() if not name.endswith(unneeded)}
        self.unused = set(self.tensors)

    def __call__(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor of this name, finite and of this shape."""
        return self.alike([name], shape)

    def maybe(self, name: str, shape: tuple[int, ...]) -> Tensor | None:
        """The same, or None where there is none."""
        self.unused.discard(name)
        tensor = self.tensors.get(name)
        if tensor is None:
            return None
        if tensor.shape != shape:
            raise ModelError(
                f"{self.path}: tensor {name} has shape {tuple(tensor.shape)}, config.json asks for {shape}"
            )
        weights.check_finite(name, tensor, torch.float32, self.path)  # by its name in the file
        return tensor.float()

    def alike(self, names: Sequence[str], shape: tuple[int, ...]) -> Tensor:
        """The tensor with any of these names; tensors with several of them must be equal."""
        tensors = {name: t for name in names if (t := self.maybe(name, shape)) is not None}
        if not tensors:
            raise ModelError(f"{self.path}: tensor {names[0]} is missing")
        kept_name, *other_names = tensors
        for other_name in other_names:
            if not torch.equal(tensors[kept_name], tensors[other_name]):
                raise ModelError(
                    f"{self.path}: tensors {kept_name} and {other_name} differ, but config.json ties them"
                )
        return tensors[kept_name]

    def layers(
        self, settings: TransformerSettings, their_name: Callable[[str], str]
    ) -> Iterator[tuple[str, Tensor]]:
        """Our name and the tensor of each weight in the layers of a model, its norms and its positions."""
        with SkipInitialisation(), torch.device("meta"):
            shaped = Transformer(settings, 1, 1, PAD)
        for ours, tensor in shaped.state_dict().items():
            if ours.startswith(("encoder", "decoder")):
                yield ours, self(their_name(ours), tuple(tensor.shape))

    def build(
        self,
        kind: str,
        settings: TransformerSettings,
        state: dict[str, Tensor],
        source: VocabularyMap,
        target: VocabularyMap,
    ) -> Transformer:
        """The Transformer with these weights."""
        for name in sorted(self.unused):
            raise ModelError(f"{self.path}: tensor {named(name)} has no place in a {kind} model")
        if target.copied:
            state["output.bias"][BOS] = _NEVER
        with SkipInitialisation():
            model = Transformer(settings, len(source.rows), len(target.rows), PAD)
        weights.load_into(model, state, self.path)
        return model.eval()


def renamed(name: str, replacements: dict[str, str]) -> str:
    """A name with each of these parts replaced."""
    for ours, theirs in replacements.items():
        name = name.replace(ours, theirs)
    return name


def _file(folder: Path) -> Path:
    path = folder / _FILE
    if path.is_file():
        return path
    if (folder / f"{_FILE}.index.json").exists():
        raise ModelError(
            f"{folder}: its weights are in several parts: save it again with "
            'save_pretrained(..., max_shard_size="100GB")'
        )
    if any((folder / name).exists() for name in ("pytorch_model.bin", "tf_model.h5")):
        raise ModelError(
            f"{folder}: it has no {_FILE}; pytorch_model.bin is a pickle, which can run code of its author, "
            "and is not opened: if you trust it, open it with transformers and save it with save_pretrained"
        )
    raise ModelError(f"{folder}: it has no {_FILE}")
