"""Each column of a frame learned as what it is, or as what it is said to be."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from softlook.base.errors import ConfigError
from softlook.tabular.categories import CategoryColumn
from softlook.tabular.cells import Cells
from softlook.tabular.dates import DateColumn
from softlook.tabular.frames import Frame
from softlook.tabular.kinds import KINDS, Kind, guess
from softlook.tabular.numbers import NumberColumn, OrdinalColumn
from softlook.tabular.texts import TextColumn

Learned = NumberColumn | OrdinalColumn | CategoryColumn | DateColumn | TextColumn
FORMS: dict[str, Any] = {
    "number": NumberColumn,
    "ordinal": OrdinalColumn,
    "category": CategoryColumn,
    "boolean": CategoryColumn,
    "date": DateColumn,
    "text": TextColumn,
}


@dataclass(frozen=True)
class Said:
    """What a person said about columns, by name."""

    kinds: dict[str, Kind]
    orders: dict[str, list[Any] | None]
    """None: the table's own."""

    @classmethod
    def of(
        cls,
        names: tuple[str, ...],
        kinds: Mapping[Any, Kind] | None,
        ordinal: Mapping[Any, Sequence[Any]] | None,
    ) -> "Said":
        """Names and kinds that there are; a column may also go by its place."""
        orders = {name: _listed(name, order) for name, order in _by_name(names, ordinal or {}, "ordinal").items()}
        found = _by_name(names, kinds or {}, "kinds")
        for name, kind in found.items():
            if kind not in KINDS:
                raise ConfigError(f"kinds: {name!r} is {kind!r}. It may be {', '.join(map(repr, KINDS))}")
        for name in orders:
            found[name] = "ordinal"
        return cls(found, orders)


def learn_frame(frame: Frame, said: Said, *, seed: int) -> tuple[Learned, ...]:
    """All columns of a frame."""
    return tuple(learn_cells(frame.cells(place), said, seed=seed) for place in range(len(frame.names)))


def learn_cells(cells: Cells, said: Said, *, seed: int) -> Learned:
    """One column."""
    kind, how = (said.kinds[cells.name], "") if cells.name in said.kinds else guess(cells)
    if kind == "number":
        return NumberColumn.learn(cells, how=how)
    if kind == "ordinal":
        return OrdinalColumn.learn(cells, said.orders.get(cells.name))
    if kind == "date":
        return DateColumn.learn(cells, how=how)
    if kind == "text":
        return TextColumn.learn(cells, seed=seed)
    return CategoryColumn.learn(cells) if kind == "category" else CategoryColumn.learn_boolean(cells)


def _listed(name: str, order: Any) -> list[Any] | None:
    if order is not None and not isinstance(order, Iterable):
        raise ConfigError(
            f"ordinal: the order of {name!r:.80} is a list of its values, lowest first; {order!r:.80} came"
        )
    return None if order is None else list(order)


def _by_name(names: tuple[str, ...], given: Mapping[Any, Any], argument: str) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{argument} goes by the names of columns, as {{{names[0]!r:.80}: ...}}; {given!r:.80} came")
    found: dict[str, Any] = {}
    for key, value in given.items():
        name = names[key] if isinstance(key, int) and -1 < key < len(names) else key
        if name not in names:
            close = get_close_matches(str(key), names, n=1)
            meant = f"Did you mean {close[0]!r}?" if close else f"They are {', '.join(map(repr, names[:8]))}"
            raise ConfigError(f"{argument}: there is no column {key!r}. {meant}")
        found[str(name)] = value
    return found
