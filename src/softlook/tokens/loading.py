"""The only door through which a tokenizer.json comes in: read, checked against bounds, and tried on a few words."""

from pydantic_core import from_json
from tokenizers import Tokenizer

from softlook.base.errors import WeightsError
from softlook.tokens.bounds import check_bounds

LARGEST = 64 << 20
"""Bytes."""
TRIED = ("", "a few words", "Ünïcode, 漢字 🙂\n\t 12.5%")
"""What a tokenizer has to get through before it is trusted: some faults show only in use."""
HELP = "Leave it out, or take the one that belongs to the model."


def load_tokenizer(content: bytes, name: str = "tokenizer.json") -> Tokenizer:
    """The tokenizer in the bytes of a tokenizer.json; `name` is what errors call it.

    The library behind it answers some broken files with a panic, which is a BaseException and no Exception.

    >>> load_tokenizer(b"{}")
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: tokenizer.json is no working tokenizer: ...
    """
    if len(content) > LARGEST:
        raise WeightsError(f"{name} has {len(content):,} bytes; a tokenizer has at most {LARGEST:,}")
    try:
        check_bounds(from_json(content, allow_inf_nan=False, cache_strings="keys"))
    except WeightsError as fault:
        raise WeightsError(f"{name} is refused: {fault}. {HELP}") from None
    except ValueError as fault:
        raise WeightsError(f"{name} is no working tokenizer: {str(fault):.200}. {HELP}") from None
    try:
        tokenizer = Tokenizer.from_buffer(content)
        for text in TRIED:
            tokenizer.decode(tokenizer.encode(text).ids)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as fault:
        raise WeightsError(f"{name} is no working tokenizer: {str(fault):.200}. {HELP}") from None
    return tokenizer


def duplicate(tokenizer: Tokenizer) -> Tokenizer:
    """A copy with settings of its own."""
    return Tokenizer.from_str(tokenizer.to_str())
