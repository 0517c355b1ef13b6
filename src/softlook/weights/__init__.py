"""Checkpoints, and import and export of other formats. Pickles are never loaded.

Formats that need another package are imported on first use: `pip install softlook[gguf,onnx,ctranslate2]`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from softlook.weights.assets import assets_to_keep as assets_to_keep
from softlook.weights.assets import read_generation_config as read_generation_config
from softlook.weights.assets import read_labels as read_labels
from softlook.weights.assets import read_tokenizer_config as read_tokenizer_config
from softlook.weights.checkpoint import load as load
from softlook.weights.checkpoint import save as save
from softlook.weights.hugging_face import from_hugging_face as from_hugging_face
from softlook.weights.hugging_face import read_hugging_face as read_hugging_face
from softlook.weights.hugging_face import to_hugging_face as to_hugging_face
from softlook.weights.hugging_face import to_peft as to_peft
from softlook.weights.manifest import file_sha256 as file_sha256
from softlook.weights.sentence_transformers import read_sentence_config as read_sentence_config
from softlook.weights.tokenizer_files import read_tokenizer as read_tokenizer

if TYPE_CHECKING:
    from softlook.weights.formats.ctranslate2 import to_ctranslate2 as to_ctranslate2
    from softlook.weights.formats.gguf import from_gguf as from_gguf
    from softlook.weights.formats.gguf_assets import assets_from_gguf as assets_from_gguf
    from softlook.weights.formats.gguf_assets import tokenizer_from_gguf as tokenizer_from_gguf
    from softlook.weights.formats.onnx import to_onnx as to_onnx

LAZY_IMPORTS = {
    "assets_from_gguf": "softlook.weights.formats.gguf_assets",
    "from_gguf": "softlook.weights.formats.gguf",
    "to_ctranslate2": "softlook.weights.formats.ctranslate2",
    "to_onnx": "softlook.weights.formats.onnx",
    "tokenizer_from_gguf": "softlook.weights.formats.gguf_assets",
}


def __getattr__(name: str) -> Any:
    if name not in LAZY_IMPORTS:
        raise AttributeError(f"module 'softlook.weights' has no attribute {name!r}")
    return getattr(import_module(LAZY_IMPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *LAZY_IMPORTS})
