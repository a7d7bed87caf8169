"""The synthetic pairs of a configuration, which models make before its training begins."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.errors import ConfigurationError, ModelError
from regard.translation.opening import find
from regard.translation.runs import Run
from regard.translation.runs.layout import BACK_TRANSLATED, DISTILLED
from regard.translation.settings.data import CorpusSettings, DataSettings, DistillationSettings
from regard.translation.synthesis.back_translation import BackTranslation
from regard.translation.synthesis.distillation import distil
from regard.translation.text.corpora import Pair
from regard.translation.translator import Translator

Advance = Callable[[int], None]


@dataclass(frozen=True)
class Job:
    """The translations for one file of the run folder; finished ones are left as they are, unfinished ones resumed.

    Attributes:
        out: the file.
        task: a description for people.
        sentences: tells how many there are, where that is known, from the training pairs that people wrote.
        run: does the work for these pairs, and calls its other argument with the number of sentences done. Returns the
            counts of lines that gave no pair, as a text.
    """

    out: Path
    task: str
    sentences: Callable[[Sequence[Pair]], int | None]
    run: Callable[[Sequence[Pair], Advance], str]


def jobs(section: DataSettings, data: Path, folder: Path, device: str) -> list[Job]:
    """The jobs of a configuration. All models are opened, so that none is missed after hours of work.

    Args:
        data: the folder of the corpora.
        folder: the run folder.

    Raises:
        ConfigurationError: a model translates other languages than the corpus needs.
        ModelError: a model is missing or broken, or teachers cannot be averaged.
    """
    job_list = [
        _back_translation(section, files, data, folder / BACK_TRANSLATED.format(number), device)
        for number, files in section.back_translated
    ]
    if section.distillation is not None:
        job_list.append(_distillation(section, section.distillation, folder / DISTILLED, device))
    return job_list


def _distillation(
    section: DataSettings, settings: DistillationSettings, out: Path, device: str
) -> Job:
    languages = section.source_languages[0], section.target_languages[0]
    teacher = _translator("data.distillation.teacher", settings.teacher, languages, device)

    def teach(pairs: Sequence[Pair], advance: Advance) -> str:
        without = distil(teacher, pairs, out, beam=settings.beam, progress=advance)
        return f"{without:,} sources without a translation" if without else ""

    task = f"translating the training sources by {' and '.join(settings.teacher)}"
    return Job(out, task, len, teach)


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

    def translate(pairs: Sequence[Pair], advance: Advance) -> str:
        _, tally = work.run(resume=True, reuse=True, progress=lambda found: advance(found.read))
        return tally.left_out()

    return Job(out, f"translating {files} back by {name}", lambda pairs: None, translate)


def _translator(
    key: str, names: Sequence[str], languages: tuple[str, str], device: str
) -> Translator:
    """Models that translate together from one language into the other. Errors name the key of the configuration."""
    source, target = languages
    try:
        for name in names:
            model_data = Run.open(find(name)).configuration.data
            if (
                source not in model_data.source_languages
                or target not in model_data.target_languages
            ):
                raise ConfigurationError(
                    f"{name} translates {', '.join(model_data.source_languages)} to "
                    f"{', '.join(model_data.target_languages)}, and {source} to {target} is needed: "
                    "choose a model of these languages, or name the languages of the corpora in [data]"
                )
        return Translator.open(names, device, to=target)
    except (ConfigurationError, ModelError) as fault:
        raise type(fault)(f"{key}: {fault}") from None
