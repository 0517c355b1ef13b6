"""The parts of one more word, as plain operations of torch: they run anywhere, and say what the kernels have to do."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from softlook.blocks.feed_forward import gelu_tanh
from softlook.decode.captured.plan import Bend, Looking, Norm, Plan, Sum
from softlook.decode.captured.ways import Aims, Ways, advance, backwards
from softlook.decode.outlook import best_words
from softlook.ops.positions.rotary import Phases, rotary

BENT: dict[Bend, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "silu": F.silu,
}


@dataclass
class Past:
    """What rows have said so far, in places made beforehand; all of it stays where it is while a graph is in use."""

    at: Tensor
    """(1,): the column of the word that is read now."""
    first: Tensor
    """(M,): the column in which each row begins."""
    paths: Tensor | None
    """(M, columns): which row wrote what stands in each column of a row; None while each wrote its own."""
    turns: tuple[Tensor, Tensor] | None
    places: Tensor | None

    @property
    def place(self) -> Tensor:
        """(M,): the position of the word that is read now."""
        return self.at - self.first


@dataclass
class Kept:
    """Keys and values of one layer: (rows, G, columns, D), and of the source (N, G, S, D)."""

    key: Tensor
    value: Tensor
    other: tuple[Tensor, Tensor] | None = None


class Plain:
    """Each part by torch's own operations."""

    def enter(self, plan: Plan, ids: Tensor, past: Past) -> Tensor:
        """(M,) ids -> (M, C)"""
        x = plan.tokens[ids]
        x = x if plan.factor == 1.0 else x * plan.factor
        return x if past.places is None else x + past.places[past.place]

    def norm(self, x: Tensor, norm: Norm) -> Tensor:
        if norm.by_square:
            return F.rms_norm(x, x.shape[-1:], norm.weight, norm.eps)
        return F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)

    def sum(
        self,
        x: Tensor,
        sum: Sum,
        *,
        norm: Norm | None = None,
        bend: Bend = "none",
        gated: bool = False,
        residual: Tensor | None = None,
    ) -> Tensor:
        """residual + bend(W norm(x) + b); where it is gated, the first half of that opens and closes the second."""
        x = F.linear(x if norm is None else self.norm(x, norm), sum.weight, sum.bias)
        if gated:
            gate, x = x.chunk(2, -1)
            x = BENT[bend](gate) * x
        else:
            x = BENT[bend](x)
        return x if residual is None else residual + x

    def sum_norm(self, x: Tensor, sum: Sum, norm: Norm, residual: Tensor) -> Tensor:
        """norm(residual + W x + b)"""
        return self.norm(self.sum(x, sum, residual=residual), norm)

    def look_back(self, heads: Tensor, look: Looking, kept: Kept, past: Past) -> Tensor:
        """(M, (H + 2 G) D), queries, keys and values of the new word -> (M, H D); key and value are kept."""
        query, key, value = heads.view(len(heads), -1, look.width).split((look.heads, look.kv_heads, look.kv_heads), 1)
        query, key, value = query.unsqueeze(2), key.unsqueeze(2), value.unsqueeze(2)
        if past.turns is not None:
            cos, sin = (part[past.place][:, None] for part in past.turns)
            query, key = rotary(query, Phases(cos, sin)), rotary(key, Phases(cos, sin))
        kept.key[: len(heads)].index_copy_(2, past.at, key)
        kept.value[: len(heads)].index_copy_(2, past.at, value)
        columns = torch.arange(kept.key.shape[2], device=heads.device)
        seen = (columns >= past.first[:, None]) & (columns <= past.at)
        keys, values = (_along(part, past.paths, len(heads)) for part in (kept.key, kept.value))
        return _looked(query, keys, values, seen[:, None, None], look)

    def look_across(self, query: Tensor, look: Looking, kept: Kept, lengths: Tensor) -> Tensor:
        """(M, H D) -> (M, H D); rows that stand side by side share a source."""
        assert kept.other is not None
        key, value = kept.other
        folded = query.view(len(key), -1, look.heads, look.width).transpose(1, 2)
        seen = torch.arange(key.shape[2], device=query.device) < lengths[:, None]
        return _looked(folded, key, value, seen[:, None, None], look)

    def say(self, scores: Tensor, ids: Tensor, said: Tensor, chances: Tensor, step: Tensor) -> None:
        """The likeliest word of each row: the next ids, and line `step` of what was said and of its log-probability."""
        found, words = scores.float().log_softmax(-1).max(-1)
        ids.copy_(words)
        said.index_copy_(0, step, words[None])
        chances.index_copy_(0, step, found[None])

    def best_words(self, scores: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """The log-probabilities of the best so many words of each row, best first, and which they are."""
        return best_words(scores.float(), width)

    def go_on(
        self,
        found: tuple[Tensor, Tensor],
        totals: Tensor,
        ways: Ways,
        aims: Aims,
        *,
        ids: Tensor,
        paths: Tensor | None,
        length: Tensor,
    ) -> None:
        """A word more of a beam search: each way goes on from another, with its past; the next ids are its words."""
        parents = advance(found, totals, ways, aims, length)
        if paths is not None:
            N, K = parents.shape
            rows = parents + torch.arange(N, device=parents.device)[:, None] * K
            paths.copy_(paths.index_select(0, rows.flatten()))
        ids.copy_(ways.words.index_select(1, length - 1).flatten())

    def backwards(self, ways: Ways, rows: Tensor, longest: int) -> tuple[Tensor, Tensor]:
        """Words of the whole sequences in these rows and their log-probabilities, (R, K, L) each."""
        return backwards(ways, rows, longest)


def _along(kept: Tensor, paths: Tensor | None, rows: int) -> Tensor:
    """What each row finds in each column."""
    if paths is None:
        return kept[:rows]
    columns = torch.arange(kept.shape[2], device=kept.device)
    return kept[paths, :, columns].transpose(1, 2)


def _looked(query: Tensor, key: Tensor, value: Tensor, seen: Tensor, look: Looking) -> Tensor:
    grouped = look.heads != look.kv_heads
    mixed = F.scaled_dot_product_attention(query, key, value, seen, scale=look.scale, enable_gqa=grouped)
    return mixed.transpose(1, 2).reshape(mixed.shape[0], mixed.shape[2], -1).flatten(0, 1)
