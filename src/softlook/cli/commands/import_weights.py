"""`softlook import`: convert other weights to a checkpoint."""

import logging
import tempfile
from pathlib import Path
from typing import Any

import softlook
from softlook.base.errors import ConfigError, WeightsError
from softlook.cli.console import CommandResult
from softlook.cli.next_steps import next_steps
from softlook.cli.options import describe_model, output_folder, quote

TRAIN_TASKS = {"generate": "lm", "translate": "translate", "classify": "classify", "embed": "classify"}
"""The task that trains a model further, by what it is used for."""
log = logging.getLogger("softlook.cli")


def import_weights(
    source: Path, /, to: Path | None = None, *, sha256: str | None = None, keep_quantized: bool = False
) -> CommandResult:
    """Convert a Hugging Face folder or a GGUF file to a checkpoint.

    Parameters
    ----------
    source
        Hugging Face folder, as save_pretrained writes it, or a GGUF file
    to
        new checkpoint folder; default: SOURCE-softlook in the working directory
    sha256
        expected SHA-256 digest of a GGUF file, which has no checksum of its own
    keep_quantized
        keep the quantized weights of a GGUF file: less memory, slower, the same outputs
    """
    target, is_gguf = output_folder(to, source, "-softlook"), source.suffix == ".gguf"
    wrong = "--sha256" if sha256 is not None else "--keep-quantized" if keep_quantized else None
    if wrong is not None and not is_gguf:
        raise WeightsError(f"{wrong} is for GGUF files, and {source} is not one. Remove {wrong}.")
    return _from_gguf(source, target, sha256, keep_quantized) if is_gguf else _from_folder(source, target)


def _from_folder(source: Path, target: Path) -> CommandResult:
    imported = softlook.weights.read_hugging_face(source)
    path = source / "tokenizer.json"
    tokenizer = path if path.is_file() else None
    if tokenizer is None:
        log.info("%s has no tokenizer.json: the model is imported without a tokenizer.", source)
    assets = softlook.weights.assets_to_keep(source, imported.model)
    softlook.weights.save(imported.model, target, tokenizer=tokenizer, extra_files=assets)
    details = {"architecture": imported.architecture, "head": imported.head, "tokenizer": tokenizer is not None}
    hint = _next_steps(imported.model, target, has_tokenizer=tokenizer is not None)
    return CommandResult(target, details | describe_model(imported.model, log), hint=hint)


def _from_gguf(source: Path, target: Path, expected: str | None, keep_quantized: bool) -> CommandResult:
    digest = _verify(source, expected)
    model = softlook.weights.from_gguf(source, keep_quantized=keep_quantized)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer, assets = _save_tokenizer(source, Path(folder) / "tokenizer.json")
        softlook.weights.save(model, target, tokenizer=tokenizer, extra_files=assets)
    details = {"architecture": type(model).__name__, "head": model.config.head, "tokenizer": tokenizer is not None}
    hint = _next_steps(model, target, has_tokenizer=tokenizer is not None)
    return CommandResult(target, details | {"sha256": digest} | describe_model(model, log), hint=hint)


def _next_steps(model: Any, folder: Path, *, has_tokenizer: bool) -> str:
    """Commands that use the imported model."""
    from softlook.recipes.inference.pipeline import inference_task  # noqa: PLC0415  (imports torch)

    in_python = (f'softlook.weights.load("{folder}")', "load it in Python")
    try:
        task = inference_task(model, str(folder))
    except ConfigError:
        task = None
    if task is None or not has_tokenizer:
        return next_steps(in_python)
    name = quote(folder)
    return next_steps(
        (f'softlook {task} {name} "..."', "use the model"),
        (f"softlook train {TRAIN_TASKS[task]} --data FILE --init-from {name}", "fine-tune it"),
        in_python,
    )


def _verify(source: Path, expected: str | None) -> str:
    """The SHA-256 digest of a file; raises if it is not the expected one."""
    if not source.is_file():
        raise WeightsError(f"{source} is not a file. Give the GGUF file itself.")
    digest = softlook.weights.file_sha256(source)
    if expected is not None and digest != expected.strip().lower():
        raise WeightsError(
            f"{source} has the SHA-256 digest {digest}, expected {expected!s:.80}: the file is damaged or another one. "
            "Download it again."
        )
    log.info("%s: SHA-256 %s%s", source, digest, "" if expected is None else ", as expected")
    return digest


def _save_tokenizer(source: Path, path: Path) -> tuple[Path | None, dict[str, Any]]:
    """The tokenizer in a GGUF file as a file of its own, None if it is not supported; and the files that go with it."""
    try:
        tokenizer, assets = softlook.weights.assets_from_gguf(source)
    except WeightsError as error:
        log.warning("The model is imported without a tokenizer: %s", error)
        return None, {}
    tokenizer.save(str(path))
    return path, assets
