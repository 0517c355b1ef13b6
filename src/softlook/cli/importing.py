"""`softlook import`: other people's weights become a checkpoint of softlook's."""

import logging
import tempfile
from pathlib import Path

import softlook
from softlook.base.errors import WeightsError
from softlook.cli.talk import Result
from softlook.cli.target import about, free

log = logging.getLogger("softlook.cli")


def import_weights(source: Path, /, to: Path | None = None, *, sha256: str | None = None) -> Result:
    """Keep other people's weights as a checkpoint of softlook's.

    Parameters
    ----------
    source
        A folder as save_pretrained writes it, or a GGUF file.
    to
        The new checkpoint: SOURCE-softlook in the working folder, where not told. Nothing is overwritten.
    sha256
        The SHA-256 digest that the GGUF file must have, as its publisher states it: GGUF carries no checksum.
    """
    target, is_gguf = free(to, source, "-softlook"), source.suffix == ".gguf"
    if sha256 is not None and not is_gguf:
        raise WeightsError(f"--sha256 is the digest of one GGUF file, and {source} is none. Leave --sha256 out.")
    return _from_gguf(source, target, sha256) if is_gguf else _from_folder(source, target)


def _from_folder(source: Path, target: Path) -> Result:
    read = softlook.weights.read_folder(source)
    words = source / "tokenizer.json"
    if not words.is_file():
        log.info("%s holds no tokenizer.json: the model comes without its words.", source)
    tokenizer = words if words.is_file() else None
    softlook.weights.save(
        read.model, target, tokenizer=tokenizer, beside=softlook.weights.kept_beside(source, read.model)
    )
    facts = {"architecture": read.architecture, "head": read.head, "tokenizer": tokenizer is not None}
    return Result(target, facts | about(read.model, log))


def _from_gguf(source: Path, target: Path, expected: str | None) -> Result:
    found = _verify(source, expected)
    model = softlook.weights.from_gguf(source)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = _words(source, Path(folder) / "tokenizer.json")
        softlook.weights.save(model, target, tokenizer=tokenizer)
    facts = {"architecture": type(model).__name__, "head": model.config.head, "tokenizer": tokenizer is not None}
    return Result(target, facts | {"sha256": found} | about(model, log))


def _verify(source: Path, expected: str | None) -> str:
    """The digest of the file, reported; WeightsError where it is not the expected one."""
    if not source.is_file():
        raise WeightsError(f"{source} is not a file. Give the GGUF file itself.")
    found = softlook.weights.digest(source)
    if expected is not None and found != expected.strip().lower():
        raise WeightsError(
            f"{source} has the SHA-256 digest {found}, expected {expected!s:.80}: the file is damaged, or another one. "
            "Download it again."
        )
    log.info("%s: SHA-256 %s%s", source, found, "" if expected is None else ", as expected")
    return found


def _words(source: Path, path: Path) -> Path | None:
    """The tokenizer that a GGUF file carries, as a file by itself; a model is worth having without it."""
    try:
        softlook.weights.tokenizer_from_gguf(source).save(str(path))
    except WeightsError as fault:
        log.warning("The model comes without its words: %s", fault)
        return None
    return path
