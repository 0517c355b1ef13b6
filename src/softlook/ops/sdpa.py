"""Attention through torch's own fused kernels, each chosen where it is at its best."""

from math import isnan

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad, scaled_dot_product_attention

from softlook.ops.masks.kinds import Band
from softlook.ops.question import Question
from softlook.ops.tilework import darkness

CAUSAL = Band(None, 0)
HALF = (torch.float16, torch.bfloat16)
MATHS = SDPBackend.MATH
CUDNN, FLASH, EFFICIENT = SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION


def attend(question: Question, value: Tensor, dropout: float) -> Tensor:
    """Each query's average of the values. (B, H, T, E)"""
    plain = is_plain(question)
    allowed, sees = (None, None) if plain else _written_out(question)
    query, key = question.query, question.key
    D, E, kind = query.shape[3], value.shape[3], value.dtype
    if D != E:
        query, key, value = (_widened(tensor, max(D, E)) for tensor in (query, key, value))
    if query.is_cuda:
        kernel = _on_gpu
    else:
        kernel = scaled_dot_product_attention
        if kind in HALF:  # on a CPU no slower in single precision, backwards several times faster, and more exact
            query, key, value = query.float(), key.float(), value.float()
    causal, grouped = plain and question.mask is not None, question.repeats > 1
    output = kernel(query, key, value, allowed, dropout, causal, scale=question.scale, enable_gqa=grouped)
    output = (output if D <= E else output[..., :E]).to(kind)
    return output if sees is None else output * sees


def hides_nan(question: Question) -> bool:
    """Would torch's CPU kernel answer zeros where a NaN belongs?

    It takes a query all of whose scores are NaN for one that sees nothing. That needs a NaN in the query, or in
    every key it sees: in the first of all, where everybody sees that one.
    """
    mask, key = question.mask, question.key
    if question.query.is_cuda or torch.compiler.is_compiling():
        return False
    if mask is None or "first" in mask.anchors(*question.sizes[2:]):
        key = key[:, :, 0]
    return isnan((question.query.sum() + key.sum()).item())


def why_not(question: Question) -> str | None:
    """What these kernels cannot do, if it is asked for here."""
    if question.score is not None:
        return "torch's kernels know dot products only"
    if question.softcap is not None:
        return "torch's kernels have no soft cap"
    if question.sink is not None:
        return "torch's kernels have no sink"
    if question.bias is not None and question.bias.adds_value:
        return "torch's kernels have no relative values"
    return None


def is_plain(question: Question) -> bool:
    """Can the kernel do with no mask at all, or with its own causal one (which is right for T = S only)?"""
    if question.bias is not None:
        return False
    _, _, T, S = question.sizes
    return question.mask is None or (T == S and question.mask == CAUSAL)


def map_bytes(question: Question) -> int:
    """What mask and bias take up written out."""
    if is_plain(question):
        return 0
    B, H, T, S = question.sizes
    return B * (H if question.bias is not None else 1) * T * S * (question.query.element_size() + 1)


def _written_out(question: Question) -> tuple[Tensor | None, Tensor | None]:
    """Mask and bias as one tensor, and which queries see something (None: all do).

    A query that sees nothing is let look everywhere and then given zeros: so no kernel
    divides zero by zero, forwards or backwards.
    """
    tile, mask, bias, kind = question.tile, question.mask, question.bias, question.query.dtype
    _, _, T, S = question.sizes
    if mask is not None and bias is None and T == 1 and isinstance(mask, Band) and mask.left is None:
        return None, None  # the last position sees everything behind it
    numbers = None if bias is None else bias.on(question.query, question.key, question.scale, tile)
    seen = torch.ones((1, 1, 1, S), dtype=torch.bool, device=tile.device) if mask is None else mask.on(tile)
    if numbers is not None and bias is not None and bias.may_hide:
        seen = seen & ~numbers.isneginf()
    certain = mask is not None and mask.never_blind(T, S) and not (bias is not None and bias.may_hide)
    sees = None if certain else seen.any(-1, keepdim=True)
    if sees is not None:
        seen = seen | ~sees
    shade = darkness(seen, torch.float32 if not tile.device.type == "cuda" and kind in HALF else kind)
    if numbers is None:
        return _all_rows(shade, T), sees
    if bias is not None and bias.may_hide:
        numbers = numbers.masked_fill(numbers.isneginf(), 0)  # those are in the shade already
    return _all_rows(numbers.to(shade.dtype) + shade, T), sees


def _all_rows(tensor: Tensor, queries: int) -> Tensor:
    return tensor.expand(-1, -1, queries, -1)


def _widened(tensor: Tensor, width: int) -> Tensor:
    """Zeros beside the vectors change no dot product, and one width for all keeps the fused kernels on."""
    return pad(tensor, (0, width - tensor.shape[3]))


def _on_gpu(*tensors: Tensor | float | bool | None, **options: float | bool) -> Tensor:
    with sdpa_kernel([CUDNN, FLASH, EFFICIENT, MATHS], set_priority=True):
        return scaled_dot_product_attention(*tensors, **options)  # pyright: ignore[reportArgumentType]
