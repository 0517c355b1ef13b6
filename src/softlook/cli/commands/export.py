"""`softlook export`: write a checkpoint for other programs."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import softlook
from softlook.cli.console import CommandResult
from softlook.cli.next_steps import next_steps
from softlook.cli.options import describe_model, output_folder

CLASSES = {
    "transformers": {"decoder-only": "AutoModelForCausalLM", "encoder-decoder": "AutoModelForSeq2SeqLM"},
    "ctranslate2": {"decoder-only": "Generator", "encoder-decoder": "Translator"},
}
"""Classes that load a model, by package and by the model's mode."""
log = logging.getLogger("softlook.cli")
CheckpointArg = Annotated[Path, Parameter(help="run directory or checkpoint")]
ToArg = Annotated[Path | None, Parameter(help="new folder; default: CHECKPOINT-FORMAT in the working directory")]


def hf(checkpoint: CheckpointArg, /, to: ToArg = None) -> CommandResult:
    """Export to a Hugging Face folder, for `from_pretrained`."""
    target = output_folder(to, checkpoint, "-hf")
    return _export(checkpoint, target, lambda: partial(_write_hf, checkpoint), "transformers.{}.from_pretrained")


def onnx(checkpoint: CheckpointArg, /, to: ToArg = None) -> CommandResult:
    """Export to model.onnx, for any batch size and length."""
    target = output_folder(to, checkpoint, "-onnx")
    return _export(checkpoint, target, lambda: softlook.weights.to_onnx, "onnxruntime.InferenceSession", "model.onnx")


def ctranslate2(checkpoint: CheckpointArg, /, to: ToArg = None) -> CommandResult:
    """Export a GPT or a translation model to CTranslate2."""
    target = output_folder(to, checkpoint, "-ctranslate2")
    return _export(checkpoint, target, lambda: softlook.weights.to_ctranslate2, "ctranslate2.{}")


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


def _export(
    checkpoint: Path, target: Path, get_writer: Callable[[], Callable[..., Any]], loader: str, file: str = ""
) -> CommandResult:
    """Export a checkpoint. `loader` is the function that loads the result, with the class left open."""
    from softlook.recipes.inference.pipeline import find_folder  # noqa: PLC0415  (imports torch)

    write = get_writer()  # first: it may lack a package, and a large model takes long to load
    folder = find_folder(checkpoint)
    model = softlook.weights.load(folder)
    path = folder / "tokenizer.json"
    tokenizer = path if path.is_file() else None
    write(model, target, tokenizer=tokenizer)
    package = loader.split(".")[0]
    class_name = CLASSES.get(package, {}).get(getattr(model, "mode", ""), "AutoModel")
    hint = next_steps((f'{loader.format(class_name)}("{target / file}")', "load it in Python"))
    return CommandResult(target, {"tokenizer": tokenizer is not None} | describe_model(model, log), hint=hint)
