"""Columns of dates and times: how long ago, and what a calendar and a clock show."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from softlook.base.errors import DataError
from softlook.tabular.sources.arrow import pc
from softlook.tabular.sources.cells import Cells, Times
from softlook.tabular.wording import share, told

DAY = 86_400_000_000
"""Microseconds."""
HOUR = DAY / 24
PARTS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "year": pc.year,
    "month": pc.month,
    "weekday": pc.day_of_week,  # Monday is 0
    "hour": lambda clock: pc.divide(_since_midnight(clock), HOUR),
}


@dataclass(frozen=True)
class DateColumn:
    """A column of moments: days since the first of them, and those parts of the calendar that vary."""

    name: str
    start: int
    """Microseconds since 1970."""
    end: int
    zone: str | None
    parts: tuple[str, ...]
    missing: float = 0.0
    how: str = ""

    kind: ClassVar[Literal["date"]] = "date"
    size: ClassVar[None] = None

    @classmethod
    def learn(cls, cells: Cells, *, how: str = "") -> "DateColumn":
        """The span of time, and what varies in it."""
        times = cells.times()
        known = times.moments[times.known]
        if not len(known):
            return cls(cells.name, 0, 0, None, (), 1.0, how)
        clock = _clock(Times(known, np.ones(len(known), bool), times.zone), times.zone)
        parts = tuple(name for name, part in PARTS.items() if _varies(part(clock)))
        missing = share(len(cells) - len(known), len(cells))
        return cls(cells.name, int(known.min()), int(known.max()), times.zone, parts, missing, how)

    @property
    def slots(self) -> tuple[str, ...]:
        """Numbers that stand for a moment."""
        return ("time", *self.parts)

    def encode(self, cells: Cells) -> np.ndarray:
        """(N, slots) float32, NaN where missing."""
        if self.missing == 1.0:
            return np.full((len(cells), 1), np.nan, np.float32)
        times = cells.times()
        if times.known.any() and (times.zone is None) != (self.zone is None):
            raise self._other_clock(times)
        clock = _clock(times, self.zone)
        since = np.where(times.known, (times.moments - self.start) / DAY, np.nan)
        parts = [PARTS[part](clock).cast(pa.float64()).to_numpy(zero_copy_only=False) for part in self.parts]
        return np.stack([since, *parts], axis=1).astype(np.float32)

    def told(self) -> str:
        """A line for people."""
        if self.missing == 1.0:
            return told(self.name, self.kind, missing=1.0)
        ends = Times(np.array([self.start, self.end]), np.ones(2, bool), self.zone)
        first, last = _clock(ends, self.zone).to_numpy(zero_copy_only=False).astype("datetime64[D]")
        return told(self.name, self.kind, self.how, f"{first} to {last}", missing=self.missing)

    def facts(self) -> dict[str, Any]:
        """What `DateColumn(**facts)` is made of."""
        return vars(self).copy()

    def _other_clock(self, times: Times) -> DataError:
        fitted, came = (zone or "no time zone" for zone in (self.zone, times.zone))
        return DataError(
            f"column {self.name!r} was learned with {fitted}; now its times have {came}",
            why="an hour would mean something else",
            help="give both the same",
        )


def _clock(times: Times, zone: str | None) -> pa.Array:
    """What the clock on the wall shows, there."""
    moments = pa.array(times.moments, pa.int64(), mask=~times.known)
    if zone is None:
        return moments.cast(pa.timestamp("us"))
    return pc.local_timestamp(moments.cast(pa.timestamp("us", zone)))


def _since_midnight(clock: pa.Array) -> pa.Array:
    midnight = pc.floor_temporal(clock, unit="day")
    return pc.subtract(clock.cast(pa.int64()), midnight.cast(pa.int64())).cast(pa.float64())


def _varies(values: pa.Array) -> bool:
    ends = pc.min_max(values)
    return ends["min"] != ends["max"]
