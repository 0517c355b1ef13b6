"""Keys and values of sequences that are not equally long, come at any time and leave at any time.

All rows end at the same column, so that one step writes one column, and causal masks and windows stay right: they look
back from the last key. What stands before a row's beginning is hidden by a mask, and is zero besides: a masked value is
still multiplied with 0, and 0 times a NaN that somebody left there would be NaN. The columns in use wander to the right
through a buffer; when they arrive at its end, or a longer row joins, they are moved into a new one.
"""

from collections.abc import Callable, Sequence

from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.blocks.memory import Growing, KeyValue, LayerMemory, Memory

SPARE = 32
"""Columns that a new buffer has at least beyond those in use."""
ONE_BY_ONE = "rows of slots join and leave one by one: they are neither selected nor taken back"


class Slots(Memory):
    """The memory of a batch that rows join and leave.

    >>> import torch
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab=10, context=8, dim=16, depth=2, heads=2)).eval()
    >>> read, slots = Memory(), Slots()
    >>> _ = model(torch.tensor([[3, 1, 4]]), memory=read)
    >>> slots.join(read, [3])
    >>> slots.lengths, slots.width
    ([3], 3)
    """

    def __init__(self) -> None:
        super().__init__()
        self.slots: list[Slot] = []
        self.lengths: list[int] = []
        """How many positions of each row came by."""
        self.finals: list[int] = []
        """How many there will be at most."""
        self.end = self.columns = self.rows = 0
        """The column behind the last one in use; columns and rows that there is room for."""

    @property
    def width(self) -> int:
        """Columns that are looked at."""
        return max(self.lengths, default=0)

    @property
    def length(self) -> int:
        return self.width

    def layers(self, depth: int) -> list[LayerMemory]:
        return list(self.slots[:depth])

    def join(self, read: Memory, lengths: Sequence[int], finals: Sequence[int] | None = None) -> None:
        """Take over rows that were read, filled up on the left; `lengths` says how many positions of each count.

        `finals` says how many each will have at most, so that no more is allocated; without it, twice as many.
        """
        held = [layer.own for layer in read.kept if isinstance(layer, Growing) and layer.own is not None]
        if not self.slots:
            self.slots = [Slot(self, like) for like in held]
        before, longest = len(self.lengths), max(lengths)
        self.finals.extend([2 * length for length in lengths] if finals is None else finals)
        if before + len(lengths) > self.rows or longest > self.end:
            self._move(before + len(lengths), max(self.width, longest))
        self.lengths.extend(lengths)
        for slot, new in zip(self.slots, held, strict=True):
            slot.put(new, before, lengths)

    def step(self) -> None:
        """Make room for one more position of each row; to be called before the model is asked."""
        rows = len(self.lengths)
        if self.end == self.columns or 2 * allocated(rows, max(self.width, *self.finals)) < self.rows * self.columns:
            self._move(rows, self.width)
        self.end += 1
        self.lengths = [length + 1 for length in self.lengths]

    def leave(self, row: int) -> None:
        """One row is over, and the last one takes its place. When nobody is left, nothing is kept."""
        last = len(self.lengths) - 1
        for slot in self.slots:
            slot.leave(row, last)
        for numbers in (self.lengths, self.finals):
            numbers[row] = numbers[last]
            numbers.pop()
        if not self.lengths:
            self.slots, self.end, self.columns, self.rows = [], 0, 0, 0

    def select(self, rows: Tensor) -> None:
        raise ShapeError(ONE_BY_ONE)

    def forget(self, count: int) -> None:
        raise ShapeError(ONE_BY_ONE)

    def _move(self, rows: int, width: int) -> None:
        """Into new buffers with room for so many rows and columns, and for some more."""
        old, self.rows = self.end, rows + rows // 4
        self.columns, self.end = width + max(SPARE, min(width // 2, max(self.finals) - width)), width
        for slot in self.slots:
            slot.move(old)


def allocated(rows: int, longest: int) -> int:
    """Cache positions that are allocated at most for so many rows, the longest of which will have so many."""
    return (rows + rows // 4) * (longest + SPARE)


class Slot:
    """The memory of one layer."""

    def __init__(self, slots: Slots, like: KeyValue) -> None:
        self.slots, self.both = slots, (like[0][:0, :, :0], like[1][:0, :, :0])

    @property
    def length(self) -> int:
        return self.slots.width

    def extend(self, key: Tensor, value: Tensor) -> KeyValue:
        rows, end, width = len(self.slots.lengths), self.slots.end, self.slots.width
        if key.shape[0] != rows or key.shape[2] != 1:
            raise ShapeError(f"{rows} rows of slots take one word each; {key.shape[0]} of {key.shape[2]} came")
        for kept, new in zip(self.both, (key, value), strict=True):
            kept[:rows, :, end - 1 : end] = new
        return self.both[0][:rows, :, end - width : end], self.both[1][:rows, :, end - width : end]

    def recall(self, make: Callable[[], KeyValue]) -> KeyValue:
        raise ShapeError("slots are for decoder-only models: there is no other sequence to look at")

    def select(self, rows: Tensor) -> None:
        raise ShapeError(ONE_BY_ONE)

    def forget(self, count: int) -> None:
        raise ShapeError(ONE_BY_ONE)

    def put(self, new: KeyValue, row: int, lengths: Sequence[int]) -> None:
        """New rows, from this one on."""
        end, longest = self.slots.end, max(lengths)
        for kept, added in zip(self.both, new, strict=True):
            kept[row : row + len(added), :, end - longest : end] = added[:, :, added.shape[2] - longest :]
            for place, length in enumerate(lengths, row):
                kept[place, :, end - longest : end - length] = 0

    def leave(self, row: int, last: int) -> None:
        """The last row over another, with the zeros before its beginning; nothing stays where it was."""
        used = slice(0, self.slots.end)
        for kept in self.both:
            if row != last:
                kept[row, :, used] = kept[last, :, used]
            kept[last, :, used] = 0

    def move(self, old: int) -> None:
        """Into a new buffer: what ended at column `old` ends where the slots end now."""
        rows, width, end = len(self.slots.lengths), self.slots.width, self.slots.end
        made = []
        for kept in self.both:
            wide = kept.new_zeros(self.slots.rows, kept.shape[1], self.slots.columns, kept.shape[3])
            wide[:rows, :, end - width : end] = kept[:rows, :, old - width : old]
            made.append(wide)
        self.both = (made[0], made[1])
