"""Programs that run as plain Python and as the weights of Transformers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from regard.programs.language import (
    Column,
    ProgramError,
    Selector,
    aggregate,
    elementwise,
    everywhere,
    indices,
    numerical,
    select,
    together,
    tokens,
    where,
    width,
)
from regard.programs.library import PROGRAMS
from regard.programs.planning import Plan, plan
from regard.programs.running import Program, program, run
from regard.programs.sizes import Sizes

if TYPE_CHECKING:
    from regard.programs.compiling import Compiled, compile
    from regard.programs.folder import open_folder, save
    from regard.programs.model import SequenceModel

__all__ = [
    "PROGRAMS",
    "Column",
    "Compiled",
    "Plan",
    "Program",
    "ProgramError",
    "Selector",
    "SequenceModel",
    "Sizes",
    "aggregate",
    "compile",
    "elementwise",
    "everywhere",
    "indices",
    "numerical",
    "open_folder",
    "plan",
    "program",
    "run",
    "save",
    "select",
    "together",
    "tokens",
    "where",
    "width",
]

# Those that need torch.
_LATER = {
    "Compiled": "compiling",
    "compile": "compiling",
    "open_folder": "folder",
    "save": "folder",
    "SequenceModel": "model",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'regard.programs' has no attribute {name!r}")
    return getattr(importlib.import_module(f"regard.programs.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return __all__
