"""The only door to disk and to other people's formats. Nothing is ever unpickled.

What needs a package of its own is fetched when it is first asked for: `pip install softlook[gguf,onnx,ctranslate2]`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from softlook.weights.beside import kept_beside as kept_beside
from softlook.weights.checkpoint import load as load
from softlook.weights.checkpoint import save as save
from softlook.weights.hugging_face import from_hugging_face as from_hugging_face
from softlook.weights.hugging_face import read_folder as read_folder
from softlook.weights.hugging_face import to_hugging_face as to_hugging_face
from softlook.weights.manifest import digest as digest
from softlook.weights.sentence_settings import sentence_settings as sentence_settings
from softlook.weights.tokenizer import read_tokenizer as read_tokenizer

if TYPE_CHECKING:
    from softlook.weights.ctranslate2 import to_ctranslate2 as to_ctranslate2
    from softlook.weights.gguf import from_gguf as from_gguf
    from softlook.weights.gguf import tokenizer_from_gguf as tokenizer_from_gguf
    from softlook.weights.onnx import to_onnx as to_onnx

ADAPTERS = {
    "from_gguf": "softlook.weights.gguf",
    "to_ctranslate2": "softlook.weights.ctranslate2",
    "to_onnx": "softlook.weights.onnx",
    "tokenizer_from_gguf": "softlook.weights.gguf",
}


def __getattr__(name: str) -> Any:
    if name not in ADAPTERS:
        raise AttributeError(f"module 'softlook.weights' has no attribute {name!r}")
    return getattr(import_module(ADAPTERS[name]), name)
