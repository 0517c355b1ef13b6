"""Small valid folders, and functions that change them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from softlook.models import GPT, GPTConfig
from softlook.weights import save, to_hugging_face

SIZES = GPTConfig(vocab_size=11, context=8, dim=16, depth=2, heads=2)
TOKENIZER: dict[str, Any] = {
    "version": "1.0",
    "added_tokens": [],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]},
}


def tokenizer_json(**changes: Any) -> str:
    """A tokenizer.json with two letters and some changes."""
    return json.dumps({**TOKENIZER, **changes})


def checkpoint(folder: Path) -> Path:
    """A softlook checkpoint with a tokenizer."""
    tokenizer = folder.parent / "words.json"
    tokenizer.write_text(tokenizer_json(), encoding="utf-8")
    return save(GPT(SIZES), folder, tokenizer=tokenizer)


def hugging_face(folder: Path) -> Path:
    """A GPT-2 folder in Hugging Face's format."""
    return to_hugging_face(GPT(SIZES), folder)


def change_config(folder: Path, **changes: Any) -> None:
    """Set fields of config.json; None removes a field."""
    path = folder / "config.json"
    content = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}), encoding="utf-8")


def change_weights(folder: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    """Change the tensors of a folder in place."""
    path = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape)
