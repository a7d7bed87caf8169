"""Tokens as text: the words and characters that the pieces of a tokenizer spell."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

SPACE = "▁"  # in front of a piece that begins a word, as in sentencepiece
BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
SPLIT = re.compile(r"⟨[0-9A-F ]+⟩")
PROBE = " é"
LENGTHS = ((0x80, 1), (0xC0, 0), (0xE0, 2), (0xF0, 3), (0xF8, 4))  # of UTF-8, below each lead byte


def spelled(tokenizer: Any, ids: Sequence[int], apart: bool = False) -> list[str]:
    """The text of each token. "▁" stands for the space in front of a word.

    Byte-level tokenizers (GPT-2, Llama 3, Qwen) write each byte as a sign of an alphabet of their own; here the bytes
    are characters again. A character whose bytes are in several tokens is written beside its bytes in each: "⟨C3⟩é".

    Args:
        tokenizer: of Hugging Face or of `tokenizers`, or a function from a list of ids to a list of strings.
        ids: the tokens.
        apart: whether they are no text, but tokens of which each could come next.

    Raises:
        TypeError: the tokenizer is none of these.

    >>> spelled(lambda ids: ["▁caf", "<0xC3>", "<0xA9>"], [0, 1, 2])
    ['▁caf', '⟨C3⟩é', '⟨A9⟩é']
    """
    tokens = [str(token) for token in _names(tokenizer, ids)]
    byte_level = _is_byte_level(tokenizer)
    added: Mapping[str, int] = getattr(tokenizer, "get_added_vocab", dict)()
    pieces = [
        _alphabet_piece(token) if byte_level and token not in added else _byte_piece(token)
        for token in tokens
    ]
    labels = [_characters([piece])[0] for piece in pieces] if apart else _characters(pieces)
    if not byte_level:
        return labels
    return [SPACE + text[1:] if text.startswith(" ") else text for text in labels]


def join(labels: Sequence[str]) -> str:
    """The text of the tokens of one word.

    >>> join(["▁caf", "⟨C3⟩é", "⟨A9⟩é"])
    'café'
    """
    text, place = "", 0
    while place < len(labels):
        label = labels[place]
        text += SPLIT.sub("", label)
        # The other tokens of a character that is split repeat it.
        while (
            place + 1 < len(labels)
            and SPLIT.match(labels[place + 1])
            and SPLIT.search(label)
            and _character(labels[place + 1], 0) == _character(label, -1)
        ):
            place += 1
            label = labels[place]
            text += SPLIT.sub("", label)[1:]
        place += 1
    return text.removeprefix(SPACE).replace(SPACE, " ")


def words(labels: Sequence[str]) -> list[tuple[int, int, str]]:
    """(start, stop, text) of each word; none where no label marks where a word begins.

    >>> words(["▁hou", "se", "▁is"])
    [(0, 2, 'house'), (2, 3, 'is')]
    """
    if not any(label.startswith(SPACE) for label in labels):
        return []
    starts = [place for place in range(len(labels)) if _begins(labels, place)]
    spans = zip(starts, [*starts[1:], len(labels)], strict=True)
    return [(start, stop, join(labels[start:stop]) or "␣") for start, stop in spans]


def _begins(labels: Sequence[str], place: int) -> bool:
    label, previous = labels[place], labels[place - 1]
    alone = any(
        each.isspace() or (each[:1] == "<" and each[-1:] == ">") for each in (label, previous)
    )
    return place == 0 or label.startswith(SPACE) or alone


def _character(label: str, place: int) -> str:
    return SPLIT.sub("", label)[place:][:1]


def _names(tokenizer: Any, ids: Sequence[int]) -> list[Any]:
    """The names of tokens in the vocabulary."""
    one_name = getattr(tokenizer, "id_to_token", None)
    if callable(one_name):
        return [one_name(number) for number in ids]
    names = getattr(tokenizer, "convert_ids_to_tokens", tokenizer)
    if callable(names) and not (names is tokenizer and hasattr(tokenizer, "decode")):
        return list(names(list(ids)))
    decode = getattr(tokenizer, "decode", None)
    if not callable(decode):
        raise TypeError(
            f"tokenizer is a {type(tokenizer).__name__}: pass one with convert_ids_to_tokens,"
            " or a function of a list of ids that returns a list of strings"
        )
    return [decode([number]) for number in ids]


def _is_byte_level(tokenizer: Any) -> bool:
    """Whether the tokenizer writes the bytes of a text in GPT-2's alphabet."""
    if not (
        hasattr(tokenizer, "encode") and hasattr(tokenizer, "convert_ids_to_tokens")
    ) and not hasattr(tokenizer, "id_to_token"):
        return False
    signs = {byte: sign for sign, byte in ALPHABET.items()}
    try:
        name = "".join(map(str, _names(tokenizer, encoded(tokenizer, PROBE, special=False))))
    except Exception:  # a tokenizer of another project, which may refuse the text
        return False
    return "".join(signs[byte] for byte in PROBE.encode()) in name


def encoded(tokenizer: Any, text: str, special: bool = True) -> list[int]:
    """The ids of a text, with the special tokens that the tokenizer adds or without."""
    try:
        ids = tokenizer.encode(text, add_special_tokens=special)
    except TypeError:  # one that adds none
        ids = tokenizer.encode(text)
    return [int(number) for number in getattr(ids, "ids", ids)]


def decoded(tokenizer: Any, ids: Sequence[int], special: bool = True) -> str:
    """The text of ids, with special tokens or without."""
    if special:
        return str(tokenizer.decode(list(ids)))
    try:
        return str(tokenizer.decode(list(ids), skip_special_tokens=True))
    except TypeError:  # one that has none
        return str(tokenizer.decode(list(ids)))


def _alphabet() -> dict[str, int]:
    """The sign of each byte in GPT-2's vocabulary: printable ones stand for themselves, others follow at 256."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    unprintable = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in sorted(printable)} | {
        chr(256 + place): byte for place, byte in enumerate(unprintable)
    }


ALPHABET = _alphabet()


def _alphabet_piece(token: str) -> bytes:
    try:
        return bytes(ALPHABET[sign] for sign in token)
    except KeyError:  # a token that was added to the vocabulary as text
        return token.encode("utf-8", "replace")


def _byte_piece(token: str) -> bytes:
    byte = BYTE.fullmatch(token)
    return bytes.fromhex(byte[1]) if byte else token.encode("utf-8", "replace")


def _characters(pieces: Sequence[bytes]) -> list[str]:
    """The characters of each piece; of those whose bytes are in several pieces, the bytes with the character."""
    content = b"".join(pieces)
    labels, start = [""] * len(pieces), 0
    ends = [start := start + len(piece) for piece in pieces]
    piece = 0
    for start, stop, text in _decoded(content):
        while start >= ends[piece]:
            piece += 1
        if stop <= ends[piece]:
            labels[piece] += text or f"⟨{content[start]:02X}⟩"
            continue
        owner, place = piece, start
        while place < stop:
            cut = min(stop, ends[owner])
            if place < cut:
                labels[owner] += f"⟨{content[place:cut].hex(' ').upper()}⟩{text}"
            place, owner = cut, owner + 1
    return labels


def _decoded(content: bytes) -> Iterator[tuple[int, int, str]]:
    """(start, stop, character) of UTF-8; the character is "" for a byte that is none."""
    place = 0
    while place < len(content):
        length = next((length for below, length in LENGTHS if content[place] < below), 0)
        try:
            text = content[place : place + length].decode() if length else ""
        except UnicodeDecodeError:
            text = ""
        stop = place + (length if text else 1)
        yield place, stop, text
        place = stop
