"""`regard align --adapt`: word links learnt from the text itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from regard.cli.aligning import AdaptOptions, AlignOptions, Words
from regard.cli.options.checks import changed_options, check_writable, option
from regard.cli.output import report
from regard.errors import ConfigurationError

if TYPE_CHECKING:
    from regard.translation.aligning.adapted import Method
    from regard.translation.aligning.aligner import Aligned


def check(options: AlignOptions) -> None:
    """Raise `ConfigurationError` for options that --adapt does not have, before any file is read."""
    adapting, links = options.adapting, options.links
    adapting.check()
    if not adapting.adapt:
        return
    refused = changed_options(options.model) | changed_options(links)
    refused |= {
        name: True
        for name in ("reverse_model", "choose", "flip", "limit")
        if getattr(options, name)
    }
    if links.method in ("threshold", "grow-diagonal"):
        del refused["method"]
    if links.method != "grow-diagonal":
        refused.pop("threshold", None)
    if refused or not options.store:
        named = ", ".join(map(option, refused)) or "--no-store"
        raise ConfigurationError(f"{named}: of a model's attention, and --adapt reads none")
    if links.threshold is not None and not 0 < links.threshold <= 1:
        raise ConfigurationError(f"threshold {links.threshold:g}: use a share in (0, 1]")
    if adapting.keep is not None:
        check_writable(adapting.keep)
        for path in () if options.text else filter(None, (options.source, options.target)):
            if os.path.exists(path) and os.path.realpath(path) == os.path.realpath(adapting.keep):
                raise ConfigurationError(f"--keep {path}: is the text to align: name another file")


def split(line: str, options: AdaptOptions) -> Words:
    """The words of a line."""
    from regard.translation.aligning.words import normalised_words
    from regard.translation.linking.words import words_of

    return normalised_words(line) if options.tokenized else words_of(line, options.characters)


def adapted(pairs: list[tuple[Words, Words]], options: AlignOptions) -> Iterator[Aligned]:
    """The links of all pairs, learnt from them."""
    from regard.translation.aligning.adapted import adapt
    from regard.translation.linking.learning import THRESHOLD, all_rounds, chain_names
    from regard.translation.linking.priors import Priors

    adapting, links = options.adapting, options.links
    priors = None if adapting.priors is None else Priors.load(adapting.priors, chain_names())
    with report.counted("rounds", all_rounds(len(pairs))) as show:
        text = adapt(pairs, seed=adapting.seed, priors=priors, progress=show)
    for number in text.posteriors.too_long:
        source, target = pairs[number]
        report.note(
            f"pair {number + 1}: {len(source):,} and {len(target):,} words are too long for a sentence pair: no links"
        )
    if adapting.keep is not None:
        text.priors.save(adapting.keep)
        report.note(f"wrote {adapting.keep}")
    if adapting.translator is not None:
        translator = replace(options.model, model=adapting.translator).open()
        text = text.attended(translator.model, translator.tokenizers)
        choice = "no pair has both" if text.aligner is None else text.aligner.choice
        report.note(f"{adapting.translator}: {choice}; its share is {text.share:.2f}")
    method: Method = "grow-diagonal" if links.method == "grow-diagonal" else "threshold"
    return text.aligned(method, THRESHOLD if links.threshold is None else links.threshold)


def check_languages(options: AlignOptions) -> None:
    """Raise `ConfigurationError` unless the languages of a TMX file that is to be written are known."""
    languages = options.languages
    if languages.source_language is None or languages.target_language is None:
        raise ConfigurationError("--format tmx: give --source-language and --target-language")


def memory(
    texts: Iterator[tuple[str, str]], alignments: Iterator[Aligned], options: AlignOptions
) -> Iterator[str]:
    """The lines of a translation memory with the links of its units."""
    from regard.cli.output import answers
    from regard.translation.formats.tmx import LinkedUnit, tmx_lines

    units = (
        LinkedUnit(pair, (aligned.source, aligned.target), answers.pharaoh(sorted(aligned.links)))
        for pair, aligned in zip(texts, alignments, strict=True)
    )
    languages = options.languages
    return tmx_lines(units, (str(languages.source_language), str(languages.target_language)))
