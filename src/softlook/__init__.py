"""Attention and Transformers for PyTorch.

Attention is a soft dictionary lookup: it returns an average of all values, weighted by how well each key matches the
query. Names are imported on first use, so that `softlook --help` does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from softlook.base.display import Displayed

if TYPE_CHECKING:
    from softlook import blocks as blocks
    from softlook import models as models
    from softlook import weights as weights
    from softlook.base.errors import BackendError as BackendError
    from softlook.base.errors import DtypeError as DtypeError
    from softlook.base.errors import MaskError as MaskError
    from softlook.base.errors import ShapeError as ShapeError
    from softlook.ops import bias as bias
    from softlook.ops import masks as masks
    from softlook.ops import permutation as permutation
    from softlook.ops import positions as positions
    from softlook.ops import scores as scores
    from softlook.ops.attention import attention as attention
    from softlook.ops.attention import attention_scores as attention_scores
    from softlook.ops.attention import attention_weights as attention_weights
    from softlook.ops.attention import attention_with_lse as attention_with_lse
    from softlook.ops.attention import explain as explain
    from softlook.ops.attention import self_attention as self_attention
    from softlook.ops.fast_weights import fast_weights as fast_weights
    from softlook.ops.look import Look as Look
    from softlook.ops.look import attention_and_look as attention_and_look
    from softlook.ops.look import look as look
    from softlook.ops.soft_dict import SoftDict as SoftDict

__all__ = [
    "BackendError",
    "DtypeError",
    "Look",
    "MaskError",
    "ShapeError",
    "SoftDict",
    "attention",
    "attention_and_look",
    "attention_scores",
    "attention_weights",
    "attention_with_lse",
    "bias",
    "explain",
    "fast_weights",
    "look",
    "masks",
    "permutation",
    "positions",
    "scores",
    "self_attention",
]

SUBPACKAGES = ("blocks", "models", "weights")
"""Packages that are reached as `softlook.weights`, without an import of their own."""
MODULES = {
    "softlook.base.errors": ("BackendError", "DtypeError", "MaskError", "ShapeError"),
    "softlook.ops.fast_weights": ("fast_weights",),
    "softlook.ops.look": ("Look", "attention_and_look", "look"),
    "softlook.ops.attention": (
        "attention",
        "attention_scores",
        "attention_weights",
        "attention_with_lse",
        "explain",
        "self_attention",
    ),
    "softlook.ops.soft_dict": ("SoftDict",),
}
"""The module that defines each public name."""


def __getattr__(name: str) -> Any:
    module = next((module for module, names in MODULES.items() if name in names), None)
    if module is not None:
        value = getattr(import_module(module), name)
    elif name in SUBPACKAGES:
        value = import_module(f"softlook.{name}")
    elif name in __all__:
        value = import_module(f"softlook.ops.{name}")
    else:
        raise AttributeError(f"module 'softlook' has no attribute {name!r}")
    globals()[name] = value
    return value


def _summary_html(value: Any) -> str | None:
    from softlook.lens.figures.summaries import summary_html  # noqa: PLC0415  (slow, and seldom needed)

    return summary_html(value)


Displayed.to_html = staticmethod(_summary_html)


def __dir__() -> list[str]:
    return sorted([*__all__, *SUBPACKAGES])
