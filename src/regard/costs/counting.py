"""`cost`: the cost of whatever is named or passed."""

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from regard.attention.torch_names import answers
from regard.costs.architectures import Heads, Stack
from regard.costs.papers import PAPERS, Model
from regard.costs.parts import Cost, added, batched
from regard.errors import ConfigurationError
from regard.translation.settings import toml

if TYPE_CHECKING:
    from torch import nn

KINDS: tuple[str, ...] = get_args(Heads.__annotations__["kind"])
CONFIGURATIONS = Path(__file__).parent.parent / "configs"
MOST = 10**12  # of a length or a batch


@answers({})
def cost(
    what: Any,
    *inputs: Any,
    queries: int | None = None,
    keys: int | None = None,
    batch: int = 1,
    number_bytes: int = 4,
    width: int | None = None,
    heads: int | None = None,
    value_width: int | None = None,
    learned_keys: int | None = None,
    changes: tuple[str, ...] = (),
) -> Cost:
    """Parameters, multiply-adds and bytes of one forward pass, by part.

    Matrices are counted: a product of (n, m) and (m, p) has n m p multiply-adds, half of what counters
    of operations give. Softmax, norms, activation functions and sums are not, and masks save nothing.

    Args:
        what: a name of `regard.costs.papers`, such as "gpt-3"; "single-head", "multi-head" or
            "summed-heads"; a configuration's name or file; a bundled model's name or a run folder;
            or any module. A module of ours needs no inputs, if its parameters are those that it was
            built with; others are called with them, in evaluation.
        inputs: arguments of the module.
        queries: tokens that read: of the target, or the new ones of a text. By default the length of
            the paper, 50 for a translator, 512 for one attention.
        keys: tokens that are read: of the source, or of the text. As many as queries by default.
        batch: sequences.
        number_bytes: bytes of a number: 4 for float32, 2 for half precisions.
        width: of the queries and keys of the three attentions; 512 by default.
        heads: of "multi-head" and "summed-heads"; 8 by default.
        value_width: of the values of the three attentions; `width` by default.
        learned_keys: learned keys of each head of the three attentions, and as many values; 0 by default.
        changes: "key=value" for a configuration.

    Raises:
        ConfigurationError: there is nothing of this name, or a number is out of range.

    Example:
        >>> found = cost("gpt-3")
        >>> found.attention_weights()
        ('4 x 96 x (12 x 1,024)^2', 57982058496)
        >>> cost("multi-head", width=512, heads=8, queries=10)["scores"].multiply_adds
        51200
    """
    sizes: dict[str, int | None] = {
        "width": width,
        "heads": heads,
        "value_width": value_width,
        "learned_keys": learned_keys,
    }
    if not ("torch" in sys.modules and isinstance(what, sys.modules["torch"].nn.Module)):
        if inputs:
            raise ConfigurationError(f"inputs are for modules: leave them out for {what}")
        name = str(what) if isinstance(what, str | os.PathLike) else type(what).__name__
        model = find(what, **sizes, changes=changes)
        return of_model(model, name, queries, keys, batch, number_bytes)
    kind, formula = type(what).__name__, None if inputs else built_module(what)
    lengths = () if formula else (queries, keys, None if batch == 1 else batch)
    if changes or any(size is not None for size in (*sizes.values(), *lengths)):
        raise ConfigurationError(
            f"queries, keys, batch and sizes of a {kind} are those of the inputs of its call: leave"
            " them out, and pass the inputs"
            if formula is None
            else f"{', '.join(sizes)} and changes of a {kind} are its own: leave them out"
        )
    if formula is not None:
        return of_model(formula, kind, queries, keys, batch, number_bytes)
    return of_module(what, partial(what, *inputs) if inputs else None, kind, number_bytes)


def of_model(
    model: Model, name: str, queries: int | None, keys: int | None, batch: int, number_bytes: int
) -> Cost:
    """The cost of a model from its formulas."""
    lengths = [each for each in (queries, keys) if each is not None] or [model.length]
    queries, keys = lengths[0], lengths[-1]
    _check(MOST, queries=queries, keys=keys, batch=batch, number_bytes=number_bytes)
    if isinstance(model.built, Stack) and keys < queries:
        raise ConfigurationError(
            f"keys is {keys}: {name} reads its queries too, pass {queries} or more"
        )
    costs = added(batched(batch, model.parts(queries, keys)))
    uncounted: tuple[str, ...] = ()
    if model.longest is not None and max(queries, keys) > model.longest:
        uncounted = (
            f"vectors of positions after {model.longest:,}: the model has not learned them",
        )
    return Cost(name, costs, queries, keys, batch, number_bytes, model.width, uncounted)


def of_module(
    module: "nn.Module", run: Callable[[], Any] | None, name: str, number_bytes: int
) -> Cost:
    """The cost of a module from its parameters and the products of one call."""
    from regard.costs import modules

    _check(MOST, number_bytes=number_bytes)
    costs, uncounted = modules.count(module, run)
    return Cost(name, added(costs), number_bytes=number_bytes, uncounted=uncounted)


def built_module(module: "nn.Module") -> Model | None:
    """The formulas of a module of ours; None for other modules, and where weights were shared or added."""
    from regard.attention.heads import MultiHeadAttention
    from regard.costs import modules
    from regard.translation.models.recurrent.model import RecurrentModel
    from regard.translation.models.transformer.model import Transformer

    if type(module) in (Transformer, RecurrentModel):
        built: Any = module
        words = (built.source_embedding.num_embeddings, built.target_embedding.num_embeddings)
        model = Model("", 50, built.settings, words)
    elif type(module) is MultiHeadAttention and (formula := modules.heads(module)):
        model = Model("", 512, None, formula=formula)
    else:
        return None
    counted = sum(part.parameters for part in model.parts(1, 1))
    return model if counted == sum(each.numel() for each in module.parameters()) else None


def find(
    model: Any,
    *,
    width: int | None = None,
    heads: int | None = None,
    value_width: int | None = None,
    learned_keys: int | None = None,
    changes: tuple[str, ...] = (),
) -> Model:
    """The model of a name, a configuration, its file, or a run folder.

    Raises:
        ConfigurationError: there is none, or the width and heads do not fit.
        TypeError: it is no name, path or configuration.
    """
    from regard.translation.settings.configuration import Configuration

    if not isinstance(model, str | os.PathLike | Configuration):
        raise TypeError(
            f"a value of type {type(model).__name__} is not counted: pass a name, a path, a"
            " Configuration or a module"
        )
    name = "a configuration" if isinstance(model, Configuration) else os.fspath(model)
    sizes = (width, heads, value_width, learned_keys)
    if name not in KINDS and any(size is not None for size in sizes):
        raise ConfigurationError(
            f"{name}: width, heads, value_width and learned_keys are sizes of {', '.join(KINDS)}"
        )
    if not isinstance(model, Configuration) and name not in (*KINDS, *PAPERS):
        shipped = {path.stem: path for path in CONFIGURATIONS.glob("*.toml")}
        path = Path(name) if os.path.isfile(name) else shipped.get(name)
        if path is not None:
            model, name, changes = toml.read(path, changes), str(path), ()
    if changes:
        raise ConfigurationError(
            f"{name}: a key is changed in the file of a configuration: leave --set out"
        )
    if isinstance(model, Configuration):
        size = model.tokenizer.vocabulary_size
        return Model(name, min(50, model.data.longest), model.model, (size, size))
    if name in KINDS:
        return _attention(name, 512 if width is None else width, *sizes[1:])
    return PAPERS[name] if name in PAPERS else _run(name)


def _attention(
    kind: str, width: int, heads: int | None, value_width: int | None, learned_keys: int | None
) -> Model:
    single = kind == "single-head"
    if single and heads not in (None, 1):
        raise ConfigurationError(f"heads is {heads!r}: single-head has 1, multi-head has several")
    heads = (1 if single else 8) if heads is None else heads
    value_width = width if value_width is None else value_width
    _check(65_536, width=width, heads=heads, value_width=value_width)
    if width % heads:
        raise ConfigurationError(f"{heads} heads do not divide the width {width}: pass a divisor")
    if learned_keys is not None:
        _check(MOST, learned_keys=learned_keys)
    sizes = Heads(kind, width, heads, value_width, learned_keys or 0)  # type: ignore[arg-type]  # one of KINDS
    values = "" if value_width == width else f", values of width {value_width:,}"
    learned = f", {learned_keys:,} learned keys and values" if learned_keys else ""
    return Model(f"one attention of width {width:,}{values}{learned}", 512, sizes)


def _check(largest: int, **numbers: Any) -> None:
    for name, value in numbers.items():
        if type(value) is not int or not 1 <= value <= largest:
            raise ConfigurationError(f"{name} is {value!r}: pass a whole number, 1 to {largest:,}")


def _run(name: str) -> Model:
    from regard.errors import ModelError
    from regard.translation.opening import find as folder_of
    from regard.translation.runs import Run

    try:
        folder = folder_of(name)
    except ModelError as fault:
        names = ", ".join([*PAPERS, *KINDS])
        raise ConfigurationError(
            f"{fault}; named are {names}; or give a configuration, or MODULE:CALL"
        ) from None
    run = Run.open(folder)
    tokenizers = run.tokenizers()
    words = (len(tokenizers.source), len(tokenizers.target))
    return Model(str(folder), 50, run.configuration.model, words)
