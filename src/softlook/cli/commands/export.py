"""`softlook export`: write a checkpoint for other programs."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import softlook
from softlook.cli.console import CommandResult
from softlook.cli.options import describe_model, output_folder

log = logging.getLogger("softlook.cli")
CheckpointArg = Annotated[Path, Parameter(help="checkpoint folder")]
ToArg = Annotated[
    Path | None, Parameter(help="new folder; default: CHECKPOINT-FORMAT in the working directory. Not overwritten.")
]


def hf(checkpoint: CheckpointArg, /, to: ToArg = None) -> CommandResult:
    """Export to a Hugging Face folder, for `from_pretrained`."""
    return _export(checkpoint, output_folder(to, checkpoint, "-hf"), lambda: partial(_write_hf, checkpoint))


def onnx(checkpoint: CheckpointArg, /, to: ToArg = None) -> CommandResult:
    """Export to model.onnx, for any batch size and length."""
    return _export(checkpoint, output_folder(to, checkpoint, "-onnx"), lambda: softlook.weights.to_onnx)


def ctranslate2(checkpoint: CheckpointArg, /, to: ToArg = None) -> CommandResult:
    """Export a GPT or a translation model to CTranslate2."""
    return _export(checkpoint, output_folder(to, checkpoint, "-ctranslate2"), lambda: softlook.weights.to_ctranslate2)


def _write_hf(checkpoint: Path, model: Any, target: Path, tokenizer: Path | None) -> None:
    weights, has_labels = softlook.weights, (checkpoint / "labels.json").is_file()
    weights.to_hugging_face(
        model,
        target,
        tokenizer=tokenizer,
        sentence_config=weights.read_sentence_config(checkpoint),
        labels=weights.read_labels(checkpoint, {}, model) if has_labels else (),
        generation_config=weights.read_generation_config(checkpoint),
        tokenizer_config=weights.read_tokenizer_config(checkpoint),
    )


def _export(checkpoint: Path, target: Path, get_writer: Callable[[], Callable[..., Any]]) -> CommandResult:
    write = get_writer()  # first: it may lack a package, and a large model takes long to load
    model = softlook.weights.load(checkpoint)
    path = checkpoint / "tokenizer.json"
    tokenizer = path if path.is_file() else None
    write(model, target, tokenizer=tokenizer)
    return CommandResult(target, {"tokenizer": tokenizer is not None} | describe_model(model, log))
