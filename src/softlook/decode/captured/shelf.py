"""What captured steps of one model have in common from call to call, kept as long as the model is, and not in it."""

import threading
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from softlook.decode.captured.board import Board, Size
from softlook.decode.captured.plan import NotPlainError, Plan, live_plan_of
from softlook.decode.captured.step import State

LARGEST = 1 << 31
"""Bytes of keys and values up to which they are kept for whoever comes next."""
SHARE = 8
"""Boards of beam searches are kept as long as they take no more than one in so many bytes of a GPU's memory."""


class Shelf:
    """A model's plan, and one memory with its graphs that nobody uses at the moment."""

    def __init__(self, model: nn.Module) -> None:
        self.plan: Plan = live_plan_of(model)
        self.idle: State | None = None
        self.boards: list[Board] = []
        """Of beam searches, those that nobody uses at the moment; the last used one last."""
        self.lock = threading.Lock()

    def take(self, rows: int, columns: int) -> State | None:
        """A memory of just this many rows and about so many columns, if there is one; it is the caller's then."""
        with self.lock:
            state = self.idle
            if state is None or len(state.ids) != rows or not columns <= state.columns <= 2 * columns:
                return None
            self.idle = None
            return state

    def put(self, state: State) -> None:
        """Give one back. One that has a source, or whose rows have gone different ways, is of no use to others."""
        size = sum(kept.key.numel() * kept.key.element_size() * 2 for kept in state.kept)
        if state.lengths is None and state.past.paths is None and size <= LARGEST:
            with self.lock:
                self.idle = state

    def take_board(self, size: Size) -> Board | None:
        """The smallest board that such a search fits on, if there is one; it is the caller's then."""
        with self.lock:
            fitting = [board for board in self.boards if board.size.fits(size)]
            if not fitting:
                return None
            chosen = min(fitting, key=lambda board: board.size.cells)
            self.boards = [board for board in self.boards if board is not chosen]
            return chosen

    def put_board(self, board: Board) -> None:
        """Give one back. Those that were not used for the longest time make room for it."""
        with self.lock:
            kept, room = [board], _room(board.state.ids.device) - board.bytes
            for other in reversed(self.boards):
                room -= other.bytes
                if room >= 0:
                    kept.insert(0, other)
            self.boards = kept if board.bytes <= _room(board.state.ids.device) else self.boards


def _room(device: torch.device) -> int:
    if device.type != "cuda":
        return LARGEST
    return max(LARGEST, torch.cuda.get_device_properties(device).total_memory // SHARE)


Mark = tuple[Any, ...]
SETTING = bool, int, float, str, type(None)
"""Kinds of attributes that say how a part works."""
SHELVES: "WeakKeyDictionary[nn.Module, tuple[Mark, Shelf | str]]" = WeakKeyDictionary()
"""Of each model that was asked about: its shelf, or why it has none."""


def refusal(model: nn.Module) -> str | None:
    """Why the steps of a model cannot be planned; None where they can."""
    known = _known(model)
    return known if isinstance(known, str) else None


def shelf_of(model: nn.Module) -> Shelf:
    """The shelf of a model that can be planned; a new one when its parts are others, or lie elsewhere.

    Values of weights may change: a plan shares their memory.
    """
    known = _known(model)
    if isinstance(known, str):
        raise NotPlainError(known)
    return known


def _known(model: nn.Module) -> Shelf | str:
    known = SHELVES.get(model)
    if known is None or known[0] != _mark(model):
        made = _new(model)  # it may move weights side by side, so it is marked afterwards
        known = SHELVES[model] = _mark(model), made
    return known[1]


def _new(model: nn.Module) -> Shelf | str:
    if len({weight.dtype for weight in model.parameters()}) > 1:
        return "its weights are not all of the same kind"
    try:
        return Shelf(model)
    except NotPlainError as reason:
        return str(reason)


def _mark(model: nn.Module) -> Mark:
    """Something else when parts, their settings or watchers change, or where weights lie."""
    marks: list[Any] = []
    for part in model.modules():
        marks.append(None if part is model else part)  # itself, not its id, which another may have later
        marks.append(bool(part._forward_hooks or part._forward_pre_hooks))
        marks += [(name, value) for name, value in vars(part).items() if isinstance(value, SETTING) or callable(value)]
        for tensor in (*part._parameters.values(), *part._buffers.values()):
            if tensor is not None:
                marks.append((tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()))
    return tuple(marks)
