"""Statistics that a model keeps of its training text: a file of JSON in its folder."""

from typing import ClassVar, Self

from pydantic import BaseModel, TypeAdapter

from regard.translation import checksums
from regard.translation.runs.run import Run


class Statistics(BaseModel, frozen=True, extra="forbid", strict=True):
    """A table of statistics; `version` is that of the file."""

    NAME: ClassVar[str]
    LARGEST: ClassVar[int]
    DESCRIPTION: ClassVar[str]

    version: int = 1

    @classmethod
    def open(cls, run: Run) -> Self | None:
        """Those of a run; None where it has none. Raises `CorruptedError`."""
        if run.checksum(cls.NAME) is None and not (run.folder / cls.NAME).exists():
            return None
        content = run.content(cls.NAME, cls.LARGEST)
        return checksums.parsed(TypeAdapter(cls), content, run.folder / cls.NAME, cls.DESCRIPTION)

    def keep(self, run: Run) -> None:
        """Write the file. Raises `OSError`."""
        run.keep(self.NAME, (self.model_dump_json(exclude_none=True) + "\n").encode())
