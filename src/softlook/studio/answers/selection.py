"""What a request selects: heads of a layer, ranges of rows and columns, the call that a row belongs to."""

from typing import NamedTuple

from torch import Tensor

from softlook.base.errors import DataError
from softlook.lens.attention_trace import AttentionCall, AttentionTrace

MEAN, ALL_HEADS = "mean", -1
MAX_CELLS = 1 << 24
"""Weights that one request computes; of larger parts, a sample of the rows."""


class Heads(NamedTuple):
    """Some heads of a layer, or their mean."""

    part: slice
    mean: bool

    def weights(self, layer: AttentionTrace, rows: slice, columns: slice) -> Tensor:
        """Weights of the first sequence of the batch. (1 or h, t, s)"""
        weights = layer.weights(heads=self.part, rows=rows, columns=columns)[0]
        return weights.mean(0, keepdim=True) if self.mean else weights


def select_heads(layer: AttentionTrace, head: str) -> Heads:
    """One head by its number, all heads as "-1", or their mean as "mean".

    >>> from softlook.lens import trace
    >>> from softlook.blocks import SelfAttention
    >>> import torch
    >>> attend = SelfAttention(8, heads=2)
    >>> with trace(attend) as recorded:
    ...     output = attend(torch.randn(1, 5, 8))
    >>> select_heads(recorded["core"], "1"), select_heads(recorded["core"], "mean").mean
    (Heads(part=slice(1, 2, None), mean=False), True)
    """
    count = layer.shape[1]
    if head == MEAN:
        return Heads(slice(0, count), mean=True)
    number = to_integer("head", head)
    if number == ALL_HEADS:
        return Heads(slice(0, count), mean=False)
    check_index("head", number, count)
    return Heads(slice(number, number + 1), mean=False)


def one_head(layer: AttentionTrace, head: str) -> int:
    """The number of one head."""
    number = to_integer("head", head)
    check_index("head", number, layer.shape[1])
    return number


def to_range(name: str, text: str, count: int) -> range:
    """Consecutive indices below `count`, as "first:stop"; all of them as "".

    >>> to_range("rows", "2:5", 10), to_range("rows", "7:", 10), to_range("rows", "", 3)
    (range(2, 5), range(7, 10), range(0, 3))
    """
    first, colon, stop = text.partition(":")
    start = to_integer(name, first) if first else 0
    end = to_integer(name, stop) if stop else count if colon or not text else start + 1
    chosen = range(count)[start:end]
    if not chosen:
        raise DataError(f"{name} expects first:stop within 0:{count}, got {text:.40}")
    return chosen


def to_slice(part: range) -> slice:
    return slice(part.start, part.stop, part.step)


def to_integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise DataError(f"{name} expects a number, got {text!r:.40}") from None


def check_index(name: str, number: int, count: int) -> None:
    """Raise an error for an index that there is not."""
    if not 0 <= number < count:
        raise DataError(f"{name} expects a number from 0 to {count - 1}, got {number}")


def find_call(layer: AttentionTrace, row: int) -> tuple[AttentionCall, int]:
    """The call that computed a row, and the index of the row in it: with a KV cache, every step is a call."""
    check_index("row", row, layer.shape[2])
    for call in layer.calls:
        if row < call.query.shape[2]:
            return call, row
        row -= call.query.shape[2]
    raise AssertionError  # the rows are those of the calls
