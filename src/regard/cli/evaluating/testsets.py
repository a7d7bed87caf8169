"""A test set as it is named on the command line, its translations, and what is said of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli import options
from regard.cli.options import corpora
from regard.cli.output import report, streams
from regard.cli.output.doubts import Doubts
from regard.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    from regard.translation.decoding.search import Search
    from regard.translation.evaluation.scores import Scores
    from regard.translation.evaluation.significance import Significance
    from regard.translation.settings import Configuration
    from regard.translation.text.corpora import Pair
    from regard.translation.translator import Translator

# More at a time than a stream has: sentences of like length share a batch.
_CHUNK = 1024
_TITLES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER"}


@dataclass(frozen=True)
class TestSet:
    """The options that name one."""

    __test__ = False  # it is no test, whatever pytest thinks of its name

    source: Path | None
    target: Path | None
    tsv: Path | None
    source_column: int | None
    target_column: int | None
    generated: bool

    def check(self, *, translated: bool) -> None:
        """Raises `ConfigurationError` unless it is named in one way.

        Args:
            translated: there are translations already, so that the sources are not needed.
        """
        parallel = self.source is not None or self.target is not None
        if [parallel, self.tsv is not None, self.generated].count(True) != 1:
            raise ConfigurationError("give --source and --target, or --tsv, or --generated")
        if translated and self.generated:
            raise ConfigurationError("--generated needs a model: give --target with --hypotheses")
        if parallel and (self.target is None or (self.source is None and not translated)):
            raise ConfigurationError("--source and --target belong together: give both")
        for name in ("source_column", "target_column"):
            column = getattr(self, name)
            if column is not None and not 0 <= column <= 1000:
                option = "--" + name.replace("_", "-")
                raise ConfigurationError(f"{option} {column}: use a whole number, 0 to 1000")

    def files(self) -> list[Pair] | None:
        """The pairs of --source and --target; None where they are named otherwise."""
        from regard.translation.text.corpora import Pair, Parallel, read_aligned, read_lines
        from regard.translation.text.normalisation import normalise

        if self.target is None:
            return None
        target = corpora.found(self.target)
        if self.source is None:
            pairs = [Pair("", normalise(line)) for line in read_lines(target)]
            return _usable(pairs, str(target), [pair.target for pair in pairs])
        source = corpora.found(self.source)
        return _usable(read_aligned(Parallel(source, target)), f"{source} and {target}")

    def with_translations(self) -> list[Pair]:
        """The pairs of --tsv without a model to ask for its columns."""
        return self._table(0, 1)

    def of(self, translator: Translator, model: str) -> list[Pair]:
        """The pairs of --tsv or --generated, as the model was trained."""
        configuration = translator.run.configuration
        if self.generated:
            return _generated(configuration, model)
        return self._table(configuration.data.source_column, configuration.data.target_column)

    def _table(self, source: int, target: int) -> list[Pair]:
        from regard.translation.text.corpora import Tsv, read_aligned

        if self.tsv is None:
            raise ConfigurationError("give --source and --target, or --tsv, or --generated")
        source = source if self.source_column is None else self.source_column
        target = target if self.target_column is None else self.target_column
        path = corpora.found(self.tsv)
        return _usable(read_aligned(Tsv(path, source, target)), str(path))


@dataclass(frozen=True)
class Searching:
    """The options that say how a test set is translated, where a model's own settings are not meant."""

    beam: int | None = None
    length_penalty: float | None = None
    coverage_penalty: float | None = None
    no_repeat_ngram: int | None = None
    batch_tokens: int | None = None
    quantization: options.Stored | None = None
    shortlist: bool = False

    @property
    def given(self) -> list[str]:
        """The options that were given."""
        named = {
            name: value
            for name, value in vars(self).items()
            if value is not None and value is not False
        }
        return [f"--{name.replace('_', '-')}" for name in named]

    def check(self) -> None:
        """Raises `ConfigurationError` for what is out of range, before a model is opened."""
        from regard.translation.decoding.search import Search

        options.check_batch_tokens(self.batch_tokens)
        self.of(Search())

    def refuse(self, baseline: str | None) -> None:
        """Raises `ConfigurationError` for what means nothing to translations in a file, nor to another model."""
        others = baseline is not None and not corpora.found(Path(baseline)).is_file()
        for option in self.given:
            if not others or option in ("--quantization", "--shortlist"):
                raise ConfigurationError(
                    f"{option} is for translating: --hypotheses are translated already"
                )

    def of(self, own: Search) -> Search:
        """A model's own settings with the changes."""
        changes = {
            "beam": self.beam,
            "length_penalty": self.length_penalty,
            "coverage_penalty": self.coverage_penalty,
            "no_repeat_ngram": self.no_repeat_ngram,
        }
        named = {name: value for name, value in changes.items() if value is not None}
        return own.changed(**named)

    def told(self, own: Search) -> str:
        """The search in words: the beam always, of the rest what was asked for."""
        penalties = [
            f"{name.replace('_', ' ')} {value:g}"
            for name, value in vars(self).items()
            if name.endswith(("_penalty", "_ngram")) and value is not None
        ]
        stored = [self.quantization] if self.quantization is options.Stored.int8 else []
        listed = ["shortlist"] if self.shortlist else []
        return ", ".join([f"beam {self.of(own).beam}", *penalties, *stored, *listed])


def translations_in(path: Path, count: int) -> list[str]:
    """The lines of a file of translations. Raises `DataError` unless there are as many as references."""
    from regard.translation.text.corpora import read_lines
    from regard.translation.text.normalisation import normalise

    texts = [normalise(line) for line in read_lines(path)]
    if len(texts) != count:
        raise DataError(f"{path} has {len(texts)} lines, the references {count}")
    return texts


def translations_of(
    system: str, pairs: Sequence[Pair], searching: Searching, device: str, to: str | None = None
) -> list[str]:
    """Another system's translations: the lines of a file, or those of a model."""
    path = corpora.found(Path(system))
    if path.is_file():
        return translations_in(path, len(pairs))
    if not any(pair.source for pair in pairs):
        raise ConfigurationError(f"--baseline {system}: a model needs the sources: give --source")
    return translate(options.open_translator(system, device, to), pairs, searching)


def translate(
    translator: Translator,
    pairs: Sequence[Pair],
    searching: Searching,
    doubts: Doubts | None = None,
) -> list[str]:
    """The translations of the sources by a model; `doubts` is told about each."""
    from regard.translation.translator import BATCH_TOKENS

    sources = [pair.source for pair in pairs]
    texts: list[str] = []
    chunks: Iterable[list[str]] = streams.chunks(sources, _CHUNK)
    if sys.stderr is not None and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import track

        number = (len(sources) + _CHUNK - 1) // _CHUNK
        chunks = track(chunks, "translating", number, console=Console(stderr=True), transient=True)
    search = searching.of(translator.search)
    most = searching.batch_tokens or BATCH_TOKENS
    for chunk in chunks:
        found = translator.translate(chunk, search=search, batch_tokens=most)
        texts += [translation.text for translation in found]
        if doubts is not None:
            doubts.add(found)
    return texts


def write(texts: Sequence[str], path: Path) -> None:
    """One translation a line."""
    from regard import files

    files.write(path, "".join(f"{text}\n" for text in texts).encode("utf-8"))


def compared(found: Significance, baseline: str) -> str:
    """The table of two systems, for people."""
    rows = [["", baseline, "", "this", "", "difference", "p"]]
    for name, one in found.differences.items():
        rows.append(
            [
                _TITLES[name],
                f"{one.baseline:.2f}",
                f"({one.baseline_mean:.2f} ± {one.baseline_interval:.2f})",
                f"{one.score:.2f}",
                f"({one.mean:.2f} ± {one.interval:.2f})",
                f"{one.score - one.baseline:+.2f}",
                f"{one.p_value:.4f}",
            ]
        )
    return (
        f"\npaired bootstrap, {found.resamples} resamples, seed {found.seed}: "
        f"score (mean ± half of the 95% interval)\n{report.table(rows)}"
    )


def as_object(
    scores: Scores,
    found: Significance | None,
    baseline: str | None,
    empty: int,
    how: str,
    doubts: Doubts | None,
) -> dict[str, Any]:
    """The same for machines."""
    made: dict[str, Any] = {**asdict(scores), "empty": empty, "translations": how}
    if doubts is not None:
        made["doubts"] = doubts.as_object()
    if found is not None:
        made["baseline"] = {"system": baseline, **asdict(found)}
    return made


def _usable(pairs: list[Pair], name: str, needed: list[str] | None = None) -> list[Pair]:
    full = any(needed) if needed is not None else any(p.source and p.target for p in pairs)
    if not full:
        raise DataError(f"{name}: no usable sentence pairs in {len(pairs)} lines")
    return pairs


def _generated(configuration: Configuration, model: str) -> list[Pair]:
    from regard.translation.text.generated import generate

    made = configuration.data.generated
    if made is None:
        raise ConfigurationError(
            f"--generated: {model} was trained on files: give --source and --target, or --tsv"
        )
    return generate(made.task, configuration.seed, made.test, "test")
