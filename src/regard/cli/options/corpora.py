"""Options that name corpora, and the search for their files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from regard.cli.options.checks import changed_options, check_columns, option
from regard.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    from regard.translation.text.corpora import Corpus

Named = TypeVar("Named", Path, Path | None)


def locate(path: Named) -> Named:
    """The file itself, or else the one of that name in the folder that REGARD_DATA names."""
    folder = os.environ.get("REGARD_DATA")
    # False, not an error, for names that no file can have: a whole sentence, for one.
    if path and folder and not os.path.exists(path) and os.path.exists(Path(folder) / path):
        return Path(folder) / path
    return path


def folder(names: Sequence[str], data: Path | None, near: Path) -> Path:
    """Where files of a configuration are: in `data`; or else in the first that has them all of the folder that
    REGARD_DATA names, `near`, and here. Raises `DataError` when one is not there.
    """
    named = os.environ.get("REGARD_DATA")
    usual = [*([Path(named)] if named else []), near, Path()]
    places = list(dict.fromkeys(usual)) if data is None else [data]
    have = {name: [place for place in places if os.path.exists(place / name)] for name in names}
    for place in places:
        if all(place in having for having in have.values()):
            return place
    for name, having in have.items():
        if not having:
            looked = " or ".join(str(place.absolute()) for place in places)
            where = f" in {looked}: say with --data or REGARD_DATA where it is"
            raise DataError(f"{name}: no such file{'' if Path(name).is_absolute() else where}")
    base = have[names[0]][0]
    distant = next(name for name in names if base not in have[name])
    raise DataError(
        f"{distant}: not in {base.absolute()}, where {names[0]} is, but in {have[distant][0].absolute()}: "
        "put the files of a configuration into one folder, or write their whole paths"
    )


@dataclass(frozen=True)
class LanguageOptions:
    """The languages of translation memories (TMX).

    Attributes:
        source_language: Of a TMX file: the language of its sources, es or es-MX. By default its
            srclang.
        target_language: Of a TMX file: the language of their translations. By default the only
            other one that it has.
    """

    source_language: str | None = None
    target_language: str | None = None

    def table(self, path: Path, source_column: int = 0, target_column: int = 1) -> Corpus:
        """A file of pairs: a translation memory, or a table of columns. Raises `ConfigurationError`."""
        from regard.translation.formats.tmx import Tmx, is_tmx
        from regard.translation.text.corpora import Tsv

        if not is_tmx(path):
            return Tsv(path, source_column, target_column)
        if (source_column, target_column) != (0, 1):
            raise ConfigurationError(
                f"{path}: TMX has no columns: use --source-language and --target-language"
            )
        return Tmx(path, self.source_language, self.target_language)

    def refuse(self, reason: str) -> None:
        """Raise `ConfigurationError` where languages are named that nothing reads."""
        for name in changed_options(self):
            raise ConfigurationError(f"{option(name)} is for TMX files: {reason}")


@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """Sentence pairs: the columns of tables, or pairs of files.

    Attributes:
        source: Sentences, one a line; again for each further file.
        target: Their translations, in the order of --source.
        source_column: Column of FILES, from 0.
        target_column: Column of FILES, from 0.
        languages: Of translation memories.
    """

    source: list[Path] | None = None
    target: list[Path] | None = None
    source_column: int = 0
    target_column: int = 1
    languages: LanguageOptions

    def corpora(self, tables: Sequence[Path] | None) -> list[Corpus]:
        """The corpora of tables, or of pairs of files; `ConfigurationError` unless they are named in one way."""
        from regard.translation.formats.tmx import is_tmx
        from regard.translation.text.corpora import Parallel

        sources, targets = self.source or [], self.target or []
        if bool(tables) == bool(sources or targets):
            raise ConfigurationError("give FILES, or --source and --target")
        if len(sources) != len(targets):
            raise ConfigurationError(
                f"{len(sources)} --source and {len(targets)} --target: give one of each for every split"
            )
        check_columns(self.source_column, self.target_column)
        for name, column in changed_options(self).items():
            if sources and name.endswith("column"):
                raise ConfigurationError(
                    f"{option(name)} {column}: is for FILES: two files have no columns"
                )
        if tables:
            columns = self.source_column, self.target_column
            if not any(map(is_tmx, tables)):
                self.languages.refuse("tables have none")
            return [self.languages.table(locate(path), *columns) for path in tables]
        self.languages.refuse("--source and --target are lines")
        pairs = zip(map(locate, sources), map(locate, targets), strict=True)
        return [Parallel(ours, theirs) for ours, theirs in pairs]
