"""`regard evaluate`: the test set, its translations, and the table of two systems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

from regard.cli.options import corpora
from regard.cli.options.checks import changed_options, check_columns, option
from regard.cli.options.memory import MemoryOptions
from regard.cli.options.model import DEFAULT_MODEL, MODEL, Device, ModelOptions, To, open_translator
from regard.cli.options.removed import Quantization, Shortlist, note_removed
from regard.cli.options.search import SearchOptions
from regard.cli.output import report
from regard.cli.output.doubts import DoubtCounts
from regard.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    from regard.translation.evaluation.significance import Significance
    from regard.translation.text.corpora import Pair
    from regard.translation.translator import Translator

# Those of sacreBLEU.
Tokenizer = Literal[
    "13a",
    "intl",
    "char",
    "zh",
    "ja-mecab",
    "ko-mecab",
    "flores101",
    "flores200",
    "spBLEU-1K",
    "none",
]
_TITLES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER"}


@dataclass(frozen=True)
class TestSet:
    """The options that name a test set.

    Attributes:
        source: Sentences, one a line.
        target: Their translations, line for line; several times: several references of each.
        tsv: Both, in columns.
        source_column: Column of --tsv, from 0. [default: as in the training]
        target_column: Column of --tsv, from 0. [default: as in the training]
        generated: The held-out part of the data the model's task makes.
    """

    __test__ = False  # pytest takes it for a test otherwise

    source: Path | None = None
    target: list[Path] | None = None
    tsv: Path | None = None
    source_column: int | None = None
    target_column: int | None = None
    generated: bool = False

    def check(self, *, translated: bool) -> None:
        """Raises `ConfigurationError` unless the test set is named in one way; `translated` ones need no sources."""
        parallel = self.source is not None or bool(self.target)
        if [parallel, self.tsv is not None, self.generated].count(True) != 1:
            raise ConfigurationError("give --source and --target, or --tsv, or --generated")
        if translated and self.generated:
            raise ConfigurationError("--generated needs a model: give --target with --hypotheses")
        if parallel and (not self.target or (self.source is None and not translated)):
            raise ConfigurationError("--source and --target belong together: give both")
        check_columns(self.source_column or 0, self.target_column or 0)

    def files(self) -> list[Pair] | None:
        """The pairs of --source and the first --target; None where they are named otherwise."""
        from regard.translation.text.corpora import Pair, Parallel, read_aligned

        if not self.target:
            return None
        source, target = corpora.locate(self.source), corpora.locate(self.target[0])
        if source is None:
            pairs = [Pair("", line) for line in _lines(target)]
            return _usable(pairs, str(target), sources=False)
        return _usable(read_aligned(Parallel(source, target)), f"{source} and {target}")

    def pairs(self, translator: Translator | None = None) -> list[Pair]:
        """The pairs; columns and generated data are by default those of a model's training."""
        from regard.translation.text.corpora import Tsv, read_aligned
        from regard.translation.text.generated import generate

        if (read := self.files()) is not None:
            return read
        columns = (0, 1)
        if translator is not None:
            configuration = translator.run.configuration
            if self.generated:
                generated = configuration.data.generated
                if generated is None:
                    raise ConfigurationError(
                        "--generated: the model was trained on files: give --source and --target, or --tsv"
                    )
                return generate(generated.task, configuration.seed, generated.test, "test")
            columns = configuration.data.source_column, configuration.data.target_column
        assert self.tsv is not None  # `check` refuses all other cases
        source = columns[0] if self.source_column is None else self.source_column
        target = columns[1] if self.target_column is None else self.target_column
        path = corpora.locate(self.tsv)
        return _usable(read_aligned(Tsv(path, source, target)), str(path))

    def references(self, pairs: Sequence[Pair]) -> list[list[str]]:
        """The targets of the pairs, and those of each further --target."""
        further = map(corpora.locate, (self.target or [])[1:])
        return [
            [pair.target for pair in pairs],
            *(translations_in(path, len(pairs), "the first --target") for path in further),
        ]


@dataclass(frozen=True, kw_only=True)
class System:
    """The options that say how a test set is translated.

    Attributes:
        models: A bundled model's name or a run folder; several times: the mean of their
            probabilities. [default: es-en]
        whole_lines: Translate each line as a whole, however many sentences it has.
    """

    models: Annotated[list[str] | None, MODEL] = None
    to: To = None
    device: Device = "cpu"
    search: SearchOptions
    memory: MemoryOptions
    whole_lines: bool = False
    quantization: Quantization = None
    shortlist: Shortlist = False

    @property
    def names(self) -> list[str]:
        return self.models or [DEFAULT_MODEL]

    def open(self) -> Translator:
        note_removed(
            shortlist=self.shortlist,
            int8=self.quantization == "int8",
            instead="score translations of another program with --hypotheses",
        )
        translator = open_translator(self.names, self.device, self.to)
        self.memory.let_read(translator)
        return translator

    def only(self, name: str) -> ModelOptions:
        """The one model. Raises `ConfigurationError` where there are several; `name` is the option that takes one."""
        if len(self.names) > 1:
            raise ConfigurationError(f"{name} takes one model: give --model once")
        return ModelOptions(self.names[0], self.to, self.device)

    @property
    def options(self) -> list[str]:
        """The options that change how a model translates."""
        line_options = ["whole_lines"] if self.whole_lines else []
        names = [*changed_options(self.search), *changed_options(self.memory), *line_options]
        return list(map(option, names))

    def check_unused(self, baseline: str | None) -> None:
        """Raises `ConfigurationError` for options of translating that are used neither here nor by a baseline."""
        translates = baseline is not None and not corpora.locate(Path(baseline)).is_file()
        for name in self.options:
            if not translates:
                raise ConfigurationError(
                    f"{name} is for translating: --hypotheses are translated already"
                )

    def language(self, translator: Translator | None) -> str | None:
        """The language of the translations; None where neither --to nor a model names it."""
        if self.to is not None or translator is None:
            return self.to
        return translator.run.configuration.data.target_languages[0]

    def described(self, translator: Translator) -> str:
        """The search in words: the beam, each setting that was given, and what is translated at a time."""
        phrases = [f"{len(self.names)} models"] if len(self.names) > 1 else []
        phrases += [f"beam {self.search.of(translator.search).beam}"]
        for name, value in self.search.changes.items():
            phrases += [f"{name.replace('_', ' ')} {value:g}"] if name != "beam" else []
        phrases += [f"memory {self.memory.memory}"] if self.memory.memory else []
        phrases += ["as written"] if self.search.as_written else []
        in_lines = self.whole_lines or translator.sentence_language is None
        phrases += ["whole lines" if in_lines else "sentence by sentence"]
        return ", ".join(phrases)


def translations_in(path: Path, count: int, counterpart: str = "the references") -> list[str]:
    """The lines of a file of translations. Raises `DataError` unless there are as many as of `counterpart`."""
    texts = _lines(path)
    if len(texts) != count:
        raise DataError(f"{path} has {len(texts)} lines, {counterpart} {count}")
    return texts


def _lines(path: Path) -> list[str]:
    from regard.translation.text.corpora import read_lines
    from regard.translation.text.normalisation import normalise

    return [normalise(line) for line in read_lines(path)]


def translations_of(name: str, pairs: Sequence[Pair], system: System) -> list[str]:
    """The translations of another system: the lines of a file, or those of a model."""
    path = corpora.locate(Path(name))
    if path.is_file():
        return translations_in(path, len(pairs))
    if not any(pair.source for pair in pairs):
        raise ConfigurationError(f"--baseline {name}: a model needs the sources: give --source")
    baseline = replace(
        system, models=[name], memory=MemoryOptions(), quantization=None, shortlist=False
    )
    return translate(baseline.open(), pairs, system)[0]


def translate(
    translator: Translator, pairs: Sequence[Pair], system: System
) -> tuple[list[str], DoubtCounts]:
    """The translations of the sources by a model, and the reasons to doubt them."""
    doubts, texts = DoubtCounts(translator.longest), []
    sources, search = [pair.source for pair in pairs], system.search
    model_search = search.of(translator.search)
    stream = translator.stream(
        sources, search=model_search, whole_lines=system.whole_lines, **search.batches
    )
    for translation in report.tracked(stream, "translating", len(sources)):
        texts.append(translation.text)
        doubts.add([translation])
    return texts, doubts


def tokenizer_of(name: Tokenizer | None, language: str | None, references: Iterable[str]) -> str:
    """The tokenizer of BLEU: the one asked for, or that of the language where it is known.

    A note says where the script of the references asks for another one.
    """
    from regard.translation.evaluation import segmenting

    if name is None:
        usual = segmenting.USUAL if language is None else segmenting.of_language(language)
        if (why := segmenting.objection(usual)) is not None:
            report.note(f"BLEU uses the tokenizer {segmenting.plain(usual)}: {why}")
            return segmenting.plain(usual)
        name = cast(Tokenizer, usual)
    segmenting.check(name)
    if (advice := segmenting.note(name, references)) is not None:
        report.note(advice)
    return name


def compared(comparison: Significance, baseline: str) -> str:
    rows = [["", baseline, "", "this", "", "difference", "p"]]
    rows += [
        [
            _TITLES[name],
            f"{difference.baseline:.2f}",
            f"({difference.baseline_mean:.2f} ± {difference.baseline_interval:.2f})",
            f"{difference.score:.2f}",
            f"({difference.mean:.2f} ± {difference.interval:.2f})",
            f"{difference.score - difference.baseline:+.2f}",
            f"{difference.p_value:.4f}",
        ]
        for name, difference in comparison.differences.items()
    ]
    return (
        f"\npaired bootstrap, {comparison.resamples} resamples, seed {comparison.seed}: "
        f"score (mean ± half of the 95% interval)\n{report.table(rows)}"
    )


def _usable(pairs: list[Pair], name: str, *, sources: bool = True) -> list[Pair]:
    if not any(pair.target and (pair.source or not sources) for pair in pairs):
        raise DataError(f"{name}: no usable sentence pairs in {len(pairs)} lines")
    return pairs
