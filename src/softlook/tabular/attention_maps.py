"""The maps of a table's model, exact and in full, as its blocks look."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from softlook.blocks.attention import Mixing
from softlook.models.tab_transformer import TabTransformer
from softlook.ops.operation import attention_weights
from softlook.tabular.rows import Rows

TOGETHER, ROOM = 512, 1 << 27
"""Rows whose maps are held at once, and the values that all maps of a block may then have: half a gigabyte."""


@contextmanager
def watched(model: nn.Module) -> Iterator[list[Tensor]]:
    """Fills a list with the map of each block, (N, H, T, S), while the model is called."""
    kept: list[Tensor] = []

    def watch(module: Mixing, args: tuple[Any, ...], output: Tensor) -> None:
        query, key, *_ = args
        kept.append(attention_weights(query, key, scale=module.scale, softcap=module.softcap, score=module.score))

    hooks = [part.register_forward_hook(watch) for part in model.modules() if isinstance(part, Mixing)]
    try:
        yield kept
    finally:
        for hook in hooks:
            hook.remove()


def maps_of(model: nn.Module, rows: Rows) -> Iterator[list[Tensor]]:
    """The maps of every block, a part of the rows at a time."""
    model.eval()
    for some in rows.split(_at_once(model, rows)):
        with torch.inference_mode(), watched(model) as kept:
            model(some.numbers, some.categories)
        yield [_by_row(weights.double() if weights.device.type != "mps" else weights, len(some)) for weights in kept]


def _at_once(model: Any, rows: Rows) -> int:
    """Fewer rows where columns are very many: a map is as large as their square."""
    tokens = 1 + rows.numbers.shape[1] + rows.categories.shape[1]
    return max(1, min(TOGETHER, ROOM // (getattr(model.config, "members", 1) * model.config.heads * tokens**2)))


def looks(model: nn.Module, rows: Rows) -> Tensor:
    """(N, tokens): how much each token is looked at, the mean over heads and blocks.

    By [CLS], as the FT-Transformer paper has it (section 5.3): its row of each map, without what it gives itself. Of a
    TabTransformer, which has none, by all categories alike.
    """
    found: list[Tensor] = []
    for maps in maps_of(model, rows):
        if isinstance(model, TabTransformer):
            found.append(torch.stack([weights.mean((1, 2)) for weights in maps]).mean(0))
        else:  # in the last block nobody looks but [CLS], once for each member
            own = [weights[:, :, :1] for weights in maps[:-1]] + maps[-1:]
            found.append(torch.stack([weights.mean((1, 2)) for weights in own]).mean(0)[:, 1:])
    return torch.cat(found)


def mean_map(model: nn.Module, rows: Rows) -> Tensor:
    """(tokens, tokens): who looks at whom, the mean over rows, heads and all blocks where tokens look."""
    total, count = torch.zeros(()), 0
    for maps in maps_of(model, rows):
        full = maps if isinstance(model, TabTransformer) else [weights[:, :, 1:, 1:] for weights in maps[:-1]]
        for weights in full:
            total, count = total.to(weights.device) + weights.mean(1).sum(0), count + len(weights)
    return total / count


def _by_row(weights: Tensor, rows: int) -> Tensor:
    """One map a row: where every member has looked by itself, the mean of theirs."""
    return weights.unflatten(0, (rows, -1)).mean(1)
