"""The settings of corpora, as in the `[data]` table."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from regard.translation.settings.base import Count, Rate, Settings

Column = Annotated[int, Field(ge=0, le=1000)]
Weight = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]
# Tokenizers have <pad>, <unk> and <s> already.
_TAG = re.compile("(?!(pad|unk|s)$)[a-z][a-z0-9_-]{0,31}")
_LANGUAGE = re.compile("[A-Za-z][A-Za-z0-9_-]{0,31}")


def check_tag(tag: str) -> str:
    """The tag. Raises ValueError unless a corpus may have it."""
    if not _TAG.fullmatch(tag):
        raise ValueError(
            "a tag is a small letter and up to 31 small letters, digits, _ and -, "
            "and none of pad, s, unk"
        )
    return tag


class CorpusSettings(Settings):
    """One corpus: a TSV file, two files line by line, or a translation memory. `data.train` and `data.valid` take one
    or several.
    """

    tsv: str | None = None
    """A table of tab-separated columns, one sentence pair a line."""
    source: str | None = None
    """A file of source sentences, one a line; used with `target` in place of `tsv`."""
    target: str | None = None
    """The translations of `source`, line by line."""
    tmx: str | None = None
    """A translation memory in TMX, in place of `tsv`."""
    tmx_languages: tuple[str, str] | None = Field(default=None, strict=False)
    """The languages of source and target in `tmx`, as ["es", "en"]. Default: its srclang and its only other one."""
    source_column: Column | None = None
    """The column of the source, counted from 0. Default: that of `[data]`."""
    target_column: Column | None = None
    """The column of the target, counted from 0. Default: that of `[data]`."""
    source_language: str | None = None
    """The language of the source. Default: that of `[data]`."""
    target_language: str | None = None
    """The language of the target. Default: that of `[data]`."""
    weight: Weight = 1.0
    """How often a pass takes each pair, on average: 2 is twice; 0.5 is a random half of the pairs, drawn anew for
    each pass. For training corpora.
    """
    tag: Annotated[str, AfterValidator(check_tag)] | None = None
    """A tag that is put before every source sentence of this corpus."""
    back_translator: str | None = None
    """A model of the other direction, bundled or a run folder. Before the training it translates the targets into
    sources (Sennrich et al. 2016, arXiv 1511.06709); the corpus needs no source. For training corpora.
    """
    synthetic: bool = False
    """Whether a model made one side, as in back-translation. Tokenizers, known words and statistics of the text are not
    learnt from such a corpus. The teacher of `[data.distillation]` does not translate it. For training corpora.
    """
    links: str | None = None
    """A file of word links, line for line, for `[training.guide]`. For training corpora."""

    def faults(self) -> Iterator[str]:
        kinds = "tsv", "source", "target", "tmx"
        files = [name for name in kinds if getattr(self, name) is not None]
        if self.back_translator is not None:
            if files not in (["tsv"], ["target"]):
                yield "with `back_translator` give either `tsv` or `target`"
            if self.links is not None:
                yield "with `back_translator` there are no links: its sources are not known yet"
        elif files not in (["tsv"], ["source", "target"], ["tmx"]):
            yield "give either `tsv`, or `source` and `target`, or `tmx`"
        if self.tmx_languages is not None and self.tmx is None:
            yield "tmx_languages is for `tmx`"
        for name in ("source_column", "target_column"):
            if self.tsv is None and getattr(self, name) is not None:
                yield f"{name} is for `tsv`: other files have no columns"

    @property
    def is_made(self) -> bool:
        """Whether a model makes one side of the pairs, or has made it."""
        return self.synthetic or self.back_translator is not None

    @property
    def names(self) -> list[str]:
        names = self.tsv, self.source, self.target, self.tmx
        return [name for name in names if name is not None]

    def __str__(self) -> str:
        return " and ".join(self.names)


# A table, or an array of tables.
Corpora = Annotated[
    Annotated[CorpusSettings, Tag("one")]
    | Annotated[tuple[CorpusSettings, ...], Field(strict=False), Tag("several")],
    Discriminator(lambda files: "several" if isinstance(files, list | tuple) else "one"),
]


class GeneratedSettings(Settings):
    """A corpus that is generated from the seed, without files."""

    task: Literal["reverse", "dates"]
    """The task."""
    train: Count = 20_000
    """Training pairs."""
    valid: Count = 1_000
    """Validation pairs."""
    test: Count = 1_000
    """Test pairs."""


class NoiseSettings(Settings):
    """Noise makes a model robust. Each pass over the training corpora changes pairs, drawn anew. A key is the part of
    the pairs that it changes; 0 switches it off. Names and numbers change both sides. `joined` appends whole pairs. All
    others change the source only: the model learns to translate sloppy text into correct text.
    """

    names: Rate = 0.0
    """Take a pair with a name in place of the pair, and exchange the name on both sides."""
    numbers: Rate = 0.0
    """Take a pair with a number in place of the pair, and exchange the number on both sides: counts, decimals, times,
    dates, telephone numbers.
    """
    joined: Rate = 0.0
    """Append one to three other pairs (arXiv 2105.01691)."""
    lower: Rate = 0.0
    """Write the source in small letters."""
    title: Rate = 0.0
    """Write every word of the source with a capital."""
    capitals: Rate = 0.0
    """Write one word of the source in capitals. Search reads a sentence of capitals alone in small letters, so it needs
    no noise but `lower`.
    """
    accents: Rate = 0.0
    """Leave out the accents of the source."""
    marks: Rate = 0.0
    """Leave out the marks that open or end the source."""
    typos: Rate = 0.0
    """Put a typing error into the source (arXiv 1711.02173)."""


def _names(value: Any) -> tuple[str, ...]:
    """One name or several. Raises ValueError for anything else."""
    names = (value,) if isinstance(value, str) else value
    if (
        not isinstance(names, list | tuple)
        or not names
        or not all(isinstance(name, str) and name for name in names)
    ):
        raise ValueError("give the name of one model, or a list of names")
    return tuple(names)


class DistillationSettings(Settings):
    """A teacher translates the sources of the training corpora; the model learns from its translations, too (Kim and
    Rush 2016, arXiv 1606.07947). Of the teacher's candidates for a source, the one closest to the target is taken.
    """

    teacher: Annotated[tuple[str, ...], BeforeValidator(_names)]
    """A bundled model or a run folder, of the same two languages. A list of models translates together."""
    beam: Annotated[int, Field(ge=1, le=100)] = 5
    """Hypotheses of the teacher's search, which are the candidates."""
    weight: Weight = 1.0
    """How often a pass takes each translation, times the weight of its pair."""


class DataSettings(Settings):
    """The corpora."""

    source_language: str = "source"
    """The name of the source language."""
    target_language: str = "target"
    """The name of the target language."""
    train: Corpora | None = None
    """The training corpus: a table, or an array of tables (`[[data.train]]`)."""
    valid: Corpora | None = None
    """The validation corpus: a table, or an array of tables."""
    generated: GeneratedSettings | None = None
    """A generated corpus, in place of `train` and `valid`."""
    source_column: Column = 0
    """The column of the source in tables, counted from 0."""
    target_column: Column = 1
    """The column of the target in tables, counted from 0."""
    longest: Annotated[int, Field(ge=1, le=100_000)] = 200
    """The largest number of word pieces of a sentence; pairs with a longer side are left out."""
    words: Annotated[tuple[Count, Count], Field(strict=False)] | None = None
    """The fewest and the most words of a sentence, as spaces separate them; pairs with another side are left out."""
    attribution: str = ""
    """Where the data come from, for the model card."""
    noise: NoiseSettings | None = None
    distillation: DistillationSettings | None = None

    def faults(self) -> Iterator[str]:
        if self.generated is not None:
            if self.training or self.validation:
                yield "give either `data.generated`, or `data.train` and `data.valid`"
            if self.noise is not None:
                yield "data.noise changes text: leave it out for `data.generated`"
            if self.distillation is not None:
                yield "data.distillation is for `data.train`: leave it out for `data.generated`"
        elif not (self.training and self.validation):
            yield "give `data.train` and `data.valid`, or `data.generated`"
        if self.training and all(files.is_made for files in self.training):
            yield "data.train: every corpus is synthetic: give one that people wrote, too"
        is_multilingual = len(self.source_languages) > 1 or len(self.target_languages) > 1
        if is_multilingual and self.distillation is not None:
            yield "data.distillation: a teacher translates one language into one, data.train has several"
        if self.words is not None and self.words[0] > self.words[1]:
            yield f"words = {list(self.words)}: give the fewest first"
        tables = any(files.tsv is not None for files in (*self.training, *self.validation))
        if not tables and (self.source_column, self.target_column) != (0, 1):
            yield "source_column and target_column are for `tsv`: no corpus is a table"
        languages, tags = self.target_languages, {each.tag for each in self.training} | {None}
        if len(languages) > 1 and (
            odd := [name for name in languages if not _LANGUAGE.fullmatch(name)]
        ):
            yield f"target_language {odd[0]!r}: of several, each is named by up to 32 letters, digits, _ and -"
        for files in self.validation:
            target = self.target_of(files)
            odd_keys = {
                "links are for data.train": files.links is not None,
                "weight is for data.train: every pair counts once": files.weight != 1,
                "back_translator is for data.train": files.back_translator is not None,
                "synthetic is for data.train: choose a model by what people wrote": files.synthetic,
                f"tag {files.tag!r} is no tag of data.train": files.tag not in tags,
                f"target_language {target!r} is none of data.train's: {', '.join(languages)}": (
                    target not in languages
                ),
            }
            yield from (f"valid {files}: {fault}" for fault, is_odd in odd_keys.items() if is_odd)

    @property
    def training(self) -> tuple[CorpusSettings, ...]:
        return _corpora(self.train)

    @property
    def validation(self) -> tuple[CorpusSettings, ...]:
        return _corpora(self.valid)

    @property
    def paired(self) -> tuple[CorpusSettings, ...]:
        """The training corpora that have sources: all but those that are translated back before the training."""
        return tuple(files for files in self.training if files.back_translator is None)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for files in (*self.training, *self.validation) for name in files.names)

    @property
    def paired_names(self) -> tuple[str, ...]:
        """The files of all corpora that have sources. A resumed training reads no others."""
        return tuple(name for files in (*self.paired, *self.validation) for name in files.names)

    @property
    def source_languages(self) -> tuple[str, ...]:
        """The languages that are translated, in the order of the corpora."""
        return tuple(dict.fromkeys(map(self.source_of, self.training))) or (self.source_language,)

    @property
    def target_languages(self) -> tuple[str, ...]:
        """The languages that are translated into, in the order of the corpora."""
        return tuple(dict.fromkeys(map(self.target_of, self.training))) or (self.target_language,)

    @property
    def tags(self) -> tuple[str, ...]:
        """Every tag that a source may have."""
        corpus_tags = dict.fromkeys(files.tag for files in self.training if files.tag is not None)
        return (
            *(tag for name in self.target_languages for tag in self.tags_to(name)),
            *corpus_tags,
        )

    @property
    def back_translated(self) -> tuple[tuple[int, CorpusSettings], ...]:
        """The training corpora that are translated back, with their numbers."""
        every = enumerate(self.training)
        return tuple((at, files) for at, files in every if files.back_translator is not None)

    def columns_of(self, files: CorpusSettings) -> tuple[int, int]:
        source, target = files.source_column, files.target_column
        return (
            self.source_column if source is None else source,
            self.target_column if target is None else target,
        )

    def source_of(self, files: CorpusSettings) -> str:
        return files.source_language or self.source_language

    def target_of(self, files: CorpusSettings) -> str:
        return files.target_language or self.target_language

    def tags_of(self, files: CorpusSettings) -> tuple[str, ...]:
        """The tags before every source of a corpus: that of the target language, if there are several, and its own."""
        corpus_tags = () if files.tag is None else (files.tag,)
        return (*self.tags_to(self.target_of(files)), *corpus_tags)

    def tags_to(self, language: str) -> tuple[str, ...]:
        """The tag of sentences to be translated into a language; none where there is one language only.

        Johnson et al. 2017 (arXiv 1611.04558, section 3).
        """
        return (f"2{language}",) if len(self.target_languages) > 1 else ()


def _corpora(
    files: CorpusSettings | tuple[CorpusSettings, ...] | None,
) -> tuple[CorpusSettings, ...]:
    if files is None:
        return ()
    return files if isinstance(files, tuple) else (files,)
