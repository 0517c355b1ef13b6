"""Training runs as the studio shows them: curves, samples, and attention over checkpoints, also during training."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from softlook.base.errors import DataError
from softlook.blocks.attention import AttentionCore
from softlook.lens.attention_trace import AttentionCall, AttentionTrace
from softlook.lens.trace import Trace
from softlook.recipes.run_dir.layout import list_runs
from softlook.studio.recording import StudioTrace
from softlook.studio.session import UnknownError
from softlook.train.checkpoint.run_dir import EVENTS
from softlook.train.events import read_events

CURVES = ("loss", "lr", "grad_norm", "tokens_per_second")
"""Series of the logged steps; every evaluation adds its scores."""
MAX_POINTS = 4000
"""Points of a series; of more, evenly spaced ones."""


class RunFolder:
    """All runs below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def all(self) -> list[dict[str, Any]]:
        """The runs, newest first."""
        return [
            {
                "id": self._id(run.path),
                "title": run.path.name,
                "task": run.task,
                "step": run.step,
                "steps": run.steps,
                "best": run.best,
                "state": run.state,
            }
            for run in list_runs(self.folder)
            if (run.path / EVENTS).is_file()
        ]

    def curves(self, id: str) -> dict[str, Any]:
        """{series: {name: [[step, value]]}}."""
        series: dict[str, list[list[float]]] = {}
        for event in self._events(id):
            values = {name: event.get(name) for name in CURVES} if event["event"] == "step_logged" else {}
            if event["event"] == "evaluated":
                values = {f"validation {name}": value for name, value in event["scores"].items()}
            for name, value in values.items():
                if isinstance(value, int | float):
                    series.setdefault(name, []).append([event["step"], value])
        return {"series": {name: _thin(points) for name, points in series.items()}}

    def samples(self, id: str) -> list[dict[str, Any]]:
        """Outputs of the model by step: [{step, text, samples}]."""
        found = [event for event in self._events(id) if event["event"] == "sampled" and event.get("samples")]
        return [
            {"step": event["step"], "text": "\n".join(map(_text, event["samples"])), "samples": event["samples"]}
            for event in found
        ]

    def checkpoints(self, id: str) -> list[dict[str, Any]]:
        """The steps at which attention on a fixed text was recorded."""
        return [{"step": event["step"], "tokens": event["attention"][0]["tokens"]} for event in self._attention(id)]

    def attention(self, id: str, step: int) -> StudioTrace:
        """The recorded attention of one step, the mean over the heads of the last layer, as a trace."""
        found = next((event for event in self._attention(id) if event["step"] == step), None)
        if found is None:
            raise UnknownError(f"the run {id!r:.80} recorded no attention at step {step}")
        sample = found["attention"][0]
        weights = torch.tensor(sample["weights"])[None, None]
        return StudioTrace(recorded_weights(weights, sample["tokens"]), f"{Path(id).name}, step {step}", Path(id).name)

    def lines(self, id: str, first: int) -> tuple[list[dict[str, Any]], bool]:
        """The events from a line on, and whether more may follow."""
        events = self._events(id)
        finished = bool(events) and events[-1]["event"] == "finished"
        return events[first:], not finished

    def _attention(self, id: str) -> Iterator[dict[str, Any]]:
        return (event for event in self._events(id) if event["event"] == "sampled" and event.get("attention"))

    def _events(self, id: str) -> list[dict[str, Any]]:
        return read_events(self._path(id) / EVENTS)

    def _id(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix() if path != self.folder else "."

    def _path(self, id: str) -> Path:
        """The folder of a run; only of one that is listed."""
        if id not in {run["id"] for run in self.all()}:
            raise UnknownError(f"there is no run {id!r:.80}")
        return self.folder / id


def recorded_weights(weights: torch.Tensor, tokens: list[str]) -> Trace:
    """Weights as a trace: their logarithms are scores, as products of queries with unit vectors as keys.

    >>> weights = torch.tensor([[[[0.25, 0.75], [1.0, 0.0]]]])
    >>> recorded_weights(weights, ["a", "b"])["attention"].weights().round(decimals=4)
    tensor([[[[0.2500, 0.7500],
              [1.0000, 0.0000]]]])
    """
    B, H, T, S = weights.shape
    if T == 0 or S == 0:
        raise DataError("expected weights of at least one token")
    query = weights.clamp(min=1e-12).log()
    key = torch.eye(S).expand(B, H, S, S)
    call = AttentionCall(AttentionCore(scale=1.0).eval(), query, key, None, None, key.norm(dim=-1))
    return Trace({"attention": AttentionTrace([call])}, {}, tokens=tokens)


def _text(sample: dict[str, str]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in sample.items())


def _thin(points: list[list[float]]) -> list[list[float]]:
    """Evenly spaced points, with the last."""
    step = -(-len(points) // MAX_POINTS)
    return points[::-1][:: max(step, 1)][::-1]
