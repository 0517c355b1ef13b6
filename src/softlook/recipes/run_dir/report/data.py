"""What a report is made of: the events, settings, metadata, scores and data summary of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softlook.train.checkpoint.run_dir import CONFIG, EVENTS, METADATA, write_json
from softlook.train.events import read_events
from softlook.weights.schema import read_json

Settings = Sequence[tuple[str, str, str]]
"""Name, value and origin of each setting of a run."""
Event = Mapping[str, Any]
DATA_FILE = "data.json"
"""Optional summary of the data of a run."""
COMPARED, ON, IMPORTANCES = "compared", "compared_on", "importances"
"""Scores that are not numbers: scores of other models, the rows they were computed on, and feature importances."""
HEADLINES = ("bleu", "accuracy", "f1_micro", "perplexity", "rmse", "loss")
"""Scores for the headline, the first that exists."""


def write_data_summary(
    folder: Path, splits: Mapping[str, Mapping[str, int]], labels: Mapping[str, int] | None = None
) -> None:
    """Write the sizes of the splits, and the number of training examples of each label, for the report.

    >>> write_data_summary(Path(), {"training": {"examples": 90}, "validation": {"examples": 10}}, {"good": 60})
    >>> read_json(Path(DATA_FILE))["splits"]["training"]
    {'examples': 90}
    """
    write_json(folder / DATA_FILE, {"splits": splits, "labels": labels or {}})


@dataclass(frozen=True)
class ReportData:
    """Everything that is shown about a run."""

    folder: Path
    task: str
    settings: Settings
    scores: Mapping[str, Any]
    metadata: Mapping[str, Any]
    events: Sequence[Event]
    data: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path, settings: Settings, scores: Mapping[str, Any]) -> "ReportData":
        """Read the files of a run directory."""
        task = str(_read_optional(folder / CONFIG).get("task", ""))
        metadata, data = _read_optional(folder / METADATA), _read_optional(folder / DATA_FILE)
        return cls(folder, task, settings, scores, metadata, read_events(folder / EVENTS), data)

    def of(self, name: str) -> list[Event]:
        """All events of a kind."""
        return [event for event in self.events if event["event"] == name]

    def setting(self, name: str) -> str:
        """The value of a setting; empty if it is not set."""
        return next((value for known, value, _ in self.settings if known == name), "")

    def files(self, name: str) -> list[str]:
        """The data files of a setting: data, valid or test."""
        return [file for file in self.setting(name).split(", ") if file]

    @property
    def title(self) -> str:
        """Task and data, as in "classify · reviews.csv"."""
        files = [Path(file).name for file in self.files("data")]
        names = ", ".join(files[:2]) + (f" and {len(files) - 2} more" if len(files) > 2 else "")
        return " · ".join(filter(None, (self.task, names))) or self.folder.name

    @property
    def best(self) -> Event | None:
        """The evaluation of the best checkpoint."""
        return next((event for event in reversed(self.of("evaluated")) if event["is_best"]), None)

    @property
    def headline(self) -> str:
        """The name of the most important validation score; empty without evaluations."""
        names = list(self.best["scores"]) if self.best is not None else []
        return next((name for name in HEADLINES if name in names), names[0] if names else "")


def _read_optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}
