"""Safe loading of a tokenizer.json."""

from pydantic_core import from_json
from tokenizers import Tokenizer

from softlook.base.errors import WeightsError
from softlook.tokens.bounds import check_bounds

MAX_TOKENIZER_BYTES = 64 << 20
PROBES = ("", "a few words", "Ünïcode, 漢字 🙂\n\t 12.5%")
"""Texts that a tokenizer must encode and decode before it is trusted: some errors show only in use."""
HELP = "Leave it out, or use the one that belongs to the model."


def load_tokenizer(content: bytes, name: str = "tokenizer.json") -> Tokenizer:
    """The tokenizer in the bytes of a tokenizer.json, after checking its bounds; `name` is for error messages.

    The tokenizers library panics on some broken files, which is a BaseException and no Exception.

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
    try:
        tokenizer = Tokenizer.from_buffer(content)
        for text in PROBES:
            tokenizer.decode(tokenizer.encode(text).ids)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        raise WeightsError(f"{name} is not a working tokenizer: {str(error):.200}. {HELP}") from None
    return tokenizer


def copy_tokenizer(tokenizer: Tokenizer) -> Tokenizer:
    """An independent copy."""
    return Tokenizer.from_str(tokenizer.to_str())
