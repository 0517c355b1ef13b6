"""Where a command puts what it makes, and what it tells of it."""

import logging
import os
from pathlib import Path
from typing import Any

from softlook.base.errors import DiskError


def free(to: Path | None, source: Path, ending: str) -> Path:
    """The folder to make: as told, or named after its source, in the working folder. Its name has to be free.

    >>> free(None, Path("models/gpt2"), "-softlook")
    PosixPath('gpt2-softlook')
    """
    own = source.resolve()
    target = Path(f"{own.stem if own.suffix == '.gguf' else own.name}{ending}") if to is None else to
    if os.path.lexists(target):  # said now, and not after a large model was read
        raise DiskError(f"{target} exists already, and softlook overwrites nothing. Choose another name with --to.")
    return target


def about(model: Any, log: logging.Logger) -> dict[str, Any]:
    """What there is to know about a model, also said."""
    count = sum(parameter.numel() for parameter in model.parameters())
    kind = str(next(model.parameters()).dtype).removeprefix("torch.")
    log.info("%s with %s parameters in %s", type(model).__name__, f"{count:,}", kind)
    return {"model": type(model).__name__, "parameters": count, "dtype": kind}
