"""`regard models`: the models and configurations that are installed with the package."""

import tomllib
from pathlib import Path

from regard.cli import card, shipped
from regard.cli.output import report

PURPOSES = {
    "es-en": "For Spanish to English: the best one, for short everyday sentences.",
    "es-en-tiny": "For Spanish to English where size or time counts: a quarter of the bytes, 2.8 BLEU less.",
    "es-en-recurrent": "For looking at attention as in the first papers: one head, one look for each word.",
    "en-es": "For English to Spanish, short everyday sentences; look at what it writes.",
    "en-fr": "For English to French, short everyday sentences; look at what it writes.",
}


def models() -> None:
    """List the bundled models and the shipped configurations.

    Examples:
        regard models
        regard translate --model es-en "Buenos días."
        regard train reverse
    """
    print("Models (regard translate --model NAME):")
    for name, folder in shipped.models().items():
        report.say(f"  {name}")
        if purpose := PURPOSES.get(name):
            report.say(f"      {purpose}")
        for line in [*card.summary(folder), *_alignment(folder)]:
            report.say(f"      {line}")
    if not shipped.models():
        print("  none is bundled with this installation")
    print("\nConfigurations (regard train NAME):")
    report.say(shipped.configuration_lines("  "))


def _alignment(folder: Path) -> list[str]:
    """The error rate of the attention that was chosen for word links; empty where none was chosen."""
    try:
        choice = tomllib.loads((folder / "alignment.toml").read_text(encoding="utf-8"))
        return [
            f"Word links: AER {choice['aer']:.1f} "
            f"(on the {choice['sentences']} sentences of {choice['gold']} by which the attention was chosen)"
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []
