"""Implementations to compare: softlook, and baselines in plain torch with precomputed masks."""

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
from benchmarks.reference import dense_attention
from benchmarks.timing import Entry

SOFTLOOK, DENSE_BIAS = "softlook", "sdpa, dense bias"
RECOMPILE_LIMIT = 64
"""Shapes that torch may compile; a sweep exceeds the default of 8."""
CUDA_BACKENDS = {
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
    kwargs: dict[str, Any] = {}
    if case.mask != "full":
        kwargs["mask"] = {
            "causal": masks.causal,
            "padding": partial(masks.padding, inputs.lengths),
            "causal and padding": lambda: masks.causal() & masks.padding(inputs.lengths),
            "window": partial(masks.window, case.window - 1),
        }[case.mask]()
    if case.extra == "alibi":
        kwargs["bias"] = positions.alibi(inputs.slopes)
    if case.extra == "t5":
        kwargs["bias"] = positions.t5(inputs.table)
    if case.extra == "softcap":
        kwargs["softcap"] = SOFTCAP
    if case.extra == "sink":
        kwargs["sink"] = inputs.sink
    return kwargs | ({"dropout": case.dropout} if case.dropout else {})


def softlook_backend(case: Case, inputs: Inputs) -> str:
    """Return the backend that softlook selects."""
    return softlook.explain(*_qkv(inputs), **softlook_arguments(case, inputs)).backend


def fused(case: Case, inputs: Inputs) -> list[Entry]:
    """Torch's fused attention, called in each way that may be the fastest."""
    return [Entry(name, run(case, inputs, forward)) for name, forward in sdpa_calls(case, inputs).items()]


def fused_building_mask(case: Case, inputs: Inputs) -> list[Entry]:
    """For information: the dense mask is built in each call, as softlook does if it needs one."""
    if visible_keys(case, inputs) is None or _is_causal(case):
        return []
    forward = lambda: _sdpa(case, inputs, attn_mask=_expand_rows(case, visible_keys(case, inputs)))  # noqa: E731
    return [Entry("sdpa, building mask", run(case, inputs, forward), informational=True)]


def math(case: Case, inputs: Inputs) -> Entry:
    """Torch's unfused attention."""
    forward = next(iter(sdpa_calls(case, inputs).values()))
    return Entry("math", run(case, inputs, forward), partial(sdpa_kernel, SDPBackend.MATH))


def forced_backends(case: Case, inputs: Inputs) -> list[Entry]:
    """Each fused CUDA kernel."""
    calls = sdpa_calls(case, inputs)
    entries = []
    for name, backend in CUDA_BACKENDS.items():
        call = "sdpa lower-right" if name == "flash" and "sdpa lower-right" in calls else next(iter(calls))
        entries.append(Entry(name, run(case, inputs, calls[call]), partial(sdpa_kernel, backend)))
    return entries


def eager(case: Case, inputs: Inputs) -> Entry:
    """Dense attention from the whole map."""
    bias = materialized_bias(case, inputs)

    def forward() -> Tensor:
        query, key, value = _qkv(inputs)
        key, value = (
            part.repeat_interleave(case.group_size, 1) if case.group_size > 1 else part for part in (key, value)
        )
        current = materialized_bias(case, inputs) if has_bias_gradient(case) else bias
        softcap, sink = SOFTCAP if case.extra == "softcap" else None, inputs.sink if case.extra == "sink" else None
        if case.dropout:
            scores = query @ key.mT * case.scale
            return dropout((scores if current is None else scores + current).softmax(-1), case.dropout) @ value
        return dense_attention(query, key, value, case.scale, softcap=softcap, bias=current, sink=sink)

    return Entry("eager", run(case, inputs, forward))


def dense_bias(case: Case, inputs: Inputs) -> Entry | None:
    """Torch's fused attention with a dense bias and mask; None if it has no equivalent."""
    if case.extra == "softcap":
        return None
    bias = with_sink(case, inputs) if case.extra == "sink" else materialized_bias(case, inputs)
    inputs.cache["bias"] = torch.empty(0) if bias is None else bias

    def forward() -> Tensor:
        query, key, value = _qkv(inputs)
        if case.extra == "sink":  # a zero key whose bias is the sink's logit, with a zero value
            key, value = pad(key, (0, 0, 0, 8)), pad(value, (0, 0, 0, 8))
        current = materialized_bias(case, inputs) if has_bias_gradient(case) else bias
        return sdpa(query, key, value, attn_mask=current)

    return Entry(DENSE_BIAS, run(case, inputs, forward))


def compiled_flex(case: Case, inputs: Inputs) -> Entry:
    """FlexAttention, compiled for this shape, with a precomputed block mask."""
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
    return Entry("flex", run(case, inputs, forward), _raise_recompile_limit)


def flash_window(case: Case, inputs: Inputs) -> Entry:
    """FlashAttention-2 with its sliding window, through an internal operator of torch."""

    def forward() -> Tensor:
        query, key, value = (part.transpose(1, 2) for part in _qkv(inputs))
        _, _, T, S, _ = case.shape
        flash = torch.ops.aten._flash_attention_forward
        window = {"window_size_left": case.window - 1, "window_size_right": 0}
        outputs = flash(query, key, value, None, None, T, S, 0.0, False, False, scale=case.scale, **window)
        return outputs[0].transpose(1, 2)

    return Entry("flash window", run(case, inputs, forward))


def run(case: Case, inputs: Inputs, forward: Forward) -> Callable[[], object]:
    """The timed call: the output, or the output and all gradients."""
    if not case.backward:
        return torch.no_grad()(forward)

    def both() -> tuple[Tensor, ...]:
        output = forward()
        return output, *torch.autograd.grad(output, inputs.leaves(case), inputs.grad)

    return both


def sdpa_calls(case: Case, inputs: Inputs) -> dict[str, Callable[..., Tensor]]:
    """Ways to call SDPA for this case, the simplest first."""
    allowed = None if _is_causal(case) else _expand_rows(case, visible_keys(case, inputs))
    calls: dict[str, Callable[..., Tensor]] = {}
    if allowed is None:
        calls["sdpa"] = partial(_sdpa, case, inputs, is_causal=_is_causal(case))
    else:
        float_mask = torch.zeros_like(allowed, dtype=case.dtype).masked_fill_(~allowed, -torch.inf)
        calls["sdpa"] = partial(_sdpa, case, inputs, attn_mask=allowed)
        calls["sdpa float mask"] = partial(_sdpa, case, inputs, attn_mask=float_mask)
        if case.mask == "causal":
            lower_right = causal_lower_right(*case.shape[2:4])
            calls["sdpa lower-right"] = partial(_sdpa, case, inputs, attn_mask=lower_right)
    if case.group_size > 1:
        calls |= {f"{name} repeated": partial(call, repeat=True) for name, call in calls.items()}
    return calls


def _sdpa(case: Case, inputs: Inputs, repeat: bool = False, **kwargs: Any) -> Tensor:
    query, key, value = _qkv(inputs)
    if repeat:
        key, value = (part.repeat_interleave(case.group_size, 1) for part in (key, value))
    enable_gqa = case.group_size > 1 and not repeat
    return sdpa(query, key, value, dropout_p=case.dropout, enable_gqa=enable_gqa, **kwargs)


def materialized_bias(case: Case, inputs: Inputs) -> Tensor | None:
    """Bias and mask as one additive tensor."""
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
    padded = torch.full((1, H, T, S + 8), -torch.inf, dtype=case.dtype, device=case.device)
    padded[..., :S] = mask
    padded[..., S] = inputs.sink[:, None].to(case.dtype)
    return padded


def _qkv(inputs: Inputs) -> tuple[Tensor, Tensor, Tensor]:
    return inputs.query, inputs.key, inputs.value


def has_bias_gradient(case: Case) -> bool:
    """Whether the bias is a parameter with a gradient, so that it is computed in every call."""
    return case.extra == "t5" and case.backward


def _is_causal(case: Case) -> bool:
    _, _, T, S, _ = case.shape
    return case.mask == "causal" and T == S and T > 1


def _expand_rows(case: Case, allowed: Tensor | None) -> Tensor | None:
    return None if allowed is None else allowed.expand(-1, -1, case.shape[2], -1)


@cache
def _flex_module() -> Any:
    import torch.nn.attention.flex_attention as flex  # noqa: PLC0415  (imports the compiler)

    return flex


@cache
def _compiled(call: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(call, dynamic=False)


def _raise_recompile_limit() -> AbstractContextManager[object]:
    return torch._dynamo.config.patch(recompile_limit=RECOMPILE_LIMIT, accumulated_recompile_limit=4 * RECOMPILE_LIMIT)
