"""Options of a memory that a model reads while it translates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options.checks import check_whole
from regard.errors import ConfigurationError

if TYPE_CHECKING:
    from regard.translation.translator import Translator


@dataclass(frozen=True)
class MemoryOptions:
    """The memory, and how much of it is read.

    Attributes:
        memory: Read this memory, too, which `regard remember` made of sentence pairs.
        similar: Of the memory, read the N pairs that are most similar to each sentence alone; 0
            reads all. [default: as it was tuned, or 0]
    """

    memory: Annotated[Path | None, typer.Option(metavar="DIR")] = None
    similar: Annotated[int | None, typer.Option(metavar="N")] = None

    def check(self) -> None:
        """Raises `ConfigurationError` for options without a memory."""
        if self.similar is not None:
            check_whole("--similar", self.similar, 0, 1024)
            if self.memory is None:
                raise ConfigurationError("--similar belongs to --memory: name the memory")

    def let_read(self, translator: Translator) -> None:
        """Let a translator read the memory, where there is one."""
        if self.memory is not None:
            from regard.translation.datastore import Mixing

            lists = 0 if self.similar else Mixing().lists
            changes = {} if self.similar is None else {"similar": self.similar, "lists": lists}
            translator.read_memory(self.memory, **changes)
