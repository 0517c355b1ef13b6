"""A memory in which every sequence goes on in several ways, and none of them is ever copied.

What each way said is written behind what all ways said before; which of that belongs to a way is a list of places. When
a way is dropped and another goes on twice, only the lists change.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.blocks.memory import KeyValue, Memory, Recalling, check_forgetting, picked
from softlook.blocks.sharing import look_together
from softlook.ops.masks.algebra import Dense
from softlook.ops.tilework import darkness

SPARE = 24
"""Columns that a new buffer has beyond those in use, for each way."""


class Branches(Memory):
    """The memory of all layers: it knows which columns each way has gone through.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab=10, context=8, dim=16, depth=2, heads=2)).eval()
    >>> memory, rows = Branches(), torch.tensor([0, 0])
    >>> _ = model(torch.tensor([[3, 1]]), memory=memory)
    >>> memory.branch(rows, 2)
    >>> several = model(torch.tensor([[4], [5]]), memory=memory)
    >>> torch.allclose(several[1, 0], model(torch.tensor([[3, 1, 5]]))[0, -1], atol=1e-5)
    True
    """

    def __init__(self) -> None:
        super().__init__(lambda: Branch(self))
        self.ways = 1
        """How many there are of each sequence."""
        self.paths: Tensor | None = None
        """(N, K, t): the columns of each way, in order; only once there are several."""
        self.allowed: Tensor | None = None
        """(N, 1, K, S): 0 where a column belongs to a way, and minus infinity elsewhere."""
        self.shaded: tuple[Dense | None, Tensor | None] = (None, None)

    def shade(self, mask: Dense | None) -> Tensor | None:
        """What a mask of the other sequences adds to scores; worked out once for all layers."""
        if mask is not self.shaded[0]:
            self.shaded = mask, None if mask is None else darkness(mask.seen, torch.float32)
        return self.shaded[1]

    def select(self, rows: Tensor) -> None:
        if self.paths is not None:
            raise ShapeError("sequences that go on in several ways are led by `follow`, which keeps each together")
        super().select(rows)

    def branch(self, rows: Tensor, count: int) -> None:
        if self.paths is not None:
            raise ShapeError("these sequences go on in several ways already")
        self.ways, said = count, torch.arange(self.length, device=rows.device)
        self.paths = said.expand(len(rows) // count, count, -1)

    def follow(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Go on with these ways, each sequence's side by side; with `sources`, only with these of the sequences."""
        assert self.paths is not None
        self.paths = self.paths.flatten(0, 1).index_select(0, rows).unflatten(0, (-1, self.ways))
        super().follow(rows, sources)

    def forget(self, count: int) -> None:
        if self.paths is not None:
            raise ShapeError("what several ways said is not taken back")
        super().forget(count)

    def step(self, said: int, columns: int) -> None:
        """One more column for each way, unless an earlier layer has seen to that after so many words."""
        assert self.paths is not None
        if self.paths.shape[-1] > said:
            return
        new = torch.arange(columns, columns + self.ways, device=self.paths.device)
        self.paths = torch.cat([self.paths, new[:, None].expand(len(self.paths), -1, 1)], -1)
        dark = torch.full((*self.paths.shape[:2], columns + self.ways), -torch.inf, device=self.paths.device)
        self.allowed = dark.scatter_(-1, self.paths, 0.0)[:, None]


class Branch(Recalling):
    """The memory of one layer: a buffer that is written behind what is there."""

    def __init__(self, whole: Branches) -> None:
        self.whole, self.length, self.columns = whole, 0, 0
        self.both: Tensor | None = None
        """(2, N, G, S, D): keys and values, with room for more than came."""

    def extend(self, key: Tensor, value: Tensor) -> KeyValue:
        """All that each row may look at. With several ways that is a copy; `look` does without."""
        new = torch.stack([key, value])
        if self.whole.paths is None:
            self.length += key.shape[2]
            kept = self._written(new)
            return kept[0], kept[1]
        if key.shape[2] != 1:
            raise ShapeError(f"several ways go on word by word; {key.shape[2]} words came at once")
        ways = self.whole.ways
        kept = self._stepped(new.unflatten(1, (-1, ways)).squeeze(4).transpose(2, 3))
        places = self.whole.paths[None, :, :, None, :, None]  # (1, N, K, 1, t, 1)
        spread = kept[:, :, None].expand(-1, -1, ways, -1, -1, -1)
        found = spread.gather(4, places.expand(2, -1, -1, kept.shape[2], -1, kept.shape[4])).flatten(1, 2)
        return found[0], found[1]

    def look(self, heads: Float[Tensor, "N K heads D"], kv_heads: int, scale: float) -> Float[Tensor, "NK HD"]:
        """What each way sees of its own past, one word each, without a copy of it.

        `heads` are queries, and behind them keys and as many values.
        """
        split = heads.shape[2] - 2 * kv_heads
        kept = self._stepped(heads[:, :, split:].unflatten(2, (2, kv_heads)).permute(2, 0, 3, 1, 4))
        query = heads[:, :, :split].transpose(1, 2)
        return look_together(query, kept[0], kept[1], allowed=self.whole.allowed, scale=scale)

    def follow(self, rows: Tensor, sources: Tensor | None = None) -> None:
        if sources is not None and self.both is not None:
            self.both = self.both.index_select(1, sources)
        self.other = picked(self.other, sources)

    def forget(self, count: int) -> None:
        check_forgetting(count, self.length)
        self.length, self.columns = self.length - count, self.columns - count

    def _stepped(self, new: Float[Tensor, "2 N G K D"]) -> Float[Tensor, "2 N G S D"]:
        """One word of each way, in columns side by side."""
        self.whole.step(self.length, self.columns)
        self.length += 1
        return self._written(new)

    def _written(self, new: Float[Tensor, "2 N G T D"]) -> Float[Tensor, "2 N G S D"]:
        start, stop = self.columns, self.columns + new.shape[3]
        if self.both is None or stop > self.both.shape[3]:
            self._make_room(new, stop + max(stop // 2, SPARE * self.whole.ways))
        assert self.both is not None
        self.columns = stop
        self.both[:, :, :, start:stop] = new
        return self.both[:, :, :, :stop]

    def _make_room(self, like: Tensor, columns: int) -> None:
        made = like.new_empty(*like.shape[:3], columns, like.shape[4])
        if self.both is not None:
            made[:, :, :, : self.columns] = self.both[:, :, :, : self.columns]
        self.both = made
