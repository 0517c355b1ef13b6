"""Places for a beam search that stay where they are: one search after the other uses them, and the graphs on them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from softlook.blocks.memory import KeyValue
from softlook.decode.captured.graphs import Graph
from softlook.decode.captured.parts import Kept, Past
from softlook.decode.captured.plan import Plan
from softlook.decode.captured.step import State
from softlook.decode.captured.ways import Aims, Ways
from softlook.decode.search import Found, Wanted

COLUMNS, SOURCE = 32, 8
"""Room is made for multiples of so many words, and of so many words of a source."""
LARGER = 4
"""A board may be so many times as large as it has to be."""


@dataclass(frozen=True)
class Size:
    """What a search takes."""

    sequences: int
    ways: int
    columns: int
    source: int | None
    """Words of the longest source, where there are any."""
    ends: int

    @property
    def cells(self) -> int:
        """Words of which keys and values are kept."""
        return self.sequences * (self.ways * self.columns + (self.source or 0))

    @property
    def even(self) -> "Size":
        """Somewhat larger, so that others fit as well."""
        source = None if self.source is None else _even(self.source, SOURCE)
        return Size(about(self.sequences), self.ways, _even(self.columns, COLUMNS), source, self.ends)

    def fits(self, wanted: "Size") -> bool:
        """Is there room for this, without too much to spare? What lies beyond a row's end is never looked at."""
        alike = (self.ways, self.ends, self.source is None) == (wanted.ways, wanted.ends, wanted.source is None)
        large = self.sequences >= wanted.sequences and self.columns >= wanted.columns
        return alike and large and (self.source or 0) >= (wanted.source or 0) and self.cells <= LARGER * wanted.cells


@dataclass
class Board:
    """One search at a time. All that a step reads and writes is here; smaller batches use the first rows of it."""

    size: Size
    state: State
    ways: Ways
    aims: Aims
    pool: Any
    """Where graphs put what lies between: they never run at the same time, so they share it."""
    graphs: dict[int, Graph] = field(default_factory=dict)
    """By how many sequences they work on."""
    aimed: tuple[Any, ...] = ()

    @property
    def bytes(self) -> int:
        parts = [part for kept in self.state.kept for part in (kept.key, kept.value, *(kept.other or ()))]
        return sum(part.numel() * part.element_size() for part in parts)

    def aim(self, wanted: Wanted) -> None:
        """What this search wants; nothing is written where it is what the last one wanted."""
        penalties = tuple(wanted.penalty(length) for length in range(1, wanted.longest + 1))
        aimed = penalties, wanted.ends, wanted.shortest, wanted.longest, wanted.early_stopping
        Found(wanted)
        if aimed != self.aimed:
            self.aims.aim(wanted)
            self.aimed = aimed

    def begin(self, own: list[KeyValue], others: list[KeyValue | None], lengths: Tensor | None, filled: Any) -> int:
        """Take in what was read of N sequences; how many rows of sequences are in use, those of nobody included."""
        N, T, K = len(own[0][0]), own[0][0].shape[2], self.size.ways
        rows, state = min(about(N), self.size.sequences), self.state
        self.ways.first(rows).begin(N)
        for kept, (key, value), other in zip(state.kept, own, others, strict=True):
            kept.key[:N, :, :T], kept.value[:N, :, :T] = key, value
            for place, part in zip(kept.other or (), other or (), strict=True):
                place[:N, :, : part.shape[2]] = part
        assert state.past.paths is not None
        owners = torch.arange(rows * K, dtype=torch.int32, device=state.ids.device).div(K, rounding_mode="floor")
        state.past.paths[: rows * K] = owners[:, None]
        state.ids[: rows * K] = 0
        state.past.first.zero_()
        if filled is not None:
            state.past.first[: N * K] = filled.repeat_interleave(K)
        state.past.at.fill_(T)
        state.step.fill_(1)
        if state.lengths is not None and lengths is not None:
            state.lengths.fill_(1)
            state.lengths[:N] = lengths
        return rows

    def first(self, sequences: int) -> State:
        """What a step of the first so many sequences reads and writes."""
        state, rows = self.state, sequences * self.size.ways
        assert state.past.paths is not None
        past = Past(
            state.past.at, state.past.first[:rows], state.past.paths[:rows], state.past.turns, state.past.places
        )
        kept = [
            Kept(
                one.key, one.value, None if one.other is None else (one.other[0][:sequences], one.other[1][:sequences])
            )
            for one in state.kept
        ]
        lengths = None if state.lengths is None else state.lengths[:sequences]
        return State(state.ids[:rows], past, kept, lengths, state.step)

    def graph(self, sequences: int, work: Callable[[State, Ways, Aims], None]) -> Graph:
        """One more word of the first so many sequences: recorded when it was first asked for."""
        if sequences not in self.graphs:
            state, ways, aims = self.first(sequences), self.ways.first(sequences), self.aims
            self.graphs[sequences] = Graph(lambda: work(state, ways, aims), state.ids.device, self.pool)
        return self.graphs[sequences]

    def move(self, rows: Tensor) -> None:
        """These sequences come first from now on. Their keys stay where they are: ways know who wrote their past."""
        state, K = self.state, self.size.ways
        ways = (rows[:, None] * K + torch.arange(K, device=rows.device)).flatten()
        self.ways.move(rows)
        assert state.past.paths is not None
        for part in (state.ids, state.past.first, state.past.paths):
            part[: len(ways)] = part.index_select(0, ways)
        sources = [] if state.lengths is None else [state.lengths]
        for part in (*sources, *(part for kept in state.kept for part in kept.other or ())):
            part[: len(rows)] = part.index_select(0, rows)


def new_board(size: Size, plan: Plan, own: list[KeyValue]) -> Board:
    """An empty one for a decoder whose layers keep what is like this."""
    key, rows, columns = own[0][0], size.sequences * size.ways, size.columns
    device, whole = key.device, {"dtype": torch.long, "device": key.device}
    kept = []
    for key, value in own:
        other = (
            None if size.source is None else tuple(_places(part, size.sequences, size.source) for part in (key, value))
        )
        kept.append(Kept(_places(key, rows, columns), _places(value, rows, columns), other))  # pyright: ignore[reportArgumentType]
    paths = torch.zeros(rows, columns, dtype=torch.int32, device=device)
    past = Past(torch.zeros(1, **whole), torch.zeros(rows, **whole), paths, plan.turns(columns), plan.places(columns))
    lengths = None if size.source is None else torch.ones(size.sequences, **whole)
    state = State(torch.zeros(rows, **whole), past, kept, lengths, torch.ones(1, **whole))
    ways = Ways.room(size.sequences, size.ways, columns, device)
    pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
    return Board(size, state, ways, Aims.room(columns, size.ends, device), pool)


def about(count: int) -> int:
    """The same or somewhat more, so that there are few different numbers: four from each power of two to the next.

    >>> [about(count) for count in (1, 7, 9, 100, 513, 1024)]
    [1, 7, 10, 112, 640, 1024]
    """
    return _even(count, max(1, 2 ** ((count - 1).bit_length() - 3)))


def _even(count: int, step: int) -> int:
    return -(-count // step) * step


def _places(like: Tensor, rows: int, columns: int) -> Tensor:
    return like.new_zeros(rows, like.shape[1], columns, like.shape[3])
