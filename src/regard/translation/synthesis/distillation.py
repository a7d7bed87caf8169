"""Sequence-level distillation: a teacher's translations of a training text (Kim and Rush 2016, arXiv 1606.07947)."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from regard.translation.decoding.search import Search
from regard.translation.results import Translation
from regard.translation.synthesis.back_translation import fingerprint
from regard.translation.synthesis.resumable import Progress, ResumableFile
from regard.translation.text.corpora import Pair, Tsv
from regard.translation.translator import Translator

# Sentences that are translated between two records of the progress. Of many, those of one length make whole batches.
CHUNK = 2048


def distil(
    teacher: Translator,
    pairs: Sequence[Pair],
    out: Path,
    *,
    beam: int = 5,
    progress: Callable[[int], None] = lambda done: None,
) -> int:
    """Write each pair's source and, after a tab, a teacher's translation: nothing if the teacher cut the source.

    Interrupted work is resumed by the same call. A finished file of the same teacher and pairs is left as it is;
    `OUT.json` beside it tells what it was made from.

    Args:
        beam: candidates for each source, of which the one closest to the target is taken.
        progress: called with the number of pairs done.

    Returns: how many sources have no translation.

    Raises:
        RegardError: the file cannot be written.
        ConfigurationError: the file, finished or not, is of another teacher or other pairs.
    """
    search = teacher.search.as_written().changed(beam=beam, nbest=beam)
    settings: dict[str, Any] = {
        "teacher": fingerprint(teacher),
        "pairs": hashlib.sha256(repr([pair[:2] for pair in pairs]).encode()).hexdigest(),
        "search": dict(search),
        "to": list(teacher.tokenizers.source.prefix),
    }
    unfinished = ResumableFile(out, settings)
    if unfinished.final_progress() is None:
        _translate(teacher, search, pairs, unfinished, progress)
    return sum(not translation for _, translation in Tsv(out).rows())


def _translate(
    teacher: Translator,
    search: Search,
    pairs: Sequence[Pair],
    unfinished: ResumableFile,
    progress: Callable[[int], None],
) -> None:
    with unfinished.begin(resume=True) as recorded:
        for start in range(recorded.chunks * CHUNK, len(pairs), CHUNK):
            progress(start)
            chunk = pairs[start : start + CHUNK]
            translations = teacher.translate(
                [pair.source for pair in chunk], search=search, whole_lines=True
            )
            rows_of_chunk = zip(translations, chunk, strict=True)
            rows = [
                f"{pair.source}\t{'' if translation.cut else closest(translation, pair.target)}\n"
                for translation, pair in rows_of_chunk
            ]
            unfinished.add("".join(rows), Progress(chunks=start // CHUNK + 1))
        progress(len(pairs))
        unfinished.finish(keep_record=True)


def closest(translation: Translation, target: str) -> str:
    """The candidate with the highest BLEU against a target; of equal ones the teacher's favourite.

    Kim and Rush call this sequence-level interpolation (section 3.3): it is probable for the teacher, and near to
    what a person wrote.
    """
    from sacrebleu.metrics.bleu import BLEU

    bleu = BLEU(effective_order=True)
    texts = [each.text for each in translation.alternatives] or [translation.text]
    return max(texts, key=lambda text: float(bleu.sentence_score(text, [target]).score))
