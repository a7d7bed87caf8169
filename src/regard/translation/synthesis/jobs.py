"""The synthetic pairs of a configuration, which models make before its training begins."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.errors import ConfigurationError
from regard.translation.opening import find
from regard.translation.runs import Run
from regard.translation.runs.layout import BACK_TRANSLATED, DISTILLED
from regard.translation.settings.data import CorpusSettings, DataSettings
from regard.translation.synthesis.back_translation import BackTranslation
from regard.translation.synthesis.distillation import distil
from regard.translation.text.corpora import Pair
from regard.translation.translator import Translator


@dataclass(frozen=True)
class Job:
    """The translations for one file of the run folder; finished ones are left as they are, unfinished ones resumed.

    Attributes:
        task: a description for people.
        sentences: how many there are, where that is known.
        run: does the work, and calls its argument with the number of sentences done. Returns the counts of lines that
            gave no pair, as a text.
    """

    task: str
    sentences: int | None
    run: Callable[[Callable[[int], None]], str]


def jobs(
    section: DataSettings, pairs: Sequence[Pair], data: Path, folder: Path, device: str
) -> list[Job]:
    """The jobs of a configuration. All models are opened first.

    Args:
        pairs: the training pairs that people wrote.
        data: the folder of the corpora.
        folder: the run folder.

    Raises:
        ConfigurationError: a model translates other languages than the corpus needs.
        ModelError: a model is missing or broken.
    """
    found = [
        _back_translation(section, files, data, folder / BACK_TRANSLATED.format(number), device)
        for number, files in section.back_translated
    ]
    settings = section.distillation
    if settings is not None:
        languages = section.source_languages[0], section.target_languages[0]
        teacher = _translator("data.distillation.teacher", settings.teacher, languages, device)

        def teach(progress: Callable[[int], None]) -> str:
            distil(teacher, pairs, folder / DISTILLED, beam=settings.beam, progress=progress)
            return ""

        task = f"translating {len(pairs):,} training sources by {' and '.join(settings.teacher)}"
        found.append(Job(task, len(pairs), teach))
    return found


def _back_translation(
    section: DataSettings, files: CorpusSettings, data: Path, out: Path, device: str
) -> Job:
    name = str(files.back_translator)
    languages = section.target_of(files), section.source_of(files)
    translator = _translator(f"{files}: back_translator", [name], languages, device)
    column = None if files.tsv is None else section.columns_of(files)[1]
    text = data / str(files.tsv or files.target)
    work = BackTranslation(
        text, out, translator, translator.search, longest=section.longest, column=column
    )

    def translate(progress: Callable[[int], None]) -> str:
        _, tally = work.run(resume=True, reuse=True, progress=lambda found: progress(found.read))
        return tally.left_out()

    return Job(f"translating {files} back by {name}", None, translate)


def _translator(
    key: str, names: Sequence[str], languages: tuple[str, str], device: str
) -> Translator:
    """Models that translate together from one language into the other. Raises `ConfigurationError` if one does not."""
    source, target = languages
    for name in names:
        learnt = Run.open(find(name)).configuration.data
        if source not in learnt.source_languages or target not in learnt.target_languages:
            raise ConfigurationError(
                f"{key} = {name!r}: translates {', '.join(learnt.source_languages)} to "
                f"{', '.join(learnt.target_languages)}, and {source} to {target} is needed: "
                "choose a model of these languages, or name the languages of the corpora in [data]"
            )
    return Translator.open(names, device, to=target)
