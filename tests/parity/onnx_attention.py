"""ONNX's Attention operator in terms of softlook's attention."""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

import softlook
from softlook import masks
from softlook.base.errors import BackendError
from softlook.ops.backends.reference import Stage

STAGES: tuple[Stage, ...] = ("scaled", "softcapped", "masked", "weights")
"""`qk_matmul_output_mode` 0 to 3."""
EagerBackend = Literal["auto", "reference", "tiled", "sdpa"]


class Attention:
    """One node: its inputs converted for softlook, and its outputs by the operator's names.

    `softmax_precision` is ignored: softlook computes in float32, or in float64 for float64 inputs. One vector requests
    float64 with float32 inputs; it matches within its tolerance nevertheless.
    """

    def __init__(self, inputs: Mapping[str, Tensor], attributes: Mapping[str, Any]) -> None:
        self.packed = inputs["Q"].ndim == 3
        self.mode = attributes.get("qk_matmul_output_mode", 0)
        self.query = _heads(inputs["Q"], attributes.get("q_num_heads"))
        self.key = _append(inputs.get("past_key"), _heads(inputs["K"], attributes.get("kv_num_heads")))
        self.value = _append(inputs.get("past_value"), _heads(inputs["V"], attributes.get("kv_num_heads")))
        self.options: dict[str, Any] = {
            "scale": attributes.get("scale"),
            "softcap": attributes.get("softcap") or None,  # 0 means none in ONNX
            **_mask_and_bias(inputs, attributes, self.query.shape[2], self.key.shape[2]),
        }

    def output(self, backend: EagerBackend) -> Tensor:
        """Y, computed by one of softlook's backends."""
        output = softlook.attention(self.query, self.key, self.value, **self.options, backend=backend)
        return output.transpose(1, 2).flatten(2) if self.packed else output

    def supports(self, backend: EagerBackend) -> bool:
        """Whether a backend supports this node."""
        try:
            softlook.explain(self.query, self.key, self.value, **self.options, backend=backend)
        except BackendError:
            return False
        return True

    def other_outputs(self) -> dict[str, Tensor]:
        """All outputs except Y."""
        scores = softlook.attention_scores(self.query, self.key, stage=STAGES[self.mode], **self.options)
        return {"present_key": self.key, "present_value": self.value, "qk_matmul_output": scores}


def _heads(tensor: Tensor, heads: int | None) -> Tensor:
    """(B, T, H*D) -> (B, H, T, D)"""
    return tensor.unflatten(-1, (heads, -1)).transpose(1, 2) if heads is not None else tensor


def _append(past: Tensor | None, present: Tensor) -> Tensor:
    return present if past is None else torch.cat([past, present], 2)


def _mask_and_bias(inputs: Mapping[str, Tensor], attributes: Mapping[str, Any], T: int, S: int) -> dict[str, Any]:
    lengths, attn_mask = inputs.get("nonpad_kv_seqlen"), inputs.get("attn_mask")
    left, right = (_limit(attributes.get(f"{side}_window_size", -1)) for side in ("left", "right"))
    parts: list[masks.Mask] = []
    if attributes.get("is_causal"):
        right = 0
    if (left, right) != (None, None):
        parts.append(_window(left, right, _first_position(inputs, T), T, S))
    if lengths is not None:
        parts.append(masks.padding(lengths))
    bias = None
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        parts.append(masks.dense(_pad(attn_mask, S, False)))
    elif attn_mask is not None:
        bias = _pad(attn_mask, S, -torch.inf)
    mask = None
    for part in parts:
        mask = part if mask is None else mask & part
    return {"mask": mask, "bias": bias}


def _limit(size: int) -> int | None:
    return None if size == -1 else size


def _first_position(inputs: Mapping[str, Tensor], T: int) -> Tensor:
    """Position of the first query among the keys: after the past, or so that the last query is at the last real key."""
    if "past_key" in inputs:
        return torch.tensor([inputs["past_key"].shape[2]])
    return inputs["nonpad_kv_seqlen"] - T if "nonpad_kv_seqlen" in inputs else torch.tensor([0])


def _window(left: int | None, right: int | None, first: Tensor, T: int, S: int) -> masks.Mask:
    """A window around each query; softlook's `window` if the last query is aligned with the last key, else dense."""
    if bool((first == S - T).all()):
        return masks.window(left, right)
    behind = (first[:, None, None] + torch.arange(T)[:, None] - torch.arange(S))[:, None]
    visible = torch.ones_like(behind, dtype=torch.bool)
    if left is not None:
        visible &= behind <= left
    if right is not None:
        visible &= behind >= -right
    return masks.dense(visible)


def _pad(mask: Tensor, S: int, value: float) -> Tensor:
    """A mask or bias with four dimensions, padded to S keys."""
    missing = S - mask.shape[-1]
    mask = mask[(None,) * (4 - mask.ndim)]
    return torch.nn.functional.pad(mask, (0, missing), value=value)
