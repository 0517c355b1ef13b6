"""The maps of a table's model, exact and in full, as its blocks look."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from softlook.blocks.attention import Mixing
from softlook.models.tab_transformer import TabTransformer
from softlook.tabular.encoding.rows import Rows

TOGETHER, ROOM = 512, 1 << 27
"""Rows whose maps are held at once, and the values that all maps of a block may then have: half a gigabyte."""


@contextmanager
def watched(model: nn.Module, *, summary: bool = False) -> Iterator[list[Tensor]]:
    """Fills a list with the map of each block, (N, H, T, S), while the model is called.

    With `summary`, only with [CLS]'s row of each: in the last block nobody else looks, in the others it is the first.
    """
    kept: list[Tensor] = []
    before_last = len(model.blocks) - 1  # pyright: ignore[reportArgumentType]

    def watch(module: Mixing, args: tuple[Any, ...], output: Tensor) -> None:
        query, key, _, *rest = args
        query = query[:, :, :1] if summary and len(kept) < before_last else query
        kept.append(module.weights(query, key, *rest))

    hooks = [part.register_forward_hook(watch) for part in model.modules() if isinstance(part, Mixing)]
    try:
        yield kept
    finally:
        for hook in hooks:
            hook.remove()


def maps_of(model: nn.Module, rows: Rows, *, summary: bool = False) -> Iterator[list[Tensor]]:
    """The maps of every block, a part of the rows at a time."""
    model.eval()
    for some in rows.split(_at_once(model, rows, summary=summary)):
        with torch.inference_mode(), watched(model, summary=summary) as kept:
            model(some.numbers, some.categories)
        yield [_by_row(weights.double() if weights.device.type != "mps" else weights, len(some)) for weights in kept]


def _at_once(model: Any, rows: Rows, *, summary: bool) -> int:
    """Fewer rows where columns are very many: a map is as large as their square, and there is more of each row."""
    tokens = 1 + rows.numbers.shape[1] + rows.categories.shape[1]
    each = 8 * model.config.dim if summary else model.config.heads * tokens
    return max(1, min(TOGETHER, ROOM // (getattr(model.config, "members", 1) * tokens * each)))


def looks(model: nn.Module, rows: Rows) -> Tensor:
    """(N, tokens): how much each token is looked at, the mean over heads and blocks.

    By [CLS], as the FT-Transformer paper has it (section 5.3): its row of each map, without what it gives itself. Of a
    TabTransformer, which has none, by all categories alike.
    """
    summary = not isinstance(model, TabTransformer)
    found = [
        torch.stack([weights.mean((1, 2)) for weights in maps]).mean(0)
        for maps in maps_of(model, rows, summary=summary)
    ]
    return torch.cat(found)[:, 1:] if summary else torch.cat(found)


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
