"""Attention through torch's own fused kernels, each chosen where it is at its best."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from softlook.base.tracing import can_read, is_traced
from softlook.ops import apart, blocks, cpu, gpu
from softlook.ops.masks.kinds import Band
from softlook.ops.masks.prepared import prepared
from softlook.ops.question import Question
from softlook.ops.tilework import darkness, someone_blind

CAUSAL = Band(None, 0)
LARGE = 1 << 24
"""Entries of a mask that is not worth its memory between two calls."""


Steps = Literal["apart", "three steps", "fused kernel", "plain kernel"]


@dataclass(frozen=True)
class Way:
    """How a question goes through torch's kernels. `attend` follows it, and `explain` tells it."""

    steps: Steps
    built_in: bool
    """Does the kernel need no mask, or know it by name? Otherwise mask and bias are written out for it."""
    reason: str


def way(question: Question, value: Tensor, dropout: float) -> Way:
    """The way that suits the question."""
    query, key, causal = question.query, question.key, question.mask is not None
    if apart.lengths(question) is not None:
        return Way("apart", True, "each document goes to torch's kernels on its own")
    plain = is_plain(question)
    if not query.is_cuda and cpu.in_three(query, key, value):
        return Way("three steps", plain and not causal, "so few queries and keys are faster in three plain steps")
    if not (_is_fused_on_gpu(query) if query.is_cuda else _is_fused_on_cpu(question, value, dropout)):
        return Way("plain kernel", plain, "torch has no fused kernel for this here, and computes the whole map")
    if not plain:
        return Way("fused kernel", False, "mask and bias are written out for torch's fused kernel")
    if causal:
        return Way("fused kernel", True, "a causal mask is built into torch's fused kernels")
    return Way("fused kernel", True, "a plain soft look-up is what torch's fused kernels do best")


def attend(question: Question, value: Tensor, dropout: float) -> Tensor:
    """Each query's average of the values. (B, H, T, E)"""
    chosen = way(question, value, dropout)
    if chosen.steps == "apart":
        return apart.attend(question, value, partial(attend, dropout=dropout))
    query, key, scale = question.query, question.key, question.scale
    allowed, sees = (None, None) if chosen.built_in else _written_out(question)
    if scale <= 0:  # the kernels look for the largest product before they scale it
        query, scale = query * scale, 1.0
    if chosen.steps == "three steps":
        output = cpu.attend_in_three(query, key, value, allowed, dropout=dropout, scale=scale)
        return output if sees is None else output.masked_fill(~sees, 0)
    D, E = query.shape[3], value.shape[3]
    wide_value = value
    if D != E:
        query, key, wide_value = (_widened(tensor, max(D, E)) for tensor in (query, key, value))
    kernel = gpu.attend if query.is_cuda else cpu.attend_fused if chosen.steps == "fused kernel" else cpu.attend_plainly
    causal = chosen.built_in and question.mask is not None
    output = kernel(query, key, wide_value, allowed, dropout=dropout, causal=causal, scale=scale)
    if output is None:
        return blocks.attend(question, value, dropout)
    output = output if D <= E else output[..., :E]
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
    """Can the kernel do with no mask at all, or with its own causal one?"""
    if question.bias is not None:
        return False
    if question.mask is None:
        return True
    _, _, T, S = question.sizes
    # Most kernels line the first query up with the first key, which is right for T = S only.
    return question.mask == CAUSAL and (T == S or (1 < T < S and gpu.lines_up_the_last(question.query, question.key)))


def map_bytes(question: Question, value: Tensor, dropout: float) -> int:
    """What mask and bias take up written out, and the map itself where it is worked out in steps."""
    (B, H, T, S), size, chosen = question.sizes, question.query.element_size(), way(question, value, dropout)
    if chosen.steps == "apart":
        return 0
    steps = 0 if chosen.steps == "fused kernel" else 2 * B * H * T * S
    maps = 1 if isinstance(question.mask, Band) else B
    written = 0 if chosen.built_in else T * S * (maps if question.bias is None else B * H)
    return steps * size + written * (size + 1)


def _is_fused_on_cpu(question: Question, value: Tensor, dropout: float) -> bool:
    """torch's one fused kernel for CPUs has no dropout, no gradient for a mask, and wants numbers side by side.

    What follows the computation (a compiler, say) cannot read torch's switch for it: the choice is left to torch.
    """
    tensors = (question.query, question.key, value)
    if not can_read(*tensors):
        return False
    even = question.query.shape[3] != value.shape[3] or all(tensor.stride(3) == 1 for tensor in tensors)
    bias = question.bias
    learned = bias is not None and (bias.learned or bias.uses_content) and question.learns_with(value)
    return even and not dropout and not learned and torch.backends.cuda.flash_sdp_enabled()


def _is_fused_on_gpu(query: Tensor) -> bool:
    return query.dtype != torch.float64


def _written_out(question: Question) -> tuple[Tensor | None, Tensor | None]:
    """Mask and bias as one tensor to be added, and which queries see something (None: all do).

    A query that sees nothing is let look everywhere and then given zeros: so no kernel
    divides zero by zero, forwards or backwards.
    """
    tile, mask, bias = question.tile, question.mask, question.bias
    _, _, T, S = question.sizes
    if bias is None:
        if T == 1 and isinstance(mask, Band) and mask.left is None:
            return None, None  # the last position sees everything behind it
        return _mask_alone(question)
    numbers = bias.on(question.query, question.key, question.scale, tile)
    if not bias.may_hide:
        shade, sees = (None, None) if mask is None else _mask_alone(question)
    else:
        seen = ~numbers.isneginf() if mask is None else ~numbers.isneginf() & mask.on(tile)
        numbers = numbers.masked_fill(~seen, 0)
        shade, sees = _shade_and_sees(seen, question, certain=False)
    # A GPU's kernels want the bias in the dtype of the query; a CPU works in that of the bias.
    numbers = numbers.to(question.query.dtype if question.query.is_cuda else question.numbers)
    return (numbers if shade is None else numbers + shade).expand(-1, -1, T, -1), sees


def _mask_alone(question: Question) -> tuple[Tensor, Tensor | None]:
    mask, sizes, device = question.mask, question.sizes, question.query.device
    assert mask is not None

    def make() -> tuple[Tensor, Tensor | None]:
        return _shade_and_sees(mask.on(question.tile), question, certain=mask.never_blind(*sizes[2:]))

    if is_traced(question.query) or math.prod(sizes[2:]) * sizes[0] > LARGE:
        return make()
    return prepared(mask, "shade", (sizes, device, question.query.dtype), make)


def _shade_and_sees(seen: Tensor, question: Question, certain: bool) -> tuple[Tensor, Tensor | None]:
    sees = None if certain else someone_blind(seen)
    shade = darkness(seen if sees is None else seen | ~sees, question.query.dtype)
    return shade.expand(-1, -1, question.sizes[2], -1), sees


def _widened(tensor: Tensor, width: int) -> Tensor:
    """Zeros beside the vectors change no dot product, and one width for all keeps the fused kernels on."""
    return pad(tensor, (0, width - tensor.shape[3]))
