"""Reusable buffers and CUDA graphs of beam searches."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from softlook.blocks.kv_cache import KeyValue
from softlook.decode.beam.hypotheses import BeamSearchParams
from softlook.decode.cuda_graphs.step import GraphedCallable, StepState, empty_like_kv
from softlook.decode.cuda_graphs.torch_ops import BeamState, SearchLimits
from softlook.decode.cuda_graphs.weights import DecoderWeights

COLUMN_MULTIPLE, SOURCE_MULTIPLE = 32, 8
"""Target and source capacities are rounded up to multiples of these."""
MAX_OVERSIZE = 4
"""A workspace may be at most this many times as large as a search needs."""


@dataclass(frozen=True)
class WorkspaceSize:
    """What a search needs."""

    sequences: int
    num_beams: int
    columns: int
    source: int | None
    """Length of the longest source; None for a decoder-only model."""
    num_eos: int

    @property
    def cells(self) -> int:
        """Number of tokens whose keys and values are cached."""
        return self.sequences * (self.num_beams * self.columns + (self.source or 0))

    def rounded_up(self) -> "WorkspaceSize":
        """Somewhat larger, so that other searches fit as well."""
        source = None if self.source is None else _round_up(self.source, SOURCE_MULTIPLE)
        columns = _round_up(self.columns, COLUMN_MULTIPLE)
        return WorkspaceSize(round_up_count(self.sequences), self.num_beams, columns, source, self.num_eos)

    def fits(self, needed: "WorkspaceSize") -> bool:
        """Whether a search of this size fits, without too much to spare. Columns beyond a row's end are never read."""
        own, other = ((one.num_beams, one.num_eos, one.source is None) for one in (self, needed))
        is_large = self.sequences >= needed.sequences and self.columns >= needed.columns
        is_large = is_large and (self.source or 0) >= (needed.source or 0)
        return own == other and is_large and self.cells <= MAX_OVERSIZE * needed.cells


@dataclass
class BeamWorkspace:
    """The buffers of one search at a time; smaller batches use the first rows."""

    size: WorkspaceSize
    state: StepState
    beams: BeamState
    limits: SearchLimits
    pool: Any
    """Memory pool of the graphs, which never run at the same time."""
    graphs: dict[int, GraphedCallable] = field(default_factory=dict)
    """By number of sequences."""
    written: tuple[Any, ...] = ()
    """The parameters in `limits`."""

    @property
    def bytes(self) -> int:
        parts = [part for kv in self.state.caches for part in (kv.key, kv.value, *(kv.cross or ()))]
        return sum(part.numel() * part.element_size() for part in parts)

    def set_params(self, params: BeamSearchParams) -> None:
        """Write the parameters of a search, unless they equal those of the last one."""
        limits = params.min_new_tokens, params.max_new_tokens, params.early_stopping
        written = tuple(params.divisors()), params.eos_ids, *limits
        if written != self.written:
            self.limits.write(params)
            self.written = written

    def begin(
        self, own: list[KeyValue], cross: list[KeyValue | None], lengths: Tensor | None, num_pad: Tensor | None
    ) -> int:
        """Copy the prefilled keys and values of N sequences; return N rounded up to the rows in use."""
        N, K = len(own[0][0]), self.size.num_beams
        rows, state = min(round_up_count(N), self.size.sequences), self.state
        self.beams.first(rows).reset(N)
        state.write_prompts(own, None if num_pad is None else num_pad.repeat_interleave(K))
        for kv, source in zip(state.caches, cross, strict=True):
            for buffer, part in zip(kv.cross or (), source or (), strict=True):
                buffer[:N, :, : part.shape[2]] = part
        assert state.positions.owners is not None
        owners = torch.arange(rows * K, dtype=torch.int32, device=state.ids.device).div(K, rounding_mode="floor")
        state.positions.owners[: rows * K] = owners[:, None]
        state.ids[: rows * K] = 0
        state.step.fill_(1)
        if state.lengths is not None and lengths is not None:
            state.lengths.fill_(1)
            state.lengths[:N] = lengths
        return rows

    def first(self, sequences: int) -> StepState:
        """Views of the buffers of the first sequences."""
        state, rows = self.state, sequences * self.size.num_beams
        old = state.positions
        assert old.owners is not None
        positions = replace(old, first=old.first[:rows], owners=old.owners[:rows])
        caches = [
            kv if kv.cross is None else replace(kv, cross=(kv.cross[0][:sequences], kv.cross[1][:sequences]))
            for kv in state.caches
        ]
        lengths = None if state.lengths is None else state.lengths[:sequences]
        return StepState(state.ids[:rows], positions, caches, lengths, state.step)

    def graph(self, sequences: int, step: Callable[[StepState, BeamState, SearchLimits], None]) -> GraphedCallable:
        """The graph of one step of the first sequences."""
        if sequences not in self.graphs:
            state, beams, limits = self.first(sequences), self.beams.first(sequences), self.limits
            self.graphs[sequences] = GraphedCallable(lambda: step(state, beams, limits), state.ids.device, self.pool)
        return self.graphs[sequences]

    def move_to_front(self, sequences: Tensor) -> None:
        """Move these sequences to the front. Their keys stay in place: `owners` says whose cache holds each column."""
        state, K = self.state, self.size.num_beams
        rows = (sequences[:, None] * K + torch.arange(K, device=sequences.device)).flatten()
        self.beams.move_to_front(sequences)
        assert state.positions.owners is not None
        for buffer in (state.ids, state.positions.first, state.positions.owners):
            buffer[: len(rows)] = buffer.index_select(0, rows)
        sources = [] if state.lengths is None else [state.lengths]
        for buffer in (*sources, *(part for kv in state.caches for part in kv.cross or ())):
            buffer[: len(sequences)] = buffer.index_select(0, sequences)


def allocate_workspace(size: WorkspaceSize, weights: DecoderWeights, own: list[KeyValue]) -> BeamWorkspace:
    """An empty workspace for a decoder whose layers have keys and values like these."""
    device, columns = own[0][0].device, size.columns
    cross, lengths = [None] * len(own), None
    if size.source is not None:
        cross = [tuple(empty_like_kv(part, size.sequences, size.source) for part in kv) for kv in own]
        lengths = torch.ones(size.sequences, dtype=torch.long, device=device)
    rows = size.sequences * size.num_beams
    state = StepState.allocate(weights, own, cross, lengths, rows, columns, with_owners=True)  # pyright: ignore[reportArgumentType]  (pairs)
    beams = BeamState.allocate(size.sequences, size.num_beams, columns, device)
    pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
    return BeamWorkspace(size, state, beams, SearchLimits.allocate(columns, size.num_eos, device), pool)


def round_up_count(count: int) -> int:
    """Round up to one of four values per power of two, so that there are few different sizes.

    >>> [round_up_count(count) for count in (1, 7, 9, 100, 513, 1024)]
    [1, 7, 10, 112, 640, 1024]
    """
    return _round_up(count, max(1, 2 ** ((count - 1).bit_length() - 3)))


def _round_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
