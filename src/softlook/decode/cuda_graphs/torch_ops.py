"""The operations of one decoding step in plain PyTorch, and the static buffers they read and write.

They are the reference of the Triton kernels.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from softlook.blocks.feed_forward import gelu_tanh
from softlook.decode.beam.hypotheses import (
    BeamSearchParams,
    CandidateBatch,
    TopTokens,
    select_beams,
    top_candidates,
    top_tokens,
)
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

    def padded_to(self, rows: int, columns: int) -> "StaticKV":
        """A copy with more rows or columns."""
        padding = (0, 0, 0, columns - self.key.shape[2], 0, 0, 0, rows - len(self.key))
        return StaticKV(F.pad(self.key, padding), F.pad(self.value, padding), self.cross)


@dataclass
class SearchLimits:
    """Parameters of a search in device buffers; each search overwrites those of the last."""

    divisors: Tensor
    """(L + 1,): divisor of the score of a finished hypothesis, by length."""
    final_divisors: Tensor
    """(L + 1,): divisor of the best running beam, by length."""
    eos_ids: Tensor
    """(E,)"""
    limits: Tensor
    """(2,): minimum and maximum number of new tokens."""

    @staticmethod
    def allocate(max_length: int, num_eos: int, device: torch.device) -> "SearchLimits":
        divisors = torch.ones(max_length + 1, dtype=torch.float64, device=device)
        integers = torch.zeros(num_eos + 2, dtype=torch.long, device=device)
        return SearchLimits(divisors, divisors.clone(), integers[2:], integers[:2])

    def write(self, params: BeamSearchParams) -> None:
        tables = ((self.divisors, [1.0, *params.divisors()]), (self.final_divisors, params.final_divisors()))
        for buffer, values in tables:
            buffer[: len(values)] = torch.tensor(values, dtype=torch.float64)
        self.eos_ids.copy_(torch.tensor(params.eos_ids))
        self.limits.copy_(torch.tensor([params.min_new_tokens, params.max_new_tokens]))


@dataclass
class BeamState:
    """N sequences with K beams each. The history, (N, L, K), is written once and never moved by a step."""

    scores: Tensor
    """(N, K): score of each beam."""
    parents: Tensor
    """(N, L, K): the beam that each beam continues, at each length."""
    tokens: Tensor
    """(N, L, K): its last token."""
    logprobs: Tensor
    """(N, L, K): the log-probability of that token."""
    finished: Tensor
    """(N, K): scores of the finished hypotheses, best first; -inf if there are fewer."""
    finished_length: Tensor
    """(N, K): length with the end-of-sequence token."""
    finished_beam: Tensor
    """(N, K): the beam it continues."""
    finished_token: Tensor
    """(N, K): its last token."""
    finished_logprob: Tensor
    """(N, K): the log-probability of that token."""
    done: Tensor
    """(N,): no better hypothesis is possible."""

    @staticmethod
    def allocate(sequences: int, num_beams: int, max_length: int, device: torch.device) -> "BeamState":
        integers: dict[str, Any] = {"dtype": torch.long, "device": device}
        beams, history = (sequences, num_beams), (sequences, max_length, num_beams)
        return BeamState(
            scores=torch.zeros(beams, device=device),
            parents=torch.zeros(history, **integers),
            tokens=torch.zeros(history, **integers),
            logprobs=torch.zeros(history, device=device),
            finished=torch.zeros(beams, dtype=torch.float64, device=device),
            finished_length=torch.zeros(beams, **integers),
            finished_beam=torch.zeros(beams, **integers),
            finished_token=torch.zeros(beams, **integers),
            finished_logprob=torch.zeros(beams, device=device),
            done=torch.zeros(sequences, dtype=torch.bool, device=device),
        )

    def first(self, sequences: int) -> "BeamState":
        """Views of the first sequences."""
        return BeamState(*(getattr(self, one.name)[:sequences] for one in fields(self)))

    def reset(self, sequences: int) -> None:
        """Start a search of the first `sequences` rows; the others are marked as done."""
        self.scores.zero_()
        self.finished.fill_(-torch.inf)
        self.finished_length.zero_()
        self.done.zero_()
        self.done[sequences:] = True

    def move_to_front(self, rows: Tensor) -> None:
        """Copy these rows to the front, in this order."""
        for one in fields(self):
            buffer: Tensor = getattr(self, one.name)
            buffer[: len(rows)] = buffer.index_select(0, rows)


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
        self, x: Tensor, weights: LinearWeights, *, norm: NormWeights | None = None, residual: Tensor | None = None
    ) -> Tensor:
        """residual + activation(W norm(x) + b); if gated, activation(first half) * second half."""
        x = F.linear(x if norm is None else self.norm(x, norm), weights.weight, weights.bias)
        activation = ACTIVATIONS[weights.activation]
        if weights.gated:
            gate, x = x.chunk(2, -1)
            x = activation(gate) * x
        else:
            x = activation(x)
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
        parents = _select_beams(top, scores, beams, limits, length)
        if owners is not None:
            N, K = parents.shape
            rows = parents + torch.arange(N, device=parents.device)[:, None] * K
            owners.copy_(owners.index_select(0, rows.flatten()))
        ids.copy_(beams.tokens.index_select(1, length - 1).flatten())

    def backtrace(self, beams: BeamState, rows: Tensor, max_length: int) -> tuple[Tensor, Tensor]:
        """Tokens and logprobs of the finished hypotheses of these rows, (R, K, L), from the last token to the first."""
        last = (beams.finished_length, beams.finished_beam, beams.finished_token, beams.finished_logprob)
        lengths, beam, last_token, last_logprob = (part.index_select(0, rows) for part in last)
        history = (beams.parents, beams.tokens, beams.logprobs)
        parents, tokens, logprobs = (part.index_select(0, rows) for part in history)
        out_tokens = tokens.new_zeros(*beam.shape, max_length)
        out_logprobs = logprobs.new_zeros(*beam.shape, max_length)
        end = (lengths - 1).clamp(min=0)[..., None]
        out_tokens.scatter_(2, end, last_token[..., None])
        out_logprobs.scatter_(2, end, last_logprob[..., None])
        for step in reversed(range(max_length - 1)):
            is_before = step < lengths - 1
            for out, values in ((out_tokens, tokens), (out_logprobs, logprobs)):
                out[:, :, step] = torch.where(is_before, values[:, step].gather(1, beam), out[:, :, step])
            beam = torch.where(is_before, parents[:, step].gather(1, beam), beam)
        return out_tokens.int(), out_logprobs


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


def _select_beams(
    top: tuple[Tensor, Tensor], scores: Tensor, beams: BeamState, limits: SearchLimits, length: Tensor
) -> Tensor:
    """One step from the top tokens (logprobs, ids) and the scores of the beams; the parents of the new beams, (N, K).

    Candidates that are finished with this token, the `length`-th, are added to the finished hypotheses.
    """
    (logprobs, tokens), K, E = top, beams.scores.shape[1], len(limits.eos_ids)
    is_out = (torch.isin(tokens, limits.eos_ids) & (length <= limits.limits[0])) | (scores.view(-1, 1) == -torch.inf)
    masked = TopTokens(tokens, logprobs.masked_fill(is_out, -torch.inf), logprobs)
    candidates = top_candidates(masked, scores, (1 + E) * K)
    is_eos = torch.isin(candidates.tokens, limits.eos_ids)
    selection = select_beams(candidates, is_eos, K, is_last=True)
    is_finished = selection.finished & (is_eos | (length == limits.limits[1])) & ~beams.done[:, None]
    _keep_best(candidates, is_finished, beams, limits, length)
    kept = (candidates.beams, candidates.tokens, candidates.logprobs)
    parents, new_tokens, new_logprobs = (part.gather(1, selection.kept) for part in kept)
    for history, new in ((beams.parents, parents), (beams.tokens, new_tokens), (beams.logprobs, new_logprobs)):
        history.index_copy_(1, length - 1, new[:, None])
    new_scores = selection.scores.masked_fill(beams.done[:, None], -torch.inf)  # sequences that are done cannot fail
    beams.scores.copy_(new_scores)
    best = new_scores.amax(1).double()
    beams.done |= (best == -torch.inf) | (best / limits.final_divisors[length] <= beams.finished[:, -1])
    return parents


def _keep_best(
    candidates: CandidateBatch, is_finished: Tensor, beams: BeamState, limits: SearchLimits, length: Tensor
) -> None:
    """Merge finished candidates into the best finished hypotheses."""
    new = (candidates.scores.double() / limits.divisors[length]).masked_fill(~is_finished, -torch.inf)
    best, indices = torch.cat([beams.finished, new], 1).topk(beams.finished.shape[1])
    pairs = (
        (beams.finished_length, length.expand_as(candidates.tokens)), (beams.finished_beam, candidates.beams),
        (beams.finished_token, candidates.tokens), (beams.finished_logprob, candidates.logprobs),
    )  # fmt: skip
    for old, added in pairs:
        old.copy_(torch.cat([old, added], 1).gather(1, indices))
    beams.finished.copy_(best)
