"""`softlook export`: a checkpoint of softlook's, written for other people's programs."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import softlook
from softlook.cli.talk import Result
from softlook.cli.target import about, free

log = logging.getLogger("softlook.cli")


def hf(checkpoint: Path, /, to: Path | None = None) -> Result:
    """Write a checkpoint as a folder that Hugging Face's `from_pretrained` reads.

    Parameters
    ----------
    checkpoint
        A folder that softlook wrote.
    to
        The new folder: CHECKPOINT-hf in the working folder, where not told. Nothing is overwritten.
    """
    sentence = softlook.weights.sentence_settings(checkpoint)
    write = partial(softlook.weights.to_hugging_face, sentence=sentence)
    return _written(checkpoint, free(to, checkpoint, "-hf"), lambda: write)


def onnx(checkpoint: Path, /, to: Path | None = None) -> Result:
    """Write a checkpoint as a folder with a model.onnx, for any batch and any length.

    Parameters
    ----------
    checkpoint
        A folder that softlook wrote.
    to
        The new folder: CHECKPOINT-onnx in the working folder, where not told. Nothing is overwritten.
    """
    return _written(checkpoint, free(to, checkpoint, "-onnx"), lambda: softlook.weights.to_onnx)


def ctranslate2(checkpoint: Path, /, to: Path | None = None) -> Result:
    """Write a GPT or a translation model as a folder that CTranslate2 runs.

    Parameters
    ----------
    checkpoint
        A folder that softlook wrote.
    to
        The new folder: CHECKPOINT-ctranslate2 in the working folder, where not told. Nothing is overwritten.
    """
    return _written(checkpoint, free(to, checkpoint, "-ctranslate2"), lambda: softlook.weights.to_ctranslate2)


def _written(checkpoint: Path, target: Path, writer: Callable[[], Callable[..., Any]]) -> Result:
    write = writer()  # first, for it may lack a package, and a large model takes a while to load
    model = softlook.weights.load(checkpoint)
    words = checkpoint / "tokenizer.json"
    tokenizer = words if words.is_file() else None
    write(model, target, tokenizer=tokenizer)
    return Result(target, {"tokenizer": tokenizer is not None} | about(model, log))
