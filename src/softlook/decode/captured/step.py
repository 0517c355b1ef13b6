"""One more word for every row: the same few operations on the same places, whatever was said so far."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from softlook.decode.captured.parts import Kept, Past, Plain
from softlook.decode.captured.plan import Layer, Norm, Plan, Sum


@dataclass
class State:
    """All that a step reads and writes."""

    ids: Tensor
    """(M,): the words that are read now."""
    past: Past
    kept: list[Kept]
    """Of each layer."""
    lengths: Tensor | None
    """(N,): words of each source."""
    step: Tensor
    """(1,): in which line the next word is written down."""
    graphs: dict[Any, Any] = field(default_factory=dict)
    """What was recorded on these places, by how words are chosen."""

    @property
    def columns(self) -> int:
        """Words of a row that there is room for."""
        return self.kept[0].key.shape[2]

    def grown(self, plan: Plan, columns: int) -> "State":
        """The same with more room."""
        kept = [Kept(wider(one.key, columns), wider(one.value, columns), one.other) for one in self.kept]
        paths = self.past.paths
        if paths is not None:
            paths = torch.nn.functional.pad(paths, (0, columns - paths.shape[1]))
        past = Past(self.past.at, self.past.first, paths, plan.turns(columns), plan.places(columns))
        return State(self.ids, past, kept, self.lengths, self.step)

    def select(self, rows: Tensor, sources: Tensor | None) -> None:
        """Go on with these rows, which share these sources. No key is moved: rows know who wrote their past."""
        past, count = self.past, len(self.ids)
        if past.paths is None:
            owners = torch.arange(count, dtype=torch.int32, device=rows.device)
            past.paths = owners[:, None].expand(-1, self.columns)
        past.paths = past.paths.index_select(0, rows).contiguous()
        past.first, self.ids = past.first.index_select(0, rows), self.ids.index_select(0, rows)
        if len(rows) > len(self.kept[0].key):
            self.kept = [Kept(taller(one.key, len(rows)), taller(one.value, len(rows)), one.other) for one in self.kept]
        if sources is not None and self.lengths is not None:
            self.lengths = self.lengths.index_select(0, sources)
            for one in self.kept:
                assert one.other is not None
                one.other = one.other[0].index_select(0, sources), one.other[1].index_select(0, sources)


def scores(plan: Plan, parts: Plain, state: State) -> Tensor:
    """What may come after the words that are read now, (M, V). They are kept, and the next column is theirs."""
    past = state.past
    if past.paths is not None:
        own = torch.arange(len(state.ids), dtype=past.paths.dtype, device=past.paths.device)
        past.paths.index_copy_(1, past.at, own[:, None])
    x = parts.enter(plan, state.ids, past)
    x = x if plan.first_norm is None else parts.norm(x, plan.first_norm)
    for layer, kept in zip(plan.layers, state.kept, strict=True):
        x = _layer(x, layer, kept, parts, state)
    return parts.sum(x, plan.head, norm=plan.last_norm)


def _layer(x: Tensor, layer: Layer, kept: Kept, parts: Plain, state: State) -> Tensor:
    heads = parts.sum(x, layer.attend.into, norm=_before(layer, layer.attend_norm))
    looked = parts.look_back(heads, layer.attend, kept, state.past)
    x = _added(layer, layer.attend_norm, parts, looked, layer.attend.out, x)
    if layer.cross is not None and layer.cross_norm is not None and state.lengths is not None:
        query = parts.sum(x, layer.cross.into, norm=_before(layer, layer.cross_norm))
        looked = parts.look_across(query, layer.cross, kept, state.lengths)
        x = _added(layer, layer.cross_norm, parts, looked, layer.cross.out, x)
    feed = layer.feed
    hidden = parts.sum(x, feed.into, norm=_before(layer, layer.feed_norm), bend=feed.bend, gated=feed.gated)
    return _added(layer, layer.feed_norm, parts, hidden, feed.out, x)


def _before(layer: Layer, norm: Norm) -> Norm | None:
    return norm if layer.before else None


def _added(layer: Layer, norm: Norm, parts: Plain, made: Tensor, out: Sum, x: Tensor) -> Tensor:
    """x and what a layer made of it, normed where norms stand behind."""
    return parts.sum(made, out, residual=x) if layer.before else parts.sum_norm(made, out, norm, x)


def wider(kept: Tensor, columns: int) -> Tensor:
    """The same with room for so many columns."""
    made = kept.new_zeros(*kept.shape[:2], columns, kept.shape[3])
    made[:, :, : kept.shape[2]] = kept
    return made


def taller(kept: Tensor, rows: int) -> Tensor:
    """The same with room for so many rows."""
    made = kept.new_zeros(rows, *kept.shape[1:])
    made[: len(kept)] = kept
    return made
