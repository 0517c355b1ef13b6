"""Attention through torch's own fused kernels, each chosen where it is at its best."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad, scaled_dot_product_attention

from softlook.ops.masks.kinds import Band
from softlook.ops.question import Question
from softlook.ops.tilework import darkness

MATHS = SDPBackend.MATH
CUDNN, FLASH, EFFICIENT = SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION


def attend(question: Question, value: Tensor, dropout: float) -> Tensor:
    """Each query's average of the values. (B, H, T, E)"""
    width = max(question.query.shape[3], value.shape[3])
    allowed, sees = (None, None) if is_plain(question) else _written_out(question)
    with _kernels(question):
        output = scaled_dot_product_attention(
            _wide(question.query, width),
            _wide(question.key, width),
            _wide(value, width),
            attn_mask=allowed,
            dropout_p=dropout,
            is_causal=allowed is None and question.mask is not None,
            scale=question.scale,
            enable_gqa=question.repeats > 1,
        )[..., : value.shape[3]]
    return output if sees is None else output.masked_fill(~sees, 0)


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
    _, _, T, S = question.sizes
    causal = question.mask == Band(None, 0)
    return question.bias is None and (question.mask is None or (causal and T == S))


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
    tile, mask, bias = question.tile, question.mask, question.bias
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
    shade = darkness(seen, question.query.dtype)
    if numbers is None:
        return _all_rows(shade, T), sees
    if bias is not None and bias.may_hide:
        numbers = numbers.masked_fill(numbers.isneginf(), 0)  # those are in the shade already
    return _all_rows(numbers.to(shade.dtype) + shade, T), sees


def _all_rows(tensor: Tensor, queries: int) -> Tensor:
    return tensor.expand(-1, -1, queries, -1)


def _wide(tensor: Tensor, width: int) -> Tensor:
    """Zeros beside the vectors change no dot product, and one width for all keeps the fused kernels on."""
    return tensor if tensor.shape[3] == width else pad(tensor, (0, width - tensor.shape[3]))


def _kernels(question: Question) -> AbstractContextManager[object]:
    if not question.query.is_cuda:
        return nullcontext()
    return sdpa_kernel([CUDNN, FLASH, EFFICIENT, MATHS], set_priority=True)
