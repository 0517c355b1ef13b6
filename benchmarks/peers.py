"""Implementations to compare: softlook, and expert versions in plain torch with precomputed masks."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import dropout, pad
from torch.nn.functional import scaled_dot_product_attention as sdpa

import softlook
from benchmarks.cases import SOFTCAP, Case, Inputs, distance_bias, visible_keys
from benchmarks.timing import Entry
from benchmarks.truth import textbook

SOFTLOOK = "softlook"
RECOMPILE_LIMIT = 64
"""Shapes that torch may compile; a sweep exceeds the default of 8."""
FORCED = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
Forward = Callable[[], Tensor]


def softlook_entry(case: Case, inputs: Inputs) -> Entry:
    """softlook as a user writes it: the mask is created in each call."""
    return Entry(
        SOFTLOOK, run(case, inputs, lambda: softlook.attention(*_qkv(inputs), **softlook_arguments(case, inputs)))
    )


def softlook_arguments(case: Case, inputs: Inputs) -> dict[str, Any]:
    """Return the keyword arguments of the call."""
    masks, positions = softlook.masks, softlook.positions
    words: dict[str, Any] = {}
    if case.mask != "full":
        words["mask"] = {
            "causal": masks.causal,
            "padding": partial(masks.padding, inputs.lengths),
            "window": partial(masks.window, case.window - 1),
        }[case.mask]()
    if case.extra == "alibi":
        words["bias"] = positions.alibi(inputs.slopes)
    if case.extra == "t5":
        words["bias"] = positions.t5(inputs.table)
    if case.extra == "softcap":
        words["softcap"] = SOFTCAP
    if case.extra == "sink":
        words["sink"] = inputs.sink
    return words | ({"dropout": case.dropout} if case.dropout else {})


def softlook_backend(case: Case, inputs: Inputs) -> str:
    """Return the backend that softlook selects."""
    return softlook.explain(*_qkv(inputs), **softlook_arguments(case, inputs)).backend


def fused(case: Case, inputs: Inputs) -> list[Entry]:
    """Torch's fused attention, asked in each way that may be the fastest."""
    return [Entry(name, run(case, inputs, forward)) for name, forward in sdpa_ways(case, inputs).items()]


def fused_with_mask_built(case: Case, inputs: Inputs) -> list[Entry]:
    """For information: the mask written out anew in each call, as softlook has to where it needs one."""
    if visible_keys(case, inputs) is None or _built_in_causal(case):
        return []
    forward = lambda: _sdpa(case, inputs, attn_mask=_every_row(case, visible_keys(case, inputs)))  # noqa: E731
    return [Entry("sdpa, mask built", run(case, inputs, forward), counts=False)]


def maths(case: Case, inputs: Inputs) -> Entry:
    """Torch's unfused attention."""
    forward = next(iter(sdpa_ways(case, inputs).values()))
    return Entry("math", run(case, inputs, forward), partial(sdpa_kernel, SDPBackend.MATH))


def forced(case: Case, inputs: Inputs) -> list[Entry]:
    """Each fused kernel of a GPU by itself."""
    ways = sdpa_ways(case, inputs)
    entries = []
    for name, backend in FORCED.items():
        way = "sdpa lower-right" if name == "flash" and "sdpa lower-right" in ways else next(iter(ways))
        entries.append(Entry(name, run(case, inputs, ways[way]), partial(sdpa_kernel, backend)))
    return entries


def eager(case: Case, inputs: Inputs) -> Entry:
    """The textbook, with the whole map in hand."""
    added = materialized_bias(case, inputs)

    def forward() -> Tensor:
        query, key, value = _qkv(inputs)
        key, value = (
            part.repeat_interleave(case.group_size, 1) if case.group_size > 1 else part for part in (key, value)
        )
        again = materialized_bias(case, inputs) if _learned(case) else added
        softcap, sink = SOFTCAP if case.extra == "softcap" else None, inputs.sink if case.extra == "sink" else None
        if case.dropout:
            scores = query @ key.mT * case.scale
            return dropout((scores if again is None else scores + again).softmax(-1), case.dropout) @ value
        return textbook(query, key, value, case.scale, softcap=softcap, added=again, sink=sink)

    return Entry("eager", run(case, inputs, forward))


def dense_bias(case: Case, inputs: Inputs) -> Entry | None:
    """Torch's fused attention with bias and mask written out; None where that cannot be said."""
    if case.extra == "softcap":
        return None
    added = with_sink(case, inputs) if case.extra == "sink" else materialized_bias(case, inputs)
    inputs.cache["bias"] = torch.empty(0) if added is None else added

    def forward() -> Tensor:
        query, key, value = _qkv(inputs)
        if case.extra == "sink":  # a key of zeros whose bias is the sink's score, and whose value is nothing
            key, value = pad(key, (0, 0, 0, 8)), pad(value, (0, 0, 0, 8))
        return sdpa(query, key, value, attn_mask=materialized_bias(case, inputs) if _learned(case) else added)

    return Entry("sdpa, bias written out", run(case, inputs, forward))


def compiled_flex(case: Case, inputs: Inputs) -> Entry:
    """FlexAttention, compiled for this shape, with its block mask ready-made."""
    flex = _flex_module()
    _, _, T, S, _ = case.shape
    lengths, shift, width = inputs.lengths, S - T, case.window
    mods = {
        "causal": lambda b, h, i, j: j <= i + shift,
        "window": lambda b, h, i, j: (j <= i + shift) & (j > i + shift - width),
        "padding": lambda b, h, i, j: j < lengths[b],
    }
    blocks = None
    if case.mask in mods:
        batch = case.shape[0] if case.mask == "padding" else None
        blocks = flex.create_block_mask(mods[case.mask], batch, None, T, S, device=case.device)
    call = _compiled(flex.flex_attention)
    forward = lambda: call(*_qkv(inputs), block_mask=blocks, scale=case.scale, enable_gqa=case.group_size > 1)  # noqa: E731
    return Entry("flex", run(case, inputs, forward), _more_shapes)


def flash_window(case: Case, inputs: Inputs) -> Entry:
    """FlashAttention-2 with its own window, through torch's internal door."""

    def forward() -> Tensor:
        query, key, value = (part.transpose(1, 2) for part in _qkv(inputs))
        _, _, T, S, _ = case.shape
        flash = torch.ops.aten._flash_attention_forward
        window = {"window_size_left": case.window - 1, "window_size_right": 0}
        answer = flash(query, key, value, None, None, T, S, 0.0, False, False, scale=case.scale, **window)
        return answer[0].transpose(1, 2)

    return Entry("flash window", run(case, inputs, forward))


def run(case: Case, inputs: Inputs, forward: Forward) -> Callable[[], object]:
    """The call to time: the output, or the output and all gradients."""
    if not case.backward:
        return torch.no_grad()(forward)

    def both() -> tuple[Tensor, ...]:
        output = forward()
        return output, *torch.autograd.grad(output, inputs.leaves(case), inputs.grad)

    return both


def sdpa_ways(case: Case, inputs: Inputs) -> dict[str, Callable[..., Tensor]]:
    """The plainest first."""
    allowed = None if _built_in_causal(case) else _every_row(case, visible_keys(case, inputs))
    ways: dict[str, Callable[..., Tensor]] = {}
    if allowed is None:
        ways["sdpa"] = partial(_sdpa, case, inputs, is_causal=_built_in_causal(case))
    else:
        numbers = torch.zeros_like(allowed, dtype=case.dtype).masked_fill_(~allowed, -torch.inf)
        ways["sdpa"] = partial(_sdpa, case, inputs, attn_mask=allowed)
        ways["sdpa float mask"] = partial(_sdpa, case, inputs, attn_mask=numbers)
        if case.mask == "causal":
            lower_right = causal_lower_right(*case.shape[2:4])
            ways["sdpa lower-right"] = partial(_sdpa, case, inputs, attn_mask=lower_right)
    if case.group_size > 1:
        ways |= {f"{name} repeated": partial(way, repeat=True) for name, way in ways.items()}
    return ways


def _sdpa(case: Case, inputs: Inputs, repeat: bool = False, **words: Any) -> Tensor:
    query, key, value = _qkv(inputs)
    if repeat:
        key, value = (part.repeat_interleave(case.group_size, 1) for part in (key, value))
    shared = case.group_size > 1 and not repeat
    return sdpa(query, key, value, dropout_p=case.dropout, enable_gqa=shared, **words)


def materialized_bias(case: Case, inputs: Inputs) -> Tensor | None:
    """Bias and mask as one tensor of numbers to add."""
    bias, allowed = distance_bias(case, inputs), visible_keys(case, inputs)
    if allowed is None:
        return None if bias is None else bias.to(case.dtype)
    if bias is not None:
        return bias.masked_fill(~allowed, -torch.inf).to(case.dtype)
    return torch.zeros_like(allowed, dtype=case.dtype).masked_fill_(~allowed, -torch.inf)


def with_sink(case: Case, inputs: Inputs) -> Tensor:
    """(1, H, T, S + 8): the mask, and eight more columns of which the first is the sink."""
    B, H, T, S, _ = case.shape
    mask = materialized_bias(case, inputs)
    mask = inputs.query.new_zeros(1, 1, 1, S) if mask is None else mask
    wide = torch.full((1, H, T, S + 8), -torch.inf, dtype=case.dtype, device=case.device)
    wide[..., :S] = mask
    wide[..., S] = inputs.sink[:, None].to(case.dtype)
    return wide


def _qkv(inputs: Inputs) -> tuple[Tensor, Tensor, Tensor]:
    return inputs.query, inputs.key, inputs.value


def _learned(case: Case) -> bool:
    return case.extra == "t5" and case.backward


def _built_in_causal(case: Case) -> bool:
    _, _, T, S, _ = case.shape
    return case.mask == "causal" and T == S and T > 1


def _every_row(case: Case, allowed: Tensor | None) -> Tensor | None:
    return None if allowed is None else allowed.expand(-1, -1, case.shape[2], -1)


@cache
def _flex_module() -> Any:
    import torch.nn.attention.flex_attention as flex  # noqa: PLC0415  (loads the compiler)

    return flex


@cache
def _compiled(call: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(call, dynamic=False)


def _more_shapes() -> AbstractContextManager[object]:
    return torch._dynamo.config.patch(recompile_limit=RECOMPILE_LIMIT, accumulated_recompile_limit=4 * RECOMPILE_LIMIT)
