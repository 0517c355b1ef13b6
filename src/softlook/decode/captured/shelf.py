"""What captured steps of one model have in common from call to call, kept as long as the model is, and not in it."""

import threading
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

from softlook.decode.captured.plan import NotPlainError, Plan, plan_of
from softlook.decode.captured.step import State

LARGEST = 1 << 31
"""Bytes of keys and values up to which they are kept for whoever comes next."""


class Shelf:
    """A model's plan, and one memory with its graphs that nobody uses at the moment."""

    def __init__(self, model: nn.Module) -> None:
        self.plan: Plan = plan_of(model)
        self.idle: State | None = None
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


Mark = tuple[Any, ...]
SHELVES: "WeakKeyDictionary[nn.Module, tuple[Mark, Shelf | str]]" = WeakKeyDictionary()
"""Of each model that was asked about: its shelf, or why it has none."""


def refusal(model: nn.Module) -> str | None:
    """Why the steps of a model cannot be planned; None where they can."""
    known = _known(model)
    return known if isinstance(known, str) else None


def shelf_of(model: nn.Module) -> Shelf:
    """The shelf of a model that can be planned; a new one when its weights have changed."""
    known = _known(model)
    if isinstance(known, str):
        raise NotPlainError(known)
    return known


def _known(model: nn.Module) -> Shelf | str:
    mark = _mark(model)
    known = SHELVES.get(model)
    if known is None or known[0] != mark:
        known = SHELVES[model] = mark, _new(model)
    return known[1]


def _new(model: nn.Module) -> Shelf | str:
    if len({weight.dtype for weight in model.parameters()}) > 1:
        return "its weights are not all of the same kind"
    try:
        return Shelf(model)
    except NotPlainError as reason:
        return str(reason)


def _mark(model: nn.Module) -> Mark:
    """Something else when weights, parts or watchers change."""
    marks: list[Any] = []
    for part in model.modules():
        marks.append((id(part), bool(part._forward_hooks or part._forward_pre_hooks)))
        for tensor in (*part._parameters.values(), *part._buffers.values()):
            if tensor is not None:
                marks.append((tensor.data_ptr(), tensor.dtype, 0 if tensor.is_inference() else tensor._version))
    return tuple(marks)
