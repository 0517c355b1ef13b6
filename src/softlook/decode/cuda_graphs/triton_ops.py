"""The operations of one decoding step by fused Triton kernels, where those are faster."""
# pyright: reportIndexIssue=false

from typing import Any

import torch
from torch import Tensor

from softlook.decode.cuda_graphs import kernels, selection_kernels
from softlook.decode.cuda_graphs.kernels import triton
from softlook.decode.cuda_graphs.torch_ops import BeamState, PositionState, SearchLimits, StaticKV, TorchOps
from softlook.decode.cuda_graphs.weights import (
    AttentionWeights,
    DecoderWeights,
    LinearWeights,
    NormWeights,
)

MAX_GEMV_ROWS = 2
"""Up to this many rows, each row is multiplied on its own; above, by tensor cores."""
PDL = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 9
LAUNCH: dict[str, Any] = {"PDL": True, "launch_pdl": True} if PDL else {"PDL": False}
"""Programmatic dependent launch, from Hopper on."""
MAX_FUSED_ROWS = 128
"""Above this many rows PyTorch's matrix products are faster."""
MAX_SHARED_QUERIES = 32
"""Up to this many queries of the same source attend to it together."""
MAX_CANDIDATES = 32
"""Up to this many candidates per sequence one kernel updates the beams."""
BLOCK, PART_BLOCKS = 128, 32
"""Tokens per block, and blocks per part, of the vocabulary."""


class TritonOps(TorchOps):
    """Each operation by one fused kernel, or by PyTorch."""

    def embed(self, weights: DecoderWeights, ids: Tensor, positions: PositionState) -> Tensor:
        tokens = weights.token_embedding
        C = tokens.shape[1]
        out = tokens.new_empty(len(ids), C)
        embedding = tokens if positions.embedding is None else positions.embedding
        kernels.embed[(len(ids),)](
            ids, tokens, embedding, out, positions.first, positions.column, weights.embedding_scale,
            C=C, PADDED=_next_power(C), POSITIONS=positions.embedding is not None,
            SCALED=weights.embedding_scale != 1.0, **LAUNCH,
        )  # fmt: skip
        return out

    def norm(self, x: Tensor, norm: NormWeights) -> Tensor:
        if len(x) > MAX_FUSED_ROWS or x.shape[1] > 8192:
            return super().norm(x, norm)
        return _norm_rows(x, norm)

    def linear(
        self, x: Tensor, weights: LinearWeights, *, norm: NormWeights | None = None, residual: Tensor | None = None
    ) -> Tensor:
        is_gemv = len(x) <= MAX_GEMV_ROWS and x.shape[1] <= 8192
        if not is_gemv and norm is not None:
            x, norm = self.norm(x, norm), None
        if not is_gemv and (len(x) > MAX_FUSED_ROWS or x.dtype == torch.float32 or x.shape[1] % 16):
            return super().linear(x, weights, residual=residual)
        (M, K), weight = x.shape, weights.weight
        N = len(weight) // (2 if weights.gated else 1)
        out, bias, added = x.new_empty(M, N), _or(weights.bias, weight), _or(residual, weight)
        has = {"BIAS": weights.bias is not None, "RESIDUAL": residual is not None}
        options = {"ACTIVATION": weights.activation, "GATED": weights.gated, **has}
        if is_gemv:
            padded = _next_power(K)
            columns = max(1, min(8 if N > 8192 else 2, 8192 // padded))
            kernels.fused_gemv[(triton.cdiv(N, columns),)](
                x, weight, bias, added, weight if norm is None else norm.weight,
                weight if norm is None else _or(norm.bias, weight), out, M, N, 0.0 if norm is None else norm.eps,
                K=K, PADDED=padded, COLUMNS=columns, NORM="none" if norm is None else _norm_type(norm),
                SHIFT=norm is not None and norm.bias is not None, num_warps=4 if padded <= 4096 else 8,
                **options, **LAUNCH,
            )  # fmt: skip
        else:
            rows, columns, depth, warps, stages = tile_sizes(M, N, K)
            kernels.fused_gemm[(triton.cdiv(N, columns), triton.cdiv(M, rows))](
                x, weight, bias, added, out, M, N, K=K, ROWS=rows, COLUMNS=columns, DEPTH=depth,
                num_warps=warps, num_stages=stages, **options, **LAUNCH,
            )  # fmt: skip
        return out

    def linear_norm(self, x: Tensor, weights: LinearWeights, norm: NormWeights, residual: Tensor) -> Tensor:
        if len(x) <= MAX_FUSED_ROWS or residual.shape[1] > 8192:
            return super().linear_norm(x, weights, norm, residual)
        return _norm_rows(super().linear(x, weights), norm, residual)

    def self_attention(self, qkv: Tensor, attn: AttentionWeights, kv: StaticKV, positions: PositionState) -> Tensor:
        return _decode_attention(qkv, attn, (kv.key, kv.value), positions.column, positions)

    def cross_attention(self, query: Tensor, attn: AttentionWeights, kv: StaticKV, lengths: Tensor) -> Tensor:
        assert kv.cross is not None
        num_beams = len(query) // len(lengths)
        if num_beams * (attn.heads // attn.kv_heads) in range(2, MAX_SHARED_QUERIES + 1):
            return _decode_cross_attention(query, attn, kv.cross, lengths, num_beams)
        return _decode_attention(query, attn, kv.cross, lengths, None)

    def greedy(self, logits: Tensor, ids: Tensor, history: Tensor, logprobs: Tensor, step: Tensor) -> None:
        VocabScan(logits).greedy(ids, history, logprobs, step)

    def top_tokens(self, logits: Tensor, width: int) -> tuple[Tensor, Tensor]:
        return VocabScan(logits).top_tokens(width)

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
        if (1 + len(limits.eos_ids)) * beams.scores.shape[1] > MAX_CANDIDATES:
            super().advance_beams(top, scores, beams, limits, ids=ids, owners=owners, length=length)
            return
        (logprobs, tokens), (N, K), (_, L, _) = top, beams.scores.shape, beams.tokens.shape
        K_in, W, columns = scores.shape[1], tokens.shape[1], 0 if owners is None else owners.shape[1]
        num_eos = len(limits.eos_ids)
        selection_kernels.advance_beams[(N,)](
            logprobs, tokens, scores, beams.scores, beams.parents, beams.tokens, beams.logprobs,
            beams.finished, beams.finished_length, beams.finished_beam, beams.finished_token, beams.finished_logprob,
            beams.done.view(torch.int8), ids, _or(owners, ids), limits.divisors, limits.final_divisors, limits.eos_ids,
            limits.limits, length, L, columns,
            K_IN=K_in, K=K, W=W, WIDTH=min((1 + num_eos) * K, K_in * W), NUM_EOS=num_eos,
            LANES=_next_power(K_in * W), SLOTS=_next_power(2 * K), BEAMS=_next_power(K), BLOCK=64,
            REORDER=owners is not None, num_warps=1, **LAUNCH,
        )  # fmt: skip

    def backtrace(self, beams: BeamState, rows: Tensor, max_length: int) -> tuple[Tensor, Tensor]:
        (_, L, K), R = beams.tokens.shape, len(rows)
        tokens = beams.tokens.new_zeros(R, K, max_length, dtype=torch.int32)
        logprobs = beams.logprobs.new_zeros(R, K, max_length)
        selection_kernels.backtrace[(R * K,)](
            rows, beams.parents, beams.tokens, beams.logprobs, beams.finished_length, beams.finished_beam,
            beams.finished_token, beams.finished_logprob, tokens, logprobs, L, max_length, K=K, num_warps=1,
        )  # fmt: skip
        return tokens, logprobs


def _norm_rows(x: Tensor, norm: NormWeights, residual: Tensor | None = None) -> Tensor:
    (M, K), out = x.shape, torch.empty_like(x)
    kernels.norm_rows[(M,)](
        x, _or(residual, x), norm.weight, _or(norm.bias, norm.weight), out, norm.eps,
        K=K, PADDED=_next_power(K), NORM=_norm_type(norm), SHIFT=norm.bias is not None, RESIDUAL=residual is not None,
        **LAUNCH,
    )  # fmt: skip
    return out


def tile_sizes(M: int, N: int, K: int) -> tuple[int, int, int, int, int]:
    """Rows, columns and depth of a tile, warps and stages: enough programs to occupy the whole chip."""
    rows = 16 if M <= 16 else 32 if M <= 32 else 64
    if N > 8192:
        return rows, 64, 64, 4, 5
    return rows, 32 if N > 1024 else 16, 64 if K % 128 else 128, 4, 4


def _decode_attention(
    qkv: Tensor, attn: AttentionWeights, kv: tuple[Tensor, Tensor], last: Tensor, positions: PositionState | None
) -> Tensor:
    (M, key), owners = (len(qkv), kv[0]), None if positions is None else positions.owners
    out = qkv.new_empty(M, attn.heads * attn.head_dim)
    cos_sin = None if positions is None else positions.rotary
    block, warps = _attention_blocks(M * attn.kv_heads, key.shape[2])
    kernels.decode_attention[(M, attn.kv_heads)](
        qkv, key, kv[1], out, _or(owners, last), last if positions is None else positions.first, last,
        *((qkv, qkv) if cos_sin is None else cos_sin),
        attn.scale, qkv.stride(0), key.stride(0), key.stride(1), 0 if owners is None else owners.stride(0),
        HEADS=attn.heads, KV=attn.kv_heads, D=attn.head_dim, PADDED_D=_next_power(attn.head_dim), BLOCK=block,
        BEAMS=1 if positions is not None else M // len(key),
        SELF=positions is not None, OWNERS=owners is not None, ROTARY=cos_sin is not None,
        num_warps=warps, **LAUNCH,
    )  # fmt: skip
    return out


def _decode_cross_attention(
    query: Tensor, attn: AttentionWeights, kv: tuple[Tensor, Tensor], lengths: Tensor, num_beams: int
) -> Tensor:
    key, value = kv
    out, rows = torch.empty_like(query), num_beams * (attn.heads // attn.kv_heads)
    kernels.decode_cross_attention[(len(lengths), attn.kv_heads)](
        query, key, value, out, lengths, attn.scale, key.stride(0), key.stride(1),
        HEADS=attn.heads, KV=attn.kv_heads, D=attn.head_dim, PADDED_D=max(16, _next_power(attn.head_dim)),
        BLOCK=32 if key.shape[2] <= 32 else 64, BEAMS=num_beams, ROWS=max(16, _next_power(rows)),
        num_warps=2, **LAUNCH,
    )  # fmt: skip
    return out


def _attention_blocks(programs: int, columns: int) -> tuple[int, int]:
    """Columns per block, and warps: many where few programs have the chip to themselves."""
    if programs >= 4096:
        return 32, 1
    return (64, 2) if programs >= 256 or columns <= 64 else (256, 8)


class VocabScan:
    """Block maxima and softmax denominators of the logits, computed in one pass."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits = logits.contiguous()
        self.rows, self.vocab_size = logits.shape
        self.blocks = triton.cdiv(self.vocab_size, BLOCK)
        self.parts = triton.cdiv(self.vocab_size, BLOCK * PART_BLOCKS)
        self.block_max = logits.new_empty(self.rows, self.blocks, dtype=torch.float32)
        self.part = logits.new_empty(self.rows, self.parts, 2, dtype=torch.float32)
        selection_kernels.scan_vocab[(self.rows, self.parts)](
            logits, self.block_max, self.part, self.vocab_size, self.blocks, self.parts,
            BLOCK=BLOCK, PART_BLOCKS=PART_BLOCKS, num_warps=4, **LAUNCH,
        )  # fmt: skip

    def greedy(self, ids: Tensor, history: Tensor, logprobs: Tensor, step: Tensor) -> None:
        """As `TorchOps.greedy`."""
        selection_kernels.greedy[(self.rows,)](
            self.logits, self.block_max, self.part, ids, history, logprobs, step,
            self.vocab_size, self.blocks, self.parts, self.rows,
            BLOCK=BLOCK, PADDED_BLOCKS=_next_power(self.blocks), PADDED_PARTS=_next_power(self.parts),
            num_warps=4, **LAUNCH,
        )  # fmt: skip

    def top_tokens(self, width: int) -> tuple[Tensor, Tensor]:
        """As `TorchOps.top_tokens`."""
        width, padded_blocks = min(width, self.vocab_size), _next_power(self.blocks)
        logprobs = self.block_max.new_empty(self.rows, width)
        tokens = self.block_max.new_empty(self.rows, width, dtype=torch.long)
        selection_kernels.top_tokens[(self.rows,)](
            self.logits, self.block_max, self.part, logprobs, tokens, self.vocab_size, self.blocks, self.parts,
            WIDTH=width, BLOCK=BLOCK, PADDED_BLOCKS=padded_blocks, PADDED_PARTS=_next_power(self.parts),
            num_warps=1 if padded_blocks <= 512 else 4, **LAUNCH,
        )  # fmt: skip
        return logprobs, tokens


def _norm_type(norm: NormWeights) -> str:
    return "rms" if norm.is_rms else "layer"


def _or(tensor: Tensor | None, other: Tensor) -> Tensor:
    return other if tensor is None else tensor


def _next_power(number: int) -> int:
    """The next power of two."""
    return triton.next_power_of_2(number)
