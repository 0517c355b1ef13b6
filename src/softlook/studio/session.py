"""The state of a studio: its recordings, its model, its twins."""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from softlook.base.errors import ConfigError, DataError
from softlook.base.version import VERSION
from softlook.lens.trace import Trace
from softlook.lens.twins import Twins
from softlook.studio.live import LiveModel, ModelInput
from softlook.studio.recording import StudioTrace

MAX_RECORDINGS, MAX_TWINS = 64, 8
"""Of more, the oldest that were made on the page are dropped."""


class UnknownError(DataError):
    """There is no recording, no twins, or no run with this id."""


class Runs(Protocol):
    """Training runs, wherever they are read from."""

    def all(self) -> list[dict[str, Any]]: ...

    def curves(self, id: str) -> dict[str, Any]: ...

    def samples(self, id: str) -> list[dict[str, Any]]: ...

    def checkpoints(self, id: str) -> list[dict[str, Any]]: ...

    def attention(self, id: str, step: int) -> StudioTrace: ...

    def lines(self, id: str, first: int) -> tuple[list[dict[str, Any]], bool]:
        """The log from a line on, and whether the run is still active."""
        ...


class Table(Protocol):
    """A table model with some rows."""

    def columns(self) -> dict[str, Any]: ...

    def predict(self, row: dict[str, Any]) -> tuple[dict[str, Any], StudioTrace]: ...

    def importance(self) -> dict[str, Any]: ...


@dataclass(eq=False)
class TwinRecordings:
    """Two recordings that are aligned position by position."""

    id: str
    first: StudioTrace
    second: StudioTrace
    twins: Twins


class Studio:
    """The recordings of a studio by id, its model, its runs and its table."""

    def __init__(
        self,
        recordings: Iterable[StudioTrace] = (),
        *,
        live: LiveModel | None = None,
        runs: Runs | None = None,
        table: Table | None = None,
    ) -> None:
        self.live, self.runs, self.table = live, runs, table
        self.source = ""
        """What `softlook studio` was started with, for the lines of Python that draw a view again."""
        self.loading = False
        """Whether a model is still being loaded."""
        self.closing = threading.Event()
        self.twins: OrderedDict[str, TwinRecordings] = OrderedDict()
        self._recordings: OrderedDict[str, StudioTrace] = OrderedDict()
        self._lock = threading.Lock()
        self._kept: set[str] = set()
        self._listed: set[str] = set()
        self._checkpoints: dict[tuple[str, int], StudioTrace] = {}
        for recording in recordings:
            self.add(recording, keep=True, listed=True)

    def add(self, recording: StudioTrace, *, keep: bool = False, listed: bool = False) -> StudioTrace:
        """Add a recording; one that is not kept may be dropped later. `listed` ones are offered by name."""
        with self._lock:
            self._recordings[recording.id] = recording
            if listed:
                self._listed.add(recording.id)
            if keep:
                self.keep(recording.id)
            passing = [id for id in self._recordings if id not in self._kept]
            for id in passing[:-MAX_RECORDINGS]:
                del self._recordings[id]
        return recording

    def keep(self, id: str) -> None:
        """Never drop a recording."""
        self._kept.add(id)

    def recording(self, id: str) -> StudioTrace:
        found = self._recordings.get(id)
        if found is None:
            raise UnknownError(f"there is no trace {id!r:.40}; it may have been dropped: make it again")
        return found

    def first(self) -> StudioTrace:
        """The recording that the page opens with."""
        found = next(iter(self._recordings.values()), None)
        if found is None:
            raise UnknownError("the studio has no trace")
        return found

    def find_twins(self, id: str) -> TwinRecordings:
        found = self.twins.get(id)
        if found is None:
            raise UnknownError(f"there are no twins {id!r:.40}; they may have been dropped: make them again")
        return found

    def add_twins(self, first: StudioTrace, second: StudioTrace, twins: Twins) -> TwinRecordings:
        """Add twins; of many, the oldest are dropped."""
        pair = TwinRecordings(f"{first.id}-{second.id}", first, second, twins)
        with self._lock:
            self.twins[pair.id] = pair
            while len(self.twins) > MAX_TWINS:
                self.twins.popitem(last=False)
        return pair

    def checkpoint(self, run: str, step: int) -> StudioTrace:
        """The recorded attention of a run at a step."""
        if self.runs is None:
            raise UnknownError(f"there is no run {run!r:.80}")
        if (run, step) not in self._checkpoints:
            self._checkpoints[run, step] = self.add(self.runs.attention(run, step), keep=True, listed=False)
        return self._checkpoints[run, step]

    def require_live(self, capability: str = "") -> LiveModel:
        """The model; an error without one, or if it cannot do this."""
        if self.live is None:
            raise ConfigError("no model is loaded: softlook studio RUN loads one")
        if capability:
            self.live.require(capability)
        return self.live

    def attach(self, live: LiveModel) -> None:
        """Add a model, also to the recordings that were made with it."""
        self.live = live
        for recording in self._recordings.values():
            if recording.model == live.name and recording.live is None:
                recording.live = live

    def record(self, text: str, pair: str | None = None, target: str | None = None) -> StudioTrace:
        """A new recording of the model's reading of a text."""
        live = self.require_live()
        given = live.encode(text, pair, target)
        return self.add(self.describe(live, given, live.record(given)), listed=True)

    def describe(self, live: LiveModel, given: ModelInput, trace: Trace) -> StudioTrace:
        """The recording of a forward pass."""
        return StudioTrace(trace, given.title, live.name, live.task, live, given.predicted)

    def close(self) -> None:
        """Stop what is still waiting, such as the events of a run."""
        self.closing.set()

    def info(self) -> dict[str, Any]:
        """What the page reads first."""
        recordings = [one for id, one in self._recordings.items() if id in self._listed]
        capabilities = [] if self.live is None else ["trace", *self.live.capabilities]
        capabilities += ["runs"] * (self.runs is not None) + ["table"] * (self.table is not None)
        main = self.live.task if self.live is not None else next((one.task for one in recordings), "other")
        return {
            "version": VERSION,
            "task": "table" if self.table is not None else main,
            "title": self.live.name if self.live is not None else next((one.model for one in recordings), ""),
            "capabilities": capabilities,
            "source": self.source,
            "loading": self.loading,
            "traces": [one.info() for one in recordings],
            "runs": [] if self.runs is None else self.runs.all(),
        }
