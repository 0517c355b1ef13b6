"""Traces of Hugging Face models: calls of transformers' attention functions are recorded.

The functions themselves stay in use, whatever implementation the model has (SDPA, FlashAttention, eager), so a trace
does not change its output. Some rows of each layer are recomputed: a model whose attention is something else than the
recorded scores and their softmax is an error, not a wrong map.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from softlook.base.errors import ConfigError
from softlook.blocks.attention import AttentionCore
from softlook.lens.attention_trace import AttentionCall, AttentionTrace
from softlook.lens.recording import Recorder
from softlook.ops.bias import as_bias
from softlook.ops.masks import Mask, causal, dense, window
from softlook.ops.masks.base import as_mask
from softlook.ops.selection import scores_at

Attend = Callable[..., tuple[Tensor, Any]]
"""transformers' attention function: (module, query, key, value, attention_mask, **options) -> (output, weights)."""
TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""By how much recomputed outputs may differ, relative to the largest; 1e-3 for other dtypes."""
BLOCK = re.compile(r"[^0-9]*\.\d+")
"""The path of a block: the first member of a list."""


@dataclass(frozen=True, eq=False)
class Recording:
    """The attention modules of one traced model, and where their calls go."""

    paths: dict[nn.Module, str]
    recorder: Recorder
    layers: dict[str, AttentionTrace]

    def record(
        self, module: nn.Module, tensors: tuple[Tensor, ...], mask: Tensor | None, options: dict[str, Any]
    ) -> None:
        """Append a call; `tensors` are query, key, value and output, each (B, heads, positions, dim)."""
        query, key, value, output = tensors
        path = self.paths[module]
        core, bias = make_core(module, options), options.get("position_bias")
        visible, added = read_mask(module, query, key, mask, options)
        written = count_written(query, key, visible)
        key, value = key[:, :, :written], value[:, :, :written]
        bias, added = (None if x is None else x[..., :written] for x in (bias, added))
        visible = compact_mask(visible[..., :written]) if isinstance(visible, Tensor) else visible
        bias = added if bias is None else bias if added is None else as_bias(bias) + added
        call = self.recorder.record(path, core, query, (key, value), output, mask=visible, bias=bias)
        layer = self.layers.setdefault(path, AttentionTrace())
        if not core.training and len(layer.calls) < 2:  # a prompt, and a step with a cache
            check_output(path, module, replace(call, query=query.detach(), key=key.detach()), value, output)
        layer.calls.append(call)


_recordings: list[Recording] = []
_lock = Lock()
_get_interface: Any = getattr(AttentionInterface, "get_interface", None)


@contextmanager
def record_attention(model: nn.Module, recorder: Recorder, layers: dict[str, AttentionTrace]) -> Iterator[None]:
    """Record the calls of transformers' attention functions by the modules of `model`, inside the context."""
    if _get_interface is None:
        raise ConfigError("tracing a Hugging Face model requires transformers 5 or newer, with `get_interface`")
    recording = Recording({module: path for path, module in model.named_modules()}, recorder, layers)
    hook = model.register_forward_hook(lambda *_: check_recorded(model, layers))
    with _lock:
        _recordings.append(recording)
        AttentionInterface.get_interface = _recording_interface  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        hook.remove()
        with _lock:
            _recordings.remove(recording)
            if not _recordings:
                AttentionInterface.get_interface = _get_interface


def hidden_blocks(model: nn.Module) -> dict[str, nn.Module]:
    """The blocks of a model by their paths: the members of its outermost lists of modules."""
    return {path: module for path, module in model.named_modules() if BLOCK.fullmatch(path)}


def check_recorded(model: nn.Module, layers: dict[str, AttentionTrace]) -> None:
    """Raise an error after a forward pass in which no attention function was called."""
    if not layers:
        raise ConfigError(
            f"{type(model).__name__} does not compute attention through transformers' AttentionInterface, so it cannot "
            "be traced. Load its weights into a softlook model (`softlook.weights.from_hugging_face`), if it has one."
        )


def make_core(module: nn.Module, options: dict[str, Any]) -> AttentionCore:
    """The attention function as a module, with its scale, softcap and sink."""
    sink, dropout = options.get("s_aux"), options.get("dropout") or 0.0
    core = AttentionCore(
        scale=options.get("scaling"),
        softcap=options.get("softcap"),
        sink=None if sink is None else sink.detach().clone(),
        dropout=dropout,
    )
    return core.train(bool(dropout) and module.training)


def read_mask(
    module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, options: dict[str, Any]
) -> tuple[Mask | Tensor | None, Tensor | None]:
    """The mask of a call, and what is added to its scores."""
    if mask is None:
        return _own_mask(module, query, key, options), None
    if not isinstance(mask, Tensor) or mask.ndim not in (2, 4):
        raise ConfigError(
            f"a trace reads attention masks with 2 or 4 dimensions, got {type(mask).__name__} from the attention "
            f'implementation {options["implementation"]!r}. Use model.set_attn_implementation("sdpa").'
        )
    if mask.ndim == 2:  # FlashAttention's padding mask
        own, padding = _own_mask(module, query, key, options), dense(mask[:, None, None, -key.shape[2] :].bool())
        return padding if own is None else as_mask(own) & padding, None
    mask = mask[..., : key.shape[2]]
    if mask.dtype == torch.bool:
        return mask, None
    visible = mask == 0
    is_boolean = bool((visible | (mask <= torch.finfo(mask.dtype).min / 2)).all() and visible.any(-1).all())
    return (visible, None) if is_boolean else (None, mask)


def _own_mask(module: nn.Module, query: Tensor, key: Tensor, options: dict[str, Any]) -> Mask | Tensor | None:
    """The mask of an attention function that is given none."""
    T, S = query.shape[2], key.shape[2]
    is_causal = options.get("is_causal")
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if options["implementation"] == "eager" or not is_causal or T == 1:
        return None
    if "flash" not in options["implementation"] and T != S:  # SDPA aligns the first query with the first key
        return torch.ones(1, 1, T, S, dtype=torch.bool, device=query.device).tril()
    width = options.get("sliding_window") if "flash" in options["implementation"] else None
    return causal() if width is None else window(width - 1)


def count_written(query: Tensor, key: Tensor, visible: Mask | Tensor | None) -> int:
    """How many keys there are before the rest of a static cache: zeros that no query sees."""
    T, S = query.shape[2], key.shape[2]
    if not isinstance(visible, Tensor) or T >= S:
        return S
    columns = visible.flatten(0, 2).any(0).nonzero()
    count = max(int(columns[-1]) + 1 if len(columns) else 0, T)
    return S if bool(key[:, :, count:].any()) else count


def compact_mask(visible: Tensor) -> Mask | Tensor:
    """A mask with the same entries, which takes less memory where it is a window, such as a causal mask, and padding.

    >>> print(compact_mask(torch.ones(2, 1, 3, 3).tril().bool()))
    causal()
    """
    T, S = visible.shape[2:]
    columns, rows = visible.any(2, keepdim=True), visible.flatten(0, 1).any(0)
    seen = rows.any(1)
    if not bool(seen.any()):
        return visible
    positions = torch.arange(S - T, S, device=visible.device)[seen]
    first, last = rows[seen].byte().argmax(1), S - 1 - rows[seen].flip(1).byte().argmax(1)
    left, right = int((positions - first).max()), int((last - positions).max())
    if min(left, right) < 0:
        return visible
    band = window(left if left < S - 1 else None, right if right < S - 1 else None)
    if not torch.equal(visible, columns & band.to_dense((1, 1, T, S), visible.device)):
        return visible
    if band == window(None, None):
        return dense(columns)
    return band if bool(columns.all()) else band & dense(columns)


def check_output(path: str, module: nn.Module, call: AttentionCall, value: Tensor, output: Tensor) -> None:
    """Raise an error unless the output of some queries follows from the recorded scores."""
    args, device = call.args, value.device
    rows = torch.tensor(sorted({0, args.sizes[2] // 2, args.sizes[2] - 1}), device=device)
    with torch.no_grad():
        scores = scores_at(args, rows, torch.arange(args.sizes[3], device=device))
        if args.sink is not None:
            sink = args.sink.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
            scores = torch.cat([scores, sink.to(scores.dtype)], -1)
        weights = scores.softmax(-1)[..., : args.sizes[3]]
        expected = weights @ value.repeat_interleave(args.group_size, 1).to(weights.dtype)
        actual = output.index_select(2, rows).to(weights.dtype)
        seen = ~expected.isnan()  # a query that sees no key is NaN here and zeros, or a mean, there
        difference = (expected - actual).abs()[seen]
        limit = TOLERANCE.get(value.dtype, 1e-3) * actual[seen].abs().amax().clamp(min=1) if seen.any() else 0
    if not bool((difference <= limit).all()):
        raise ConfigError(
            f"the output of {path} ({type(module).__name__}) does not follow from softmax(query . key): it differs by "
            f"{difference.max().item():.2g}. This kind of attention cannot be traced."
        )


def _recording_interface(interface: AttentionInterface, implementation: str, default: Attend) -> Attend:
    """`AttentionInterface.get_interface`, with a function that also records."""
    attend = _get_interface(interface, implementation, default)

    @wraps(attend)
    def record(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
    ) -> tuple[Tensor, Any]:
        output, *rest = attend(module, query, key, value, attention_mask, **options)
        heads = output.transpose(1, 2)  # what is recorded stays part of the graph
        given = {**options, "implementation": implementation or "eager"}
        for recording in tuple(_recordings):
            if module in recording.paths:
                recording.record(module, (query, key, value, heads), attention_mask, given)
        return heads.transpose(1, 2), *rest  # pyright: ignore[reportReturnType]

    return record
