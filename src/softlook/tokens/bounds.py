"""Bounds on a tokenizer.json: what in it makes much of little is checked before any library acts on it.

A file of a kilobyte can pad every text to a hundred billion tokens, or replace a letter by a book, ten times in a row.
Components are known by their fields, not by their `type`: the tokenizers library reads files that do not name one.
"""

import base64
import binascii
from collections.abc import Iterator
from math import ceil
from typing import Any

from softlook.base.errors import WeightsError

LONGEST_PADDED = 131_072
"""Tokens to which a text may be padded."""
LONGEST_STRING = 256
"""Characters of strings that stand beside every token: padding, prefixes, suffixes."""
LONGEST_PREPENDED = 16
LONGEST_TOKEN = 4096
"""Characters of an entry of the vocabulary."""
LONGEST_ADDED = 4_000_000
"""Characters of all added tokens together."""
LARGEST_ID = 100_000_000
LONGEST_WORD = 200
"""Characters of a word that WordPiece takes apart, in a time that grows with their square."""
LONGEST_PIECE = 256
"""Characters of a piece of Unigram, which looks for every piece at every character of a text."""
MOST_COMPONENTS = 256
"""Objects of which normalizers, pre-tokenizers or decoders are made."""
MOST_GROWTH = 32
"""Times that normalizers and pre-tokenizers, or decoders, may lengthen a text, at worst."""
LONGEST_MAPPED = 64
"""Bytes by which a precompiled normalizer may replace a character."""
MOST_AROUND = 256
"""Special tokens around a text."""
LARGEST_STRIP = 1024
LEAST_STEP = 8
"""A truncated text goes on by at least this part of its length: the rest overlaps."""


def check_bounds(content: Any) -> None:
    """Raise a WeightsError that names the first field beyond its bound.

    >>> check_bounds({"padding": {"strategy": {"Fixed": 100_000_000_000}}})
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: padding.strategy.Fixed: expected at most 131,072, got 100,000,000,000
    """
    if not isinstance(content, dict):
        raise WeightsError(f"expected a JSON object, got a {type(content).__name__}")
    _check_padding(_object(content.get("padding")))
    _check_truncation(_object(content.get("truncation")))
    _check_model(_object(content.get("model")))
    _check_added(content.get("added_tokens"))
    normalizers = _components("normalizer", content.get("normalizer"))
    before = [*normalizers, *_components("pre_tokenizer", content.get("pre_tokenizer"))]
    _check_growth("normalizer and pre_tokenizer", before)
    _check_growth("decoder", _components("decoder", content.get("decoder")))
    _check_around(_components("post_processor", content.get("post_processor"), 8 * MOST_AROUND))


def _check_padding(padding: dict[str, Any]) -> None:
    _at_most("padding.strategy.Fixed", _object(padding.get("strategy")).get("Fixed"), LONGEST_PADDED)
    _at_most("padding.pad_to_multiple_of", padding.get("pad_to_multiple_of"), LONGEST_PADDED)
    _short("padding.pad_token", padding.get("pad_token"), LONGEST_STRING)


def _check_truncation(truncation: dict[str, Any]) -> None:
    longest, stride = truncation.get("max_length"), truncation.get("stride")
    if type(longest) is int and type(stride) is int:
        _at_most("truncation.stride", stride, longest - ceil(longest / LEAST_STEP))


def _check_model(model: dict[str, Any]) -> None:
    for field in ("continuing_subword_prefix", "end_of_word_suffix", "unk_token"):
        _short(f"model.{field}", model.get(field), LONGEST_STRING)
    _at_most("model.max_input_chars_per_word", model.get("max_input_chars_per_word"), LONGEST_WORD)
    vocab = model.get("vocab")
    if isinstance(vocab, dict):
        _at_most("model.vocab: a token's length", max(map(len, vocab), default=0), LONGEST_TOKEN)
        _at_most("model.vocab: an id", max((id for id in vocab.values() if type(id) is int), default=0), LARGEST_ID)
    elif isinstance(vocab, list):
        lengths = (len(one[0]) for one in vocab if isinstance(one, list) and one and isinstance(one[0], str))
        _at_most("model.vocab: a piece's length", max(lengths, default=0), LONGEST_PIECE)


def _check_added(added: Any) -> None:
    tokens = [_object(one) for one in added] if isinstance(added, list) else []
    total = sum(len(one["content"]) for one in tokens if isinstance(one.get("content"), str))
    _at_most("added_tokens: characters of all together", total, LONGEST_ADDED)
    ids = (one["id"] for one in tokens if type(one.get("id")) is int)
    _at_most("added_tokens: an id", max(ids, default=0), LARGEST_ID)


def _check_growth(field: str, components: list[dict[str, Any]]) -> None:
    """How many times as long a text may become: one component multiplies what another has made."""
    growth = 1
    for one in components:
        _short(f"{field}: prepend", one.get("prepend"), LONGEST_PREPENDED)
        _short(f"{field}: prefix", one.get("prefix"), LONGEST_STRING)
        _short(f"{field}: suffix", one.get("suffix"), LONGEST_STRING)
        for side in ("start", "stop"):
            _at_most(f"{field}: {side}", one.get(side), LARGEST_STRIP)
        if isinstance(one.get("precompiled_charsmap"), str):
            _at_most(f"{field}: precompiled_charsmap, bytes for a character", _mapped(one), LONGEST_MAPPED)
        growth *= _growth(one)
    _at_most(f"{field}: times that a text may grow", growth, MOST_GROWTH)


def _growth(component: dict[str, Any]) -> int:
    """The most that a component makes of one character."""
    pattern, content = _object(component.get("pattern")), component.get("content")
    if isinstance(content, str) and pattern:
        literal = pattern.get("String")
        # An empty pattern, or a regular expression that matches nothing, matches between any two characters too.
        return max(1, ceil(len(content) / len(literal))) if isinstance(literal, str) and literal else 1 + len(content)
    return 2 if component.get("type") == "ByteLevel" or "trim_offsets" in component or "replacement" in component else 1


def _mapped(component: dict[str, Any]) -> int:
    """The longest replacement in sentencepiece's map of characters: a trie behind its size, then strings."""
    try:
        content = base64.b64decode(component["precompiled_charsmap"])
    except (binascii.Error, ValueError):
        return 0  # the library will say so
    strings = content[4 + int.from_bytes(content[:4], "little") :]
    return max(map(len, strings.split(b"\0")), default=0)


def _check_around(components: list[dict[str, Any]]) -> None:
    for one in components:
        special = _object(one.get("special_tokens"))
        for name, most in (("single", 1), ("pair", 2)):
            pieces = [_object(piece) for piece in one[name]] if isinstance(one.get(name), list) else []
            texts = sum("SpecialToken" not in piece for piece in pieces)
            _at_most(f"post_processor.{name}: texts", texts, most)
            signs = (_object(piece["SpecialToken"]).get("id") for piece in pieces if "SpecialToken" in piece)
            ids = (_object(special.get(sign)).get("ids") for sign in signs if isinstance(sign, str))
            around = sum(len(some) for some in ids if isinstance(some, list))
            _at_most(f"post_processor.{name}: special tokens", max(around, len(pieces) - texts), MOST_AROUND)


def _components(field: str, value: Any, most: int = MOST_COMPONENTS) -> list[dict[str, Any]]:
    """Every object within a field, however deep: components, and what they are made of."""
    found: list[dict[str, Any]] = []
    for one in _objects(value):
        found.append(one)
        _at_most(f"{field}: components", len(found), most)
    return found


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(inner)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _at_most(field: str, value: Any, most: int) -> None:
    if type(value) is int and value > most:
        got = f"{value:,}" if value < 10**30 else "a number of more than 30 digits"
        raise WeightsError(f"{field}: expected at most {most:,}, got {got}")


def _short(field: str, value: Any, most: int) -> None:
    if isinstance(value, str) and len(value) > most:
        raise WeightsError(f"{field}: expected a string of at most {most:,} characters, got {len(value):,}")
