"""`RunResult`: the result of a run as text and, in notebooks, as tables."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from softlook.base.errors import escape_control
from softlook.recipes.config.autosize import format_duration
from softlook.recipes.run_dir.report.data import COMPARED, ON
from softlook.recipes.run_dir.report.formatting import (
    Cell,
    Row,
    escape_html,
    facts,
    format_score_name,
    format_table,
    format_value,
    number_cell,
    table,
)
from softlook.train.events import Finished


class RunResult:
    """Base of the results of training runs."""

    run_dir: Path
    finished: Finished
    scores: dict[str, Any]

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__}({str(self.run_dir)!r}): {self._describe_end()}"]
        for group, scores in score_groups(self.scores).items():
            shown = (f"{format_score_name(name)} {format_value(value, name)}" for name, value in scores.items())
            lines.append(f"  {group}: {', '.join(shown)}")
        if compared := self.scores.get(COMPARED):
            lines += [f"  Compared on the {self.scores.get(ON, 'same data')}:"]
            lines += [f"  {line}" for line in format_table(compared)]
        return "\n".join(map(escape_control, lines))

    def _repr_html_(self) -> str:
        run = {"run": self.run_dir, "training": self._describe_end(), "report": self.run_dir / "report.html"}
        groups, compared = score_groups(self.scores), self.scores.get(COMPARED, [])
        names = dict.fromkeys(name for scores in groups.values() for name in scores)
        rows: list[Row] = [
            [format_score_name(name), *(number_cell(scores.get(name), name) for scores in groups.values())]
            for name in names
        ]
        parts = [facts(run), table(rows, head=["score", *groups]) if rows else ""]
        if compared:
            head = [Cell(format_score_name(name)) for name in compared[0]]
            models = [[number_cell(model.get(name), name) for name in compared[0]] for model in compared]
            on = escape_html(f"Compared on the {self.scores.get(ON, 'same data')}:")
            parts += [f"<p>{on}</p>", table(models, head=head)]
        return f"<div>{''.join(parts)}</div>"

    def _describe_end(self) -> str:
        end = self.finished
        return f"{end.step:,} steps in {format_duration(end.seconds)}, {end.reason}"


def score_groups(scores: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The numbers among the scores, on validation data and on test data.

    >>> score_groups({"loss": 0.5, "accuracy": 0.9, "error": 0.1, "test": {"accuracy": 0.8, "classes": {}}})
    {'validation': {'loss': 0.5, 'accuracy': 0.9}, 'test': {'accuracy': 0.8}}
    """
    groups = {"validation": {**scores, **scores.get("validation", {})}, "test": scores.get("test", {})}
    numbers = {group: _numbers(values) for group, values in groups.items()}
    return {group: values for group, values in numbers.items() if values}


def _numbers(scores: Mapping[str, Any]) -> dict[str, float]:
    """Scores that are numbers, without the error rate if there is the accuracy."""
    hidden = ("error",) if "accuracy" in scores else ()
    return {name: value for name, value in scores.items() if isinstance(value, int | float) and name not in hidden}
