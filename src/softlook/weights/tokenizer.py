"""tokenizer.json, read so that a bad one is an error and never a crash."""

from pathlib import Path

from tokenizers import Tokenizer

from softlook.base.errors import WeightsError
from softlook.weights.folders import told

NAME = "tokenizer.json"
LARGEST = 256 << 20
"""Bytes."""
TRIED = ("", "a few words", "Ünïcode, 漢字 🙂\n\t 12.5%")
"""What a tokenizer has to get through before it is trusted: some faults show only in use."""


def read_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer of a file or a folder, tried on a few words.

    The library behind it answers some broken files with a panic, which is a BaseException and no Exception.

    >>> read_tokenizer("no/such/folder")
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: no/such/folder is not there. A model's tokenizer is a file named tokenizer.json.
    """
    path = Path(path)
    return _working(_content(path), path)


def copy_tokenizer(source: Path, folder: Path) -> None:
    """Put a tokenizer that works beside a model's weights."""
    content = _content(source)
    _working(content, source)
    (folder / NAME).write_bytes(content)


def _content(path: Path) -> bytes:
    with told("read", path):
        path = path / NAME if path.is_dir() else path
        if not path.is_file():
            raise WeightsError(f"{path} is not there. A model's tokenizer is a file named {NAME}.")
        if path.stat().st_size > LARGEST:
            raise WeightsError(f"{path} has {path.stat().st_size:,} bytes; a tokenizer has at most {LARGEST:,}")
        return path.read_bytes()


def _working(content: bytes, path: Path) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_buffer(content)
        for text in TRIED:
            tokenizer.decode(tokenizer.encode(text).ids)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as fault:
        raise WeightsError(
            f"{path} is no working tokenizer: {str(fault):.200}. "
            "Leave it out, or take the one that belongs to the model."
        ) from None
    return tokenizer
