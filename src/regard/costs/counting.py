"""`cost`: the cost of whatever is named or passed."""

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from regard.costs import architectures
from regard.costs.architectures import Heads, Stack
from regard.costs.papers import PAPERS, Model
from regard.costs.parts import Cost, added, batched
from regard.errors import ConfigurationError
from regard.translation.settings import toml
from regard.translation.settings.transformer import TransformerSettings

if TYPE_CHECKING:
    from torch import nn

    from regard.translation.settings.configuration import Configuration

KINDS: tuple[str, ...] = get_args(Heads.__annotations__["kind"])
CONFIGURATIONS = Path(__file__).parent.parent / "configs"
MOST = 10**12  # of a length or a batch


def cost(
    what: Any,
    *inputs: Any,
    queries: int | None = None,
    keys: int | None = None,
    batch: int = 1,
    number_bytes: int = 4,
    **sizes: Any,
) -> Cost:
    """Parameters, multiply-adds and bytes of one forward pass, by part.

    Matrices are counted: a product of (n, m) and (m, p) has n m p multiply-adds, half of what counters
    of operations give. Softmax, norms, activation functions and sums are not, and masks save nothing.

    Args:
        what: a name of `regard.costs.papers`, such as "gpt-3"; "single-head", "multi-head" or
            "summed-heads"; a configuration's name or file; a bundled model's name or a run folder;
            or any module. A module of ours needs no inputs; others are called with them.
        inputs: arguments of the module.
        queries: tokens that read: of the target, or the new ones of a text. By default the length of
            the paper, 50 for a translator, 512 for one attention.
        keys: tokens that are read: of the source, or of the text. As many as queries by default.
        batch: sequences.
        number_bytes: bytes of a number: 4 for float32, 2 for half precisions.
        sizes: `width` and `heads` of the three attentions; `changes`, a tuple of "key=value" for a
            configuration.

    Raises:
        ConfigurationError: there is nothing of this name, or a number is out of range.

    Example:
        >>> found = cost("gpt-3")
        >>> found.attention_weights()
        ('4 x 96 x (12 x 1,024)^2', 57982058496)
        >>> cost("multi-head", width=512, heads=8, queries=10)["scores"].multiply_adds
        51200
    """
    if not ("torch" in sys.modules and isinstance(what, sys.modules["torch"].nn.Module)):
        if inputs:
            raise ConfigurationError(f"inputs are for modules: leave them out for {what}")
        name = str(what) if isinstance(what, str | os.PathLike) else type(what).__name__
        return of_model(find(what, **sizes), name, queries, keys, batch, number_bytes)
    kind, model = type(what).__name__, built_module(what)
    if model is not None and not inputs:
        return of_model(model, kind, queries, keys, batch, number_bytes)
    if sizes or batch != 1 or queries is not None or keys is not None:
        raise ConfigurationError(
            f"queries, keys, batch and sizes of a {kind} are those of the inputs of its call: leave"
            " them out, and pass the inputs"
        )
    return of_module(what, partial(what, *inputs) if inputs else None, kind, number_bytes)


def of_model(
    model: Model,
    name: str,
    queries: int | None = None,
    keys: int | None = None,
    batch: int = 1,
    number_bytes: int = 4,
) -> Cost:
    """The cost of a model from its formulas."""
    length = model.length if queries is None and keys is None else 0
    given: dict[str, Any] = {
        "queries": length or (keys if queries is None else queries),
        "keys": length or (queries if keys is None else keys),
        "batch": batch,
        "number_bytes": number_bytes,
    }
    for argument, value in given.items():
        if type(value) is not int or not 1 <= value <= MOST:
            raise ConfigurationError(f"{argument} is {value!r}: pass a whole number, 1 to {MOST:,}")
    if isinstance(model.built, Stack) and given["keys"] < given["queries"]:
        least = given["queries"]
        raise ConfigurationError(
            f"keys is {keys}: {name} reads its queries too, pass {least} or more"
        )
    parts = added(batched(batch, model.parts(given["queries"], given["keys"])))
    uncounted: tuple[str, ...] = ()
    if model.most is not None and max(given["queries"], given["keys"]) > model.most:
        uncounted = (f"vectors of positions after {model.most:,}: the model has not learned them",)
    return Cost(name, parts, **given, width=model.width, uncounted=uncounted)


def of_module(
    module: "nn.Module", run: Callable[[], Any] | None, name: str, number_bytes: int = 4
) -> Cost:
    """The cost of a module from its parameters and the products of one call."""
    from regard.costs import modules

    parts, uncounted = modules.count(module, run)
    return Cost(name, added(parts), None, None, 1, number_bytes, None, uncounted)


def built_module(module: "nn.Module") -> Model | None:
    """The formulas of a module of ours; None for other modules."""
    from regard.attention.heads import MultiHeadAttention
    from regard.costs import modules
    from regard.translation.models.recurrent.model import RecurrentModel
    from regard.translation.models.transformer.model import Transformer

    if isinstance(module, Transformer | RecurrentModel):
        sides = (module.source_embedding, module.target_embedding)
        return _translator(module.settings, tuple(each.num_embeddings for each in sides), "")
    formula = modules.heads(module) if isinstance(module, MultiHeadAttention) else None
    return None if formula is None else Model("", 512, formula, None)


def find(
    what: Any, *, width: int | None = None, heads: int | None = None, changes: tuple[str, ...] = ()
) -> Model:
    """The model of a name, a configuration, its file, or a run folder.

    Raises:
        ConfigurationError: there is none, or the width and heads do not fit.
        TypeError: it is no name, path or configuration.
    """
    from regard.translation.settings.configuration import Configuration

    if isinstance(what, Configuration):
        return _configured(what, "a configuration")
    if not isinstance(what, str | os.PathLike):
        raise TypeError(
            f"a value of type {type(what).__name__} is not counted: pass a name, a path, a"
            " Configuration or a module"
        )
    name = os.fspath(what)
    if name in KINDS:
        return _attention(name, 512 if width is None else width, 8 if heads is None else heads)
    if width is not None or heads is not None:
        raise ConfigurationError(f"{name}: width and heads are sizes of {', '.join(KINDS)}")
    shipped = {path.stem: path for path in CONFIGURATIONS.glob("*.toml")}
    path = Path(name) if os.path.isfile(name) else shipped.get(name)
    if path is not None and name not in PAPERS:
        return _configured(toml.read(path, changes), str(path))
    if changes:
        raise ConfigurationError(f"{name}: a key is changed in a configuration: leave --set out")
    return PAPERS[name] if name in PAPERS else _run(name)


def _attention(kind: str, width: int, heads: int) -> Model:
    heads = 1 if kind == "single-head" else heads
    for name, size in (("width", width), ("heads", heads)):
        if type(size) is not int or not 1 <= size <= 65_536:
            raise ConfigurationError(f"{name} is {size!r}: pass a whole number, 1 to 65,536")
    if kind == "multi-head" and width % heads:
        raise ConfigurationError(f"{heads} heads do not divide the width {width}: pass a divisor")
    sizes = Heads(kind, width, heads)  # type: ignore[arg-type]  # one of KINDS
    parts = partial(architectures.attended, sizes)
    return Model(f"one attention of width {width:,}", 512, parts, sizes, width=width)


def _configured(configuration: "Configuration", source: str) -> Model:
    size = configuration.tokenizer.vocabulary_size
    return _translator(configuration.model, (size, size), source, configuration.data.longest)


def _translator(settings: Any, words: Any, source: str, longest: int = 50) -> Model:
    formula: Any = architectures.recurrent
    width = most = None
    if isinstance(settings, TransformerSettings):
        formula, width = architectures.transformer, settings.width
        most = settings.longest if settings.positions == "learned" else None
    return Model(
        *(source, min(50, longest), partial(formula, settings, words), settings, words, width),
        most=most,
    )


def _run(name: str) -> Model:
    from regard.errors import ModelError
    from regard.translation.opening import find as folder_of
    from regard.translation.runs import Run

    try:
        folder = folder_of(name)
    except ModelError as fault:
        known = ", ".join([*PAPERS, *KINDS])
        raise ConfigurationError(
            f"{fault}; named are {known}; or give a configuration, or MODULE:CALL"
        ) from None
    run = Run.open(folder)
    tokenizers = run.tokenizers()
    words = (len(tokenizers.source), len(tokenizers.target))
    return _translator(run.configuration.model, words, str(folder))
