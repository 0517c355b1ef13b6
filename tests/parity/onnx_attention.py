"""ONNX's Attention operator said in softlook's words."""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

import softlook
from softlook import masks
from softlook.base.errors import BackendError

STAGES = ("raw", "capped", "biased", "weights")
"""`qk_matmul_output_mode` 0 to 3."""
Path = Literal["auto", "reference", "blocks", "sdpa"]


class Attention:
    """One node: its inputs brought into softlook's form, and its outputs by the operator's names.

    `softmax_precision` is not passed on: softlook works in single precision, or in double where the inputs are double.
    One vector asks for double with single inputs; it is met within its tolerance all the same.
    """

    def __init__(self, inputs: Mapping[str, Tensor], attributes: Mapping[str, Any]) -> None:
        self.packed = inputs["Q"].ndim == 3
        self.mode = attributes.get("qk_matmul_output_mode", 0)
        self.query = _heads(inputs["Q"], attributes.get("q_num_heads"))
        self.key = _after(inputs.get("past_key"), _heads(inputs["K"], attributes.get("kv_num_heads")))
        self.value = _after(inputs.get("past_value"), _heads(inputs["V"], attributes.get("kv_num_heads")))
        self.options: dict[str, Any] = {
            "scale": attributes.get("scale"),
            "softcap": attributes.get("softcap") or None,  # 0 is ONNX's word for none
            **_mask_and_bias(inputs, attributes, self.query.shape[2], self.key.shape[2]),
        }

    def output(self, backend: Path) -> Tensor:
        """Y, through one of softlook's paths."""
        output = softlook.attention(self.query, self.key, self.value, **self.options, backend=backend)
        return output.transpose(1, 2).flatten(2) if self.packed else output

    def refuses(self, backend: Path) -> bool:
        """Does softlook say that this path cannot answer?"""
        try:
            softlook.explain(self.query, self.key, self.value, **self.options, backend=backend)
        except BackendError:
            return True
        return False

    def others(self) -> dict[str, Tensor]:
        """Every output but Y."""
        scores = softlook.attention_scores(self.query, self.key, stage=STAGES[self.mode], **self.options)
        return {"present_key": self.key, "present_value": self.value, "qk_matmul_output": scores}


def _heads(tensor: Tensor, heads: int | None) -> Tensor:
    """(B, T, H*D) -> (B, H, T, D)"""
    return tensor.unflatten(-1, (heads, -1)).transpose(1, 2) if heads is not None else tensor


def _after(past: Tensor | None, present: Tensor) -> Tensor:
    return present if past is None else torch.cat([past, present], 2)


def _mask_and_bias(inputs: Mapping[str, Tensor], attributes: Mapping[str, Any], T: int, S: int) -> dict[str, Any]:
    lengths, written = inputs.get("nonpad_kv_seqlen"), inputs.get("attn_mask")
    left, right = (_limit(attributes.get(f"{side}_window_size", -1)) for side in ("left", "right"))
    parts: list[masks.Mask] = []
    if attributes.get("is_causal"):
        right = 0
    if (left, right) != (None, None):
        parts.append(_band(left, right, _first_position(inputs, T), T, S))
    if lengths is not None:
        parts.append(masks.padding(lengths))
    bias = None
    if written is not None and written.dtype == torch.bool:
        parts.append(masks.dense(_stretched(written, S, False)))
    elif written is not None:
        bias = _stretched(written, S, -torch.inf)
    mask = None
    for part in parts:
        mask = part if mask is None else mask & part
    return {"mask": mask, "bias": bias}


def _limit(size: int) -> int | None:
    return None if size == -1 else size


def _first_position(inputs: Mapping[str, Tensor], T: int) -> Tensor:
    """Where the first query stands among the keys: after the past, or so that the last is at the last real key."""
    if "past_key" in inputs:
        return torch.tensor([inputs["past_key"].shape[2]])
    return inputs["nonpad_kv_seqlen"] - T if "nonpad_kv_seqlen" in inputs else torch.tensor([0])


def _band(left: int | None, right: int | None, first: Tensor, T: int, S: int) -> masks.Mask:
    """A window around each query, which softlook has by name where the last query stands at the last key."""
    if bool((first == S - T).all()):
        return masks.window(left, right)
    behind = (first[:, None, None] + torch.arange(T)[:, None] - torch.arange(S))[:, None]
    seen = torch.ones_like(behind, dtype=torch.bool)
    if left is not None:
        seen &= behind <= left
    if right is not None:
        seen &= behind >= -right
    return masks.dense(seen)


def _stretched(written: Tensor, S: int, filling: float) -> Tensor:
    """Four axes, those in front written as 1; keys that the tensor does not reach are hidden."""
    short = S - written.shape[-1]
    written = written[(None,) * (4 - written.ndim)]
    return torch.nn.functional.pad(written, (0, short), value=filling)
