"""The operations of one decoding step in plain PyTorch: the reference of the Triton kernels."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from softlook.blocks.feed_forward import gelu_tanh
from softlook.decode.beam.candidates import top_tokens
from softlook.decode.cuda_graphs.beam_state import BeamState, SearchLimits, advance_beams, backtrace
from softlook.decode.cuda_graphs.weights import (
    ActivationName,
    AttentionWeights,
    DecoderWeights,
    LinearWeights,
    NormWeights,
)
from softlook.ops.positions.rotary import RotaryAngles, rotary

ACTIVATIONS: dict[ActivationName, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "silu": F.silu,
}


@dataclass
class PositionState:
    """Positions of the rows, in static buffers that a CUDA graph reads and writes."""

    column: Tensor
    """(1,): the cache column of the current token."""
    first: Tensor
    """(M,): the first column of each row, after left padding."""
    owners: Tensor | None
    """(M, columns): the row whose cache holds each column of a row; None while each row has its own."""
    rotary: tuple[Tensor, Tensor] | None
    """Rotary cos and sin by position."""
    embedding: Tensor | None
    """Position embeddings."""

    @property
    def position(self) -> Tensor:
        """(M,): the position of the current token."""
        return self.column - self.first


@dataclass
class StaticKV:
    """Keys and values of one layer: (rows, G, columns, D), and of the source (N, G, S, D)."""

    key: Tensor
    value: Tensor
    cross: tuple[Tensor, Tensor] | None = None


class TorchOps:
    """Each operation by PyTorch's own."""

    def embed(self, weights: DecoderWeights, ids: Tensor, positions: PositionState) -> Tensor:
        """(M,) ids -> (M, C)"""
        x = weights.token_embedding[ids]
        x = x if weights.embedding_scale == 1.0 else x * weights.embedding_scale
        return x if positions.embedding is None else x + positions.embedding[positions.position]

    def norm(self, x: Tensor, norm: NormWeights) -> Tensor:
        if norm.is_rms:
            return F.rms_norm(x, x.shape[-1:], norm.weight, norm.eps)
        return F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)

    def linear(
        self,
        x: Tensor,
        weights: LinearWeights,
        *,
        norm: NormWeights | None = None,
        activation: ActivationName = "none",
        gated: bool = False,
        residual: Tensor | None = None,
    ) -> Tensor:
        """residual + activation(W norm(x) + b); if gated, activation(first half) * second half."""
        x = F.linear(x if norm is None else self.norm(x, norm), weights.weight, weights.bias)
        if gated:
            gate, x = x.chunk(2, -1)
            x = ACTIVATIONS[activation](gate) * x
        else:
            x = ACTIVATIONS[activation](x)
        return x if residual is None else residual + x

    def linear_norm(self, x: Tensor, weights: LinearWeights, norm: NormWeights, residual: Tensor) -> Tensor:
        """norm(residual + W x + b)"""
        return self.norm(self.linear(x, weights, residual=residual), norm)

    def self_attention(self, qkv: Tensor, attn: AttentionWeights, kv: StaticKV, positions: PositionState) -> Tensor:
        """(M, (H + 2 G) D), queries, keys and values of the new token -> (M, H D); key and value are cached."""
        sizes = attn.heads, attn.kv_heads, attn.kv_heads
        query, key, value = qkv.view(len(qkv), -1, attn.head_dim).split(sizes, 1)
        query, key, value = query.unsqueeze(2), key.unsqueeze(2), value.unsqueeze(2)
        if positions.rotary is not None:
            cos, sin = (table[positions.position][:, None] for table in positions.rotary)
            query, key = rotary(query, RotaryAngles(cos, sin)), rotary(key, RotaryAngles(cos, sin))
        kv.key[: len(qkv)].index_copy_(2, positions.column, key)
        kv.value[: len(qkv)].index_copy_(2, positions.column, value)
        columns = torch.arange(kv.key.shape[2], device=qkv.device)
        visible = (columns >= positions.first[:, None]) & (columns <= positions.column)
        keys, values = (_gather_columns(part, positions.owners, len(qkv)) for part in (kv.key, kv.value))
        return _attention(query, keys, values, visible[:, None, None], attn)

    def cross_attention(self, query: Tensor, attn: AttentionWeights, kv: StaticKV, lengths: Tensor) -> Tensor:
        """(M, H D) -> (M, H D); adjacent rows share a source."""
        assert kv.cross is not None
        key, value = kv.cross
        folded = query.view(len(key), -1, attn.heads, attn.head_dim).transpose(1, 2)
        visible = torch.arange(key.shape[2], device=query.device) < lengths[:, None]
        return _attention(folded, key, value, visible[:, None, None], attn)

    def greedy(self, logits: Tensor, ids: Tensor, history: Tensor, logprobs: Tensor, step: Tensor) -> None:
        """The most likely token of each row: the next ids, and row `step` of the history and its logprobs."""
        best, tokens = logits.float().log_softmax(-1).max(-1)
        ids.copy_(tokens)
        history.index_copy_(0, step, tokens[None])
        logprobs.index_copy_(0, step, best[None])

    def top_tokens(self, logits: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Log-probabilities and ids of the `width` most likely tokens of each row, best first."""
        return top_tokens(logits.float(), width)

    def advance_beams(
        self,
        top: tuple[Tensor, Tensor],
        scores: Tensor,
        beams: BeamState,
        limits: SearchLimits,
        *,
        ids: Tensor,
        owners: Tensor | None,
        length: Tensor,
    ) -> None:
        """One step of a beam search: select the new beams, their caches and the next ids."""
        parents = advance_beams(top, scores, beams, limits, length)
        if owners is not None:
            N, K = parents.shape
            rows = parents + torch.arange(N, device=parents.device)[:, None] * K
            owners.copy_(owners.index_select(0, rows.flatten()))
        ids.copy_(beams.tokens.index_select(1, length - 1).flatten())

    def backtrace(self, beams: BeamState, rows: Tensor, max_length: int) -> tuple[Tensor, Tensor]:
        """Tokens and logprobs of the finished hypotheses of these rows, (R, K, L) each."""
        return backtrace(beams, rows, max_length)


def _gather_columns(cache: Tensor, owners: Tensor | None, rows: int) -> Tensor:
    """The cached columns of each row."""
    if owners is None:
        return cache[:rows]
    columns = torch.arange(cache.shape[2], device=cache.device)
    return cache[owners, :, columns].transpose(1, 2)


def _attention(query: Tensor, key: Tensor, value: Tensor, visible: Tensor, attn: AttentionWeights) -> Tensor:
    is_grouped = attn.heads != attn.kv_heads
    output = F.scaled_dot_product_attention(query, key, value, visible, scale=attn.scale, enable_gqa=is_grouped)
    return output.transpose(1, 2).reshape(output.shape[0], output.shape[2], -1).flatten(0, 1)
