"""tokenizer.json, read so that a bad one is an error and never a crash."""

import shutil
from pathlib import Path

from tokenizers import Tokenizer

from softlook.base.errors import WeightsError

NAME = "tokenizer.json"
LARGEST = 256 << 20
"""Bytes."""


def read_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer of a file or a folder, tried on a few words.

    The library behind it answers some broken files with a panic, which is a BaseException and no Exception.
    """
    path = Path(path)
    path = path / NAME if path.is_dir() else path
    if not path.is_file():
        raise WeightsError(f"{path} is not there. A model's tokenizer is a file named {NAME}.")
    if path.stat().st_size > LARGEST:
        raise WeightsError(f"{path} has {path.stat().st_size:,} bytes; a tokenizer has at most {LARGEST:,}")
    try:
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.decode(tokenizer.encode("a few words").ids)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as fault:
        raise WeightsError(f"{path} is no working tokenizer: {str(fault):.200}") from None
    return tokenizer


def copy_tokenizer(source: Path, folder: Path) -> None:
    """Put a tokenizer that works beside a model's weights."""
    read_tokenizer(source)
    shutil.copyfile(source / NAME if source.is_dir() else source, folder / NAME)
