"""Safe loading of a tokenizer.json, with bounds against denial of service.

A file of a kilobyte can pad every text to a hundred billion tokens, or replace a letter by a book, ten times in a row:
fields that amplify are checked before the tokenizers library reads them. Components are recognized by their fields, not
by their `type`: the library also reads files without it.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from typing import Any

from pydantic_core import from_json
from tokenizers import Tokenizer

from softlook.base.errors import WeightsError

MAX_TOKENIZER_BYTES = 64 << 20
PROBES = ("", "a few words", "Ünïcode, 漢字 🙂\n\t 12.5%")
"""Texts that a tokenizer must encode and decode before it is trusted: some errors show only in use."""
HELP = "Leave it out, or use the one that belongs to the model."
MAX_PADDED_LENGTH = 131_072
"""Maximum padded length, in tokens."""
MAX_STRING = 256
"""Characters of a string added to every token: padding, prefix, suffix."""
MAX_PREPEND = 16
MAX_TOKEN_CHARS = 4096
"""Characters of a vocabulary entry."""
MAX_ADDED_CHARS = 4_000_000
"""Characters of all added tokens in total."""
MAX_ID = 100_000_000
MAX_WORD_CHARS = 200
"""Characters of a word in WordPiece, whose time is quadratic."""
MAX_PIECE_CHARS = 256
"""Characters of a Unigram piece: every piece is tried at every character of a text."""
MAX_COMPONENTS = 256
"""Components of a normalizer, pre-tokenizer or decoder."""
MAX_GROWTH = 32
"""Worst-case growth of a text by normalizers and pre-tokenizers, or by decoders."""
MAX_MAPPED_BYTES = 64
"""Bytes that a precompiled normalizer may replace a character by."""
MAX_SPECIAL_TOKENS = 256
"""Special tokens added to a text."""
MAX_STRIP = 1024
MIN_STRIDE_FRACTION = 8
"""Chunks of a truncated text advance by at least 1/8 of their length."""


def load_tokenizer(content: bytes, name: str = "tokenizer.json") -> Tokenizer:
    """The tokenizer in the bytes of a tokenizer.json, after checking its bounds; `name` is for error messages.

    >>> load_tokenizer(b"{}")
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: tokenizer.json is not a working tokenizer: ...
    """
    if len(content) > MAX_TOKENIZER_BYTES:
        raise WeightsError(f"{name}: expected at most {MAX_TOKENIZER_BYTES:,} bytes, got {len(content):,}")
    try:
        check_bounds(from_json(content, allow_inf_nan=False, cache_strings="keys"))
    except WeightsError as error:
        raise WeightsError(f"{name} is rejected: {error}. {HELP}") from None
    except ValueError as error:
        raise WeightsError(f"{name} is not a working tokenizer: {str(error):.200}. {HELP}") from None
    with convert_panics(WeightsError, f"{name} is not a working tokenizer", f". {HELP}"):
        tokenizer = Tokenizer.from_buffer(content)
        for text in PROBES:
            tokenizer.decode(tokenizer.encode(text).ids)
        return tokenizer


@contextmanager
def convert_panics(error: type[Exception], message: str, help: str = "") -> Iterator[None]:
    """Raise errors of the tokenizers library as `error`. It panics on some inputs, and a panic is no Exception."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as cause:
        raise error(f"{message}: {str(cause):.200}{help}") from None


def copy_tokenizer(tokenizer: Tokenizer) -> Tokenizer:
    """An independent copy."""
    return Tokenizer.from_str(tokenizer.to_str())


def edit_tokenizer(tokenizer: Tokenizer, edit: Callable[[dict[str, Any]], None]) -> Tokenizer:
    """A copy whose tokenizer.json was changed by `edit`."""
    content = json.loads(tokenizer.to_str())
    edit(content)
    return Tokenizer.from_str(json.dumps(content))


def check_bounds(content: Any) -> None:
    """Raise a WeightsError that names the first field out of bounds.

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
    components = [*normalizers, *_components("pre_tokenizer", content.get("pre_tokenizer"))]
    _check_growth("normalizer and pre_tokenizer", components)
    _check_growth("decoder", _components("decoder", content.get("decoder")))
    _check_special_tokens(_components("post_processor", content.get("post_processor"), 8 * MAX_SPECIAL_TOKENS))


def _check_padding(padding: dict[str, Any]) -> None:
    _check_at_most("padding.strategy.Fixed", _object(padding.get("strategy")).get("Fixed"), MAX_PADDED_LENGTH)
    _check_at_most("padding.pad_to_multiple_of", padding.get("pad_to_multiple_of"), MAX_PADDED_LENGTH)
    _check_length("padding.pad_token", padding.get("pad_token"), MAX_STRING)


def _check_truncation(truncation: dict[str, Any]) -> None:
    max_length, stride = truncation.get("max_length"), truncation.get("stride")
    if type(max_length) is int and type(stride) is int:
        _check_at_most("truncation.stride", stride, max_length - ceil(max_length / MIN_STRIDE_FRACTION))


def _check_model(model: dict[str, Any]) -> None:
    for field in ("continuing_subword_prefix", "end_of_word_suffix", "unk_token"):
        _check_length(f"model.{field}", model.get(field), MAX_STRING)
    _check_at_most("model.max_input_chars_per_word", model.get("max_input_chars_per_word"), MAX_WORD_CHARS)
    vocab = model.get("vocab")
    if isinstance(vocab, dict):
        _check_at_most("model.vocab: a token's length", max(map(len, vocab), default=0), MAX_TOKEN_CHARS)
        _check_at_most("model.vocab: an id", max((id for id in vocab.values() if type(id) is int), default=0), MAX_ID)
    elif isinstance(vocab, list):
        lengths = (len(item[0]) for item in vocab if isinstance(item, list) and item and isinstance(item[0], str))
        _check_at_most("model.vocab: a piece's length", max(lengths, default=0), MAX_PIECE_CHARS)


def _check_added(added: Any) -> None:
    tokens = [_object(item) for item in added] if isinstance(added, list) else []
    total = sum(len(item["content"]) for item in tokens if isinstance(item.get("content"), str))
    _check_at_most("added_tokens: total characters", total, MAX_ADDED_CHARS)
    ids = (item["id"] for item in tokens if type(item.get("id")) is int)
    _check_at_most("added_tokens: an id", max(ids, default=0), MAX_ID)


def _check_growth(field: str, components: list[dict[str, Any]]) -> None:
    """Bound the growth of a text: the factors of all components multiply."""
    growth = 1
    for item in components:
        _check_length(f"{field}: prepend", item.get("prepend"), MAX_PREPEND)
        _check_length(f"{field}: prefix", item.get("prefix"), MAX_STRING)
        _check_length(f"{field}: suffix", item.get("suffix"), MAX_STRING)
        for side in ("start", "stop"):
            _check_at_most(f"{field}: {side}", item.get(side), MAX_STRIP)
        if isinstance(item.get("precompiled_charsmap"), str):
            _check_at_most(
                f"{field}: precompiled_charsmap, bytes for a character", _longest_mapping(item), MAX_MAPPED_BYTES
            )
        growth *= _growth(item)
    _check_at_most(f"{field}: growth of a text", growth, MAX_GROWTH)


def _growth(component: dict[str, Any]) -> int:
    """Worst-case growth factor of one component."""
    pattern, content = _object(component.get("pattern")), component.get("content")
    if isinstance(content, str) and pattern:
        literal = pattern.get("String")
        # An empty pattern, or a regular expression with empty matches, also matches between any two characters.
        return max(1, ceil(len(content) / len(literal))) if isinstance(literal, str) and literal else 1 + len(content)
    return 2 if component.get("type") == "ByteLevel" or "trim_offsets" in component or "replacement" in component else 1


def _longest_mapping(component: dict[str, Any]) -> int:
    """The longest replacement in sentencepiece's character map: the size of a trie, the trie, then strings."""
    try:
        content = base64.b64decode(component["precompiled_charsmap"])
    except (binascii.Error, ValueError):
        return 0  # the library reports it
    strings = content[4 + int.from_bytes(content[:4], "little") :]
    return max(map(len, strings.split(b"\0")), default=0)


def _check_special_tokens(components: list[dict[str, Any]]) -> None:
    for item in components:
        special = _object(item.get("special_tokens"))
        for name, max_texts in (("single", 1), ("pair", 2)):
            pieces = [_object(piece) for piece in item[name]] if isinstance(item.get(name), list) else []
            texts = sum("SpecialToken" not in piece for piece in pieces)
            _check_at_most(f"post_processor.{name}: texts", texts, max_texts)
            names = (_object(piece["SpecialToken"]).get("id") for piece in pieces if "SpecialToken" in piece)
            ids = (_object(special.get(token)).get("ids") for token in names if isinstance(token, str))
            count = sum(len(group) for group in ids if isinstance(group, list))
            _check_at_most(
                f"post_processor.{name}: special tokens", max(count, len(pieces) - texts), MAX_SPECIAL_TOKENS
            )


def _components(field: str, value: Any, maximum: int = MAX_COMPONENTS) -> list[dict[str, Any]]:
    """All objects within a field, at any depth."""
    found: list[dict[str, Any]] = []
    for item in _objects(value):
        found.append(item)
        _check_at_most(f"{field}: components", len(found), maximum)
    return found


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(inner)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _check_at_most(field: str, value: Any, maximum: int) -> None:
    if type(value) is int and value > maximum:
        got = f"{value:,}" if value < 10**30 else "a number of more than 30 digits"
        raise WeightsError(f"{field}: expected at most {maximum:,}, got {got}")


def _check_length(field: str, value: Any, maximum: int) -> None:
    if isinstance(value, str) and len(value) > maximum:
        raise WeightsError(f"{field}: expected a string of at most {maximum:,} characters, got {len(value):,}")
