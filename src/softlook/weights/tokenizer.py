"""tokenizer.json, read so that a bad one is an error and never a crash."""

from pathlib import Path

from tokenizers import Tokenizer

from softlook.base.errors import WeightsError
from softlook.tokens.loading import LARGEST, load_tokenizer
from softlook.weights.folders import told

NAME = "tokenizer.json"


def read_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer of a file or a folder, checked against bounds and tried on a few words.

    >>> read_tokenizer("no/such/folder")
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: no/such/folder is not there. A model's tokenizer is a file named tokenizer.json.
    """
    path = Path(path)
    return load_tokenizer(_content(path), str(path))


def copy_tokenizer(source: Path, folder: Path) -> None:
    """Put a tokenizer that works beside a model's weights."""
    content = _content(source)
    load_tokenizer(content, str(source))
    (folder / NAME).write_bytes(content)


def _content(path: Path) -> bytes:
    with told("read", path):
        path = path / NAME if path.is_dir() else path
        if not path.is_file():
            raise WeightsError(f"{path} is not there. A model's tokenizer is a file named {NAME}.")
        if path.stat().st_size > LARGEST:
            raise WeightsError(f"{path} has {path.stat().st_size:,} bytes; a tokenizer has at most {LARGEST:,}")
        return path.read_bytes()
