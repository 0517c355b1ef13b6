"""softlook: attention as a soft look-up. A query is compared with every key, and the answer is every value,
each to the extent that its key matches."""

from softlook.base.errors import BackendError as BackendError
from softlook.base.errors import DtypeError as DtypeError
from softlook.base.errors import MaskError as MaskError
from softlook.base.errors import ShapeError as ShapeError
from softlook.ops import masks as masks
from softlook.ops import positions as positions
from softlook.ops import scores as scores
from softlook.ops.basic import self_attention as self_attention
from softlook.ops.fast_weights import fast_weights as fast_weights
from softlook.ops.looking import Look as Look
from softlook.ops.looking import attention_and_look as attention_and_look
from softlook.ops.looking import look as look
from softlook.ops.operation import attention as attention
from softlook.ops.operation import attention_scores as attention_scores
from softlook.ops.operation import attention_weights as attention_weights
from softlook.ops.operation import explain as explain
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
    "explain",
    "fast_weights",
    "look",
    "masks",
    "positions",
    "scores",
    "self_attention",
]
