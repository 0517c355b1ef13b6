"""Attention block by block, in plain torch: any mask, any bias, any score, and never the whole map.

Each strip of queries walks over the keys tile by tile and keeps a running average; two averages are
joined exactly by their log-sum-exps. For a gradient, a strip is worked out again, not remembered.
"""

import math
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from softlook.base.shapes import Tile
from softlook.ops.question import Question
from softlook.ops.tilework import SMALL, average, kept_from_sink, tile_weights

ELEMENTS = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Entries of the map in hand at a time: what fits a processor's cache, what fills a GPU."""
ROWS = 128
"""Queries in hand at a time, where that many fit."""
COLUMNS = 1 << 14
"""Keys in hand at a time."""


def attend(question: Question, value: Tensor, dropout: float) -> Tensor:
    """Each query's average of the values. (B, H, T, E)"""
    B, H, T, _ = question.sizes
    again = question.learns_with(value) and math.prod(question.sizes) > SMALL
    answers = []
    for strips in question.tiles(elements(question.query.device), ROWS):
        # The values are handed over openly: by them torch knows which device's dice to roll again.
        work = [partial(_strip, question, dropout, strip) for strip in strips]
        answers.append(torch.cat([checkpoint(w, value, use_reentrant=False) if again else w(value) for w in work], 2))
    return torch.cat([a.flatten(0, 1) for a in answers]).view(B, H, T, -1).to(value.dtype)


def elements(device: torch.device) -> int:
    return ELEMENTS.get(device.type, ELEMENTS["cuda"])


def merge(output: Tensor, lse: Tensor, other: Tensor, other_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Join two averages over different keys into the average over all of them."""
    together = torch.logaddexp(lse, other_lse)
    safe = together.masked_fill(together == -torch.inf, 0)  # neither part saw anything: 0 * exp(-inf) = 0
    return output * (lse - safe).exp()[..., None] + other * (other_lse - safe).exp()[..., None], together


def _strip(question: Question, dropout: float, strip: Tile, value: Tensor) -> Tensor:
    reach = strip.columns if question.mask is None else question.mask.reach(strip)
    output, lse = None, None
    for start in range(reach.start, max(reach.stop, reach.start + 1), COLUMNS):
        tile = replace(strip, columns=range(start, min(start + COLUMNS, reach.stop)))
        look = tile_weights(question, tile)
        part = average(question, torch.nn.functional.dropout(look.weights, dropout), value, tile)
        output, lse = (part, look.lse) if output is None or lse is None else merge(output, lse, part, look.lse)
    assert output is not None and lse is not None
    return output if question.sink is None else output * kept_from_sink(question, lse, strip)[0][..., None]
