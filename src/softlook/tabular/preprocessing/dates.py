"""Date columns as elapsed days and calendar features."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from softlook.base.errors import DataError
from softlook.tabular.formatting import describe_column, fraction
from softlook.tabular.io.arrow import pc
from softlook.tabular.io.column import Column, Timestamps

DAY = 86_400_000_000
"""Microseconds."""
HOUR = DAY / 24
CALENDAR: dict[str, Callable[[pa.Array], pa.Array]] = {
    "year": pc.year,
    "month": pc.month,
    "weekday": pc.day_of_week,  # Monday is 0
    "hour": lambda local: pc.divide(_since_midnight(local), HOUR),
}


@dataclass(frozen=True)
class DateEncoder:
    """Encoder of a date column: days since the earliest one, and the calendar features that vary."""

    name: str
    start: int
    """Microseconds since 1970."""
    end: int
    timezone: str | None
    calendar: tuple[str, ...]
    missing: float = 0.0
    note: str = ""

    column_type: ClassVar[Literal["date"]] = "date"
    cardinality: ClassVar[None] = None

    @classmethod
    def fit(cls, column: Column, *, note: str = "") -> "DateEncoder":
        """The time span, and which calendar features vary in it."""
        times = column.timestamps()
        known = times.micros[times.is_valid]
        if not len(known):
            return cls(column.name, 0, 0, None, (), 1.0, note)
        local = _local_time(Timestamps(known, np.ones(len(known), bool), times.timezone), times.timezone)
        calendar = tuple(name for name, extract in CALENDAR.items() if _varies(extract(local)))
        missing = fraction(len(column) - len(known), len(column))
        return cls(column.name, int(known.min()), int(known.max()), times.timezone, calendar, missing, note)

    @property
    def features(self) -> tuple[str, ...]:
        """The numbers that represent a date."""
        return ("time", *self.calendar)

    def encode(self, column: Column) -> np.ndarray:
        """(N, features) float32, NaN for missing cells."""
        if self.missing == 1.0:
            return np.full((len(column), 1), np.nan, np.float32)
        times = column.timestamps()
        if times.is_valid.any() and (times.timezone is None) != (self.timezone is None):
            raise self._timezone_error(times)
        local = _local_time(times, self.timezone)
        days = np.where(times.is_valid, (times.micros - self.start) / DAY, np.nan)
        parts = [CALENDAR[name](local).cast(pa.float64()).to_numpy(zero_copy_only=False) for name in self.calendar]
        return np.stack([days, *parts], axis=1).astype(np.float32)

    def describe(self) -> str:
        """One line about the column."""
        if self.missing == 1.0:
            return describe_column(self.name, self.column_type, missing=1.0)
        ends = Timestamps(np.array([self.start, self.end]), np.ones(2, bool), self.timezone)
        first, last = _local_time(ends, self.timezone).to_numpy(zero_copy_only=False).astype("datetime64[D]")
        return describe_column(self.name, self.column_type, self.note, f"{first} to {last}", missing=self.missing)

    def _timezone_error(self, times: Timestamps) -> DataError:
        expected, got = (timezone or "no time zone" for timezone in (self.timezone, times.timezone))
        return DataError(
            f"column {self.name!r}: expected timestamps with {expected}, got {got}",
            why="the hour would have a different meaning",
            help="use the same time zone in both tables",
        )


def _local_time(times: Timestamps, timezone: str | None) -> pa.Array:
    """Local wall-clock time in a time zone."""
    micros = pa.array(times.micros, pa.int64(), mask=~times.is_valid)
    if timezone is None:
        return micros.cast(pa.timestamp("us"))
    return pc.local_timestamp(micros.cast(pa.timestamp("us", timezone)))


def _since_midnight(local: pa.Array) -> pa.Array:
    midnight = pc.floor_temporal(local, unit="day")
    return pc.subtract(local.cast(pa.int64()), midnight.cast(pa.int64())).cast(pa.float64())


def _varies(values: pa.Array) -> bool:
    ends = pc.min_max(values)
    return ends["min"] != ends["max"]
