"""T5's tokenizer: a sentencepiece model, and an optional prefix that names the task."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from regard.errors import ModelError
from regard.interop.huggingface import sentencepiece_check
from regard.interop.huggingface.tokenizer import NumberedTokenizer, read_bytes
from regard.interop.huggingface.vocabulary import VocabularyMap
from regard.interop.t5.configuration import T5Configuration

# Pieces that name a language (MADLAD-400), and names of tasks that do.
_TAG = re.compile(r"<2([A-Za-z]{2,3}(?:[_-][0-9A-Za-z]{1,8})*)>")
_TASK = re.compile(r"translation_([0-9A-Za-z-]{1,16})_to_([0-9A-Za-z-]{1,16})")


class T5Tokenizer(NumberedTokenizer):
    """A sentencepiece model. Rows of the embedding beyond its pieces are named <number> and have no text."""

    def prefixed(self, text: str) -> Self:
        """The same tokenizer with a prefix before each text, such as "translate English to German:"."""
        other = copy.copy(self)
        other.prefix = tuple(self._numbered(text))
        return other

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; special ids and ids without a piece are left out."""
        return super().decode([id for id in ids if self._is_piece(int(id))])

    def _is_piece(self, id: int) -> bool:
        if not 0 <= id < len(self):
            return False
        name = self._names[id]
        found: str = self._pieces.id_to_piece(self._pieces.piece_to_id(name))
        return found == name


def words(path: Path, configuration: T5Configuration) -> VocabularyMap:
    """The vocabulary of a folder's sentencepiece file.

    Raises:
        ModelError: it cannot be read, or does not fit config.json.
    """
    found = sentencepiece_check.check(read_bytes(path), str(path))
    (unknown,) = (name for name, kind in found if kind == sentencepiece_check.UNKNOWN)
    try:
        return VocabularyMap.of(
            {name: id for id, (name, _) in enumerate(found)},
            configuration.vocab_size,
            pad=configuration.pad_token_id,
            start=configuration.decoder_start_token_id,
            end=configuration.eos_token_id,
            unknown=unknown,
        )
    except ValueError as fault:
        raise ModelError(f"{path}: {fault}") from None


def prefixes(names: list[str], tasks: Mapping[str, Any] | None) -> dict[str, str]:
    """The prefix of a text by the language to translate into ("de"), and by the pair of languages ("en-de").

    They are found among the pieces, and among the tasks of config.json (`task_specific_params`).

    >>> prefixes(["<2fr>", "<2zh_Hant>", "<2translate>"], None)
    {'fr': '<2fr>', 'zh_Hant': '<2zh_Hant>'}
    >>> prefixes([], {"translation_en_to_de": {"prefix": "translate English to German: "}})
    {'en-de': 'translate English to German: ', 'de': 'translate English to German: '}
    """
    found = {tag[1]: name for name in names if (tag := _TAG.fullmatch(name))}
    into: dict[str, list[str]] = {}
    for task, said in (tasks or {}).items():
        pair = _TASK.fullmatch(task)
        prefix = said.get("prefix") if isinstance(said, dict) else None
        if pair is not None and isinstance(prefix, str):
            found[f"{pair[1]}-{pair[2]}"] = prefix
            into.setdefault(pair[2], []).append(prefix)
    return found | {language: given[0] for language, given in into.items() if len(given) == 1}
