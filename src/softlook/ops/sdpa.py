"""Attention through torch's own fused kernels, each chosen where it is at its best."""

import math
from functools import partial

from torch import Tensor
from torch.nn.functional import pad

from softlook.ops import apart, blocks, cpu, gpu
from softlook.ops.masks.kinds import Band
from softlook.ops.masks.prepared import prepared
from softlook.ops.question import Question
from softlook.ops.tilework import darkness, someone_blind

CAUSAL = Band(None, 0)
LARGE = 1 << 24
"""Entries of a mask that is not worth its memory between two calls."""


def attend(question: Question, value: Tensor, dropout: float) -> Tensor:
    """Each query's average of the values. (B, H, T, E)"""
    runs = apart.lengths(question)
    if runs is not None:
        return apart.attend(question, value, runs, partial(attend, dropout=dropout))
    query, key, scale = question.query, question.key, question.scale
    in_three = not query.is_cuda and cpu.in_three(query, key, value)
    built_in = is_plain(question) and not (in_three and question.mask is not None)
    allowed, sees = (None, None) if built_in else _written_out(question)
    if scale <= 0:  # the kernels look for the largest product before they scale it
        query, scale = query * scale, 1.0
    if in_three:
        output = cpu.attend_in_three(query, key, value, allowed, dropout=dropout, scale=scale)
        return output if sees is None else output.masked_fill(~sees, 0)
    D, E = query.shape[3], value.shape[3]
    wide_value = value
    if D != E:
        query, key, wide_value = (_widened(tensor, max(D, E)) for tensor in (query, key, value))
    causal = question.mask is not None if built_in else False
    kernel = gpu.attend if query.is_cuda else cpu.attend
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


def map_bytes(question: Question) -> int:
    """What mask and bias take up written out, and a short map itself where it is worked out in steps."""
    (B, H, T, S), query, key = question.sizes, question.query, question.key
    if apart.lengths(question) is not None:
        return 0
    steps = 2 * B * H * T * S if not query.is_cuda and cpu.in_three(query, key, key) else 0
    maps = 1 if isinstance(question.mask, Band) else B
    written = 0 if is_plain(question) else T * S * (maps if question.bias is None else B * H)
    return steps * query.element_size() + written * (query.element_size() + 1)


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

    if math.prod(sizes[2:]) * sizes[0] > LARGE:
        return make()
    return prepared(mask, "shade", (sizes, device, question.query.dtype), make)


def _shade_and_sees(seen: Tensor, question: Question, certain: bool) -> tuple[Tensor, Tensor | None]:
    sees = None if certain else someone_blind(seen)
    shade = darkness(seen if sees is None else seen | ~sees, question.query.dtype)
    return shade.expand(-1, -1, question.sizes[2], -1), sees


def _widened(tensor: Tensor, width: int) -> Tensor:
    """Zeros beside the vectors change no dot product, and one width for all keeps the fused kernels on."""
    return pad(tensor, (0, width - tensor.shape[3]))
