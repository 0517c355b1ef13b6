"""All that a server has: its models by their names, a worker for each, and how much may be asked of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from softlook.base.errors import DataError
from softlook.models import GPT, Llama, TextEncoder
from softlook.serve.budget import cache_positions
from softlook.serve.continuing import ContinuingDesk
from softlook.serve.desks import Desk
from softlook.serve.engine import Engine
from softlook.serve.groups import GroupDesk
from softlook.serve.limits import Limits
from softlook.serve.reading import ReadingDesk
from softlook.serve.served import PAGES, Ability, Served
from softlook.serve.tables import ServedTable, TableDesk
from softlook.train.objectives import known_segments

ROWS = 4
"""Of a table, for each sequence of others: a row has tens of tokens, and they are all read at once."""


class UnknownModelError(DataError):
    """There is no model of this name."""


@dataclass(frozen=True)
class Seat:
    """A model and its worker."""

    served: Served
    engine: Engine


@dataclass(frozen=True)
class TableSeat:
    """A table's model and its worker."""

    served: ServedTable
    engine: Engine


class Hall:
    """The models of a server. Requests know them by name, and by nothing else."""

    def __init__(self, served: Sequence[Served | ServedTable], limits: Limits | None = None) -> None:
        self.limits = Limits() if limits is None else limits
        models = sum(isinstance(one, Served) and not isinstance(one.model, TextEncoder) for one in served)
        self.seats = {one.name: self._seated(one, models) for one in served}

    def seat(self, name: str, ability: Ability) -> Seat:
        """The model that a request asks for, if it can do what is asked."""
        found = self._able(name, ability)
        assert isinstance(found, Seat)
        return found

    def table(self, name: str) -> TableSeat:
        """The same, where rows of a table are asked about."""
        found = self._able(name, "tables")
        assert isinstance(found, TableSeat)
        return found

    def _seated(self, one: Served | ServedTable, models: int) -> Seat | TableSeat:
        engine = Engine(desk_for(one, self.limits, models), queue=self.limits.queue, name=one.name)
        return TableSeat(one, engine) if isinstance(one, ServedTable) else Seat(one, engine)

    def _able(self, name: str, ability: Ability) -> Seat | TableSeat:
        found = self.seats.get(name)
        if found is None:
            raise UnknownModelError(f"there is no model {name!r:.80} here; there is {', '.join(self.seats)}")
        if ability not in found.served.abilities:
            able = ", ".join(found.served.abilities)
            why = " It has no chat template." if ability == "chat" and able == "completions" else ""
            page = PAGES[found.served.abilities[0]]
            raise DataError(f"{name} does not answer here: it is for {able}.{why} Ask it on {page}")
        return found

    def close(self) -> None:
        """End all workers."""
        for seat in self.seats.values():
            seat.engine.stop()
        for seat in self.seats.values():
            seat.engine.close()


def desk_for(served: Served | ServedTable, limits: Limits, models: int = 1) -> Desk:
    """The way in which a model's work is done; `models` share the memory that is free."""
    if isinstance(served, ServedTable):
        return TableDesk(served.table, rows=ROWS * limits.rows)
    model = served.model
    if isinstance(model, TextEncoder):
        return ReadingDesk(model, _states(model) if model.config.head == "states" else _plain(model), rows=limits.rows)
    places = cache_positions(model, limits.memory, models)
    if isinstance(model, GPT | Llama):
        return ContinuingDesk(model, rows=limits.rows, places=places)
    return GroupDesk(model, rows=limits.rows, places=max(places // 2, 1))  # 2: a step copies what it extends


def _plain(model: TextEncoder) -> Any:
    def ask(ids: Tensor, present: Tensor, second: Tensor) -> Tensor:
        return model(ids, present=present, segments=known_segments(model, second))  # pyright: ignore[reportReturnType]

    return ask


def _states(model: TextEncoder) -> Any:
    """The mean of the tokens' vectors, with length one."""
    plain = _plain(model)

    def ask(ids: Tensor, present: Tensor, second: Tensor) -> Tensor:
        kept = plain(ids, present, second).masked_fill(~present[..., None], 0.0)
        return torch.nn.functional.normalize(kept.sum(1) / present.sum(1, keepdim=True), dim=-1)

    return ask
