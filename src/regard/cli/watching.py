"""MODULE:CALL of `regard look --watch` and `regard explore`: the heads of any model."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from regard.cli.options.checks import check_parent, check_writable
from regard.cli.output import drawing, report
from regard.errors import ConfigurationError, DataError, RegardError

if TYPE_CHECKING:
    from torch import nn

    from regard.attention.looks import Look
    from regard.watching import Seen

PANELS, SIDE = 16, 128
WANTED = (
    "it must return the model and what to call it with, (model, inputs), and for the words of a page"
    " also tokens or a tokenizer, (model, inputs, tokens)"
)


def show(call: str, layer: int | None, head: int | None, out: Path | None, theme: str) -> None:
    """Run the function `call`, print the table of its heads, and save pictures or a page of them."""
    if out is not None:
        check(out)
    role = f"--watch {call}"
    attentions, words = watched(called(call, role), role, layer, head)
    report.say(str(attentions.table()))
    if out is not None:
        save(attentions, words, role, call, out, theme)


def called(call: str, role: str) -> Any:
    """What the function MODULE:CALL returns. `role` begins each error."""
    with running(role):
        return function(call, role)()


def watched(
    answer: Any, role: str, layer: int | None = None, head: int | None = None
) -> tuple[Seen, dict[str, Any]]:
    """Run the model of a pair (model, inputs): its attentions, and the tokens or tokenizer of a page."""
    import torch

    from regard.watching import watch

    model, run, words = model_of(role, answer)
    heads = None if head is None else (head,)
    with running(role), torch.no_grad(), warnings.catch_warnings():
        # The command prints unseen attentions itself.
        warnings.simplefilter("ignore", RuntimeWarning)
        with watch(model.eval(), layers=layer, heads=heads) as attentions:
            run()
    for path, why in attentions.unseen.items():
        report.say(f"not seen: {path or 'the model'}: {why}", file=sys.stderr)
    return attentions, words


def save(
    attentions: Seen, words: Mapping[str, Any], role: str, title: str, out: Path, theme: str
) -> None:
    """Write the attentions as a page, or as pictures into a folder.

    A picture is of an attention's first batch entry, with 16 heads on each.
    """
    if is_page(out):
        with running(role):
            attentions.page(out, title=title, **words)
        report.say(f"wrote {out}")
        return
    for name, look in attentions.items():
        batch = len(look.shape) - 2 - look.caption.headed
        draw(name, look[(0,) * batch] if batch else look, out, theme)


def draw(name: str, look: Look, out: Path, theme: str) -> None:
    """Write pictures of a look ([heads,] queries, keys) into a folder, 16 heads on each."""
    *headed, _, _ = look.shape
    heads = headed[0] if headed else 1
    for start in range(0, heads, PANELS):
        stop = min(start + PANELS, heads)
        panel = look[start:stop] if heads > PANELS else look
        ending = f"-heads-{start}-{stop - 1}" if heads > PANELS else ""
        path = out / f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)}{ending}.png"
        picture = panel.plot(SIDE, SIDE, theme=theme)
        out.mkdir(exist_ok=True)  # after what may fail
        drawing.save(picture, path)
        report.say(f"wrote {path}")


def is_call(name: str) -> bool:
    """Whether a name is MODULE:CALL, and not that of a file."""
    return (
        re.fullmatch(r"[^\W\d][\w.]*:[^\W\d][\w.]*", name) is not None and not Path(name).exists()
    )


@contextmanager
def running(role: str) -> Iterator[None]:
    """Report errors of the user's own code as such."""
    try:
        yield
    except RegardError:
        raise
    except (Exception, SystemExit) as fault:  # their script may call sys.exit
        message = " ".join(f"{type(fault).__name__}: {fault}".split())
        raise DataError(f"{role}: {message} (add --debug to see where)") from fault


def model_of(role: str, answer: Any) -> tuple[nn.Module, Callable[[], Any], dict[str, Any]]:
    """The returned model, a function that runs it once, and the tokens or tokenizer of a page."""
    from torch import Tensor, nn

    if not (
        isinstance(answer, tuple) and len(answer) in (2, 3) and isinstance(answer[0], nn.Module)
    ):
        raise DataError(f"{role}: returned {type(answer).__name__}; {WANTED}")
    model, inputs, *words_given = answer
    words = {
        "tokens" if isinstance(each, list | tuple | dict) else "tokenizer": each
        for each in words_given
    }
    match inputs:
        case Mapping():
            return model, lambda: model(**inputs), words
        case Tensor():
            return model, lambda: model(inputs), words
        case tuple() | list():
            return model, lambda: model(*inputs), words
        case _ if callable(inputs):
            return model, lambda: inputs(model), words
    raise DataError(
        f"{role}: returned inputs of type {type(inputs).__name__}: pass a tensor, a tuple of"
        " arguments, a mapping of names to arguments, or a function of the model"
    )


def function(path: str, role: str) -> Callable[[], Any]:
    """The function MODULE:CALL; modules of the current folder are found too, as with `python -m`."""
    name, attribute_path = _divided(path, role)
    try:
        value: Any = importlib.import_module(name)
    except ModuleNotFoundError as fault:
        raise _missing_module(role, fault.name) from None
    for attribute in attribute_path.split("."):
        value = getattr(value, attribute, None)
    if not callable(value):
        raise _missing_function(role, name, attribute_path)
    return cast("Callable[[], Any]", value)


def check_named(path: str, role: str) -> None:
    """Raises `ConfigurationError` if MODULE:CALL names no module, or a function that its source does not mention.

    Nothing is imported but the packages that hold the module: `DataError` if one of them fails.
    """
    name, attribute_path = _divided(path, role)
    with running(role):
        try:
            spec = importlib.util.find_spec(name)
        except ModuleNotFoundError as fault:
            raise _missing_module(role, fault.name) from None
        except ValueError:  # a module that is loaded, and has no spec
            return
    if spec is None:
        raise _missing_module(role, name)
    source = Path(spec.origin or "")
    if source.suffix == ".py" and source.is_file():
        content = source.read_bytes()
        # Names that a module makes while it is imported are not in its source.
        source_shows_names = not re.search(
            rb"import\s*\(?\s*\*|__getattr__|globals|exec|setattr|__dict__", content
        )
        if source_shows_names and attribute_path.split(".")[0].encode() not in content:
            raise _missing_function(role, name, attribute_path)


def _divided(path: str, role: str) -> tuple[str, str]:
    """The module and the function of MODULE:CALL; the current folder is where modules are looked for first."""
    name, colon, attribute_path = path.partition(":")
    if not (colon and name and attribute_path):
        raise ConfigurationError(f"{role}: expected MODULE:CALL, such as my_model:example")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return name, attribute_path


def _missing_module(role: str, name: str | None) -> ConfigurationError:
    return ConfigurationError(f"{role}: there is no module {name}, here or installed")


def _missing_function(role: str, name: str, attribute_path: str) -> ConfigurationError:
    return ConfigurationError(f"{role}: {name} has no function {attribute_path}")


def is_page(out: Path) -> bool:
    return out.suffix.lower() == ".html"


def check(out: Path) -> None:
    """Raises `RegardError` where neither a page nor a folder of pictures can be put there."""
    from regard.viewing import figures

    if is_page(out):
        check_writable(out)
        return
    if out.suffix.lower().removeprefix(".") in figures.FORMATS and not out.is_dir():
        raise ConfigurationError(
            f"--out {out}: a watched model has several pictures: name a folder for them, or a page"
            " (.html)"
        )
    if out.exists() and not out.is_dir():
        raise RegardError(f"{out}: is a file, expected the name of a folder for the pictures")
    check_parent(out / "picture" if out.exists() else out)
