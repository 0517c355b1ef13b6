"""Keys and values of sequences that are not equally long, come at any time and leave at any time.

All rows end at the same column, so that one step writes one column, and causal masks and windows stay right: they look
back from the last key. What stands before a row's beginning is hidden by a mask. The columns in use wander to the right
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

    def join(self, read: Memory, lengths: Sequence[int]) -> None:
        """Take over rows that were read, filled up on the left; `lengths` says how many positions of each count."""
        held = [layer.own for layer in read.kept if isinstance(layer, Growing) and layer.own is not None]
        if not self.slots:
            self.slots = [Slot(self, like) for like in held]
        before, longest = len(self.lengths), max(lengths)
        if before + len(lengths) > self.rows or longest > self.end:
            self._move(before + len(lengths), max(self.width, longest))
        self.lengths.extend(lengths)
        for slot, new in zip(self.slots, held, strict=True):
            slot.put(new, before, longest)

    def step(self) -> None:
        """Make room for one more position of each row; to be called before the model is asked."""
        if self.end == self.columns:
            self._move(len(self.lengths), self.width)
        self.end += 1
        self.lengths = [length + 1 for length in self.lengths]

    def leave(self, row: int) -> None:
        """One row is over, and the last one takes its place. When nobody is left, nothing is kept."""
        last = len(self.lengths) - 1
        for slot in self.slots:
            slot.copy(last, row, self.lengths[last])
        self.lengths[row] = self.lengths[last]
        self.lengths.pop()
        if not self.lengths:
            self.slots, self.end, self.columns, self.rows = [], 0, 0, 0

    def select(self, rows: Tensor) -> None:
        raise ShapeError(ONE_BY_ONE)

    def forget(self, count: int) -> None:
        raise ShapeError(ONE_BY_ONE)

    def _move(self, rows: int, width: int) -> None:
        """Into new buffers with room for so many rows and columns, and for some more."""
        old, self.rows = self.end, self.rows if rows <= self.rows else rows + rows // 4
        self.columns, self.end = width + max(SPARE, width // 2), width
        for slot in self.slots:
            slot.move(old)


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

    def put(self, new: KeyValue, row: int, longest: int) -> None:
        """New rows, from this one on."""
        end = self.slots.end
        for kept, added in zip(self.both, new, strict=True):
            kept[row : row + len(added), :, end - longest : end] = added[:, :, added.shape[2] - longest :]

    def copy(self, source: int, target: int, length: int) -> None:
        """One row over another."""
        if source != target:
            seen = slice(self.slots.end - length, self.slots.end)
            for kept in self.both:
                kept[target, :, seen] = kept[source, :, seen]

    def move(self, old: int) -> None:
        """Into a new buffer: what ended at column `old` ends where the slots end now."""
        rows, width, end = len(self.slots.lengths), self.slots.width, self.slots.end
        made = []
        for kept in self.both:
            # Zeros, for what is hidden is still multiplied with 0, and nothing times 0 may be NaN.
            wide = kept.new_zeros(self.slots.rows, kept.shape[1], self.slots.columns, kept.shape[3])
            wide[:rows, :, end - width : end] = kept[:rows, :, old - width : old]
            made.append(wide)
        self.both = (made[0], made[1])
