"""Results as JSON Lines, one per run, and Markdown tables of them."""

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Result = dict[str, Any]


def read_results(path: Path) -> list[Result]:
    """All complete lines of a file; none if it does not exist. An interrupted run may leave an incomplete line."""
    results = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            results.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return results


def append_result(path: Path, result: Result) -> None:
    """Add a line, after an incomplete one too."""
    with path.open("a+b") as file:
        if file.tell() and not _ends_with_newline(path):
            file.write(b"\n")
        file.write((json.dumps(result) + "\n").encode())


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read() == b"\n"


def group_by(results: Iterable[Result], *keys: str) -> dict[tuple[Any, ...], list[Result]]:
    """Results with equal values of these keys, in order of first appearance.

    >>> group_by([{"a": 1, "b": 2}, {"a": 1, "b": 3}], "a")
    {(1,): [{'a': 1, 'b': 2}, {'a': 1, 'b': 3}]}
    """
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for result in results:
        groups.setdefault(tuple(result[key] for key in keys), []).append(result)
    return groups


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown.

    >>> print(markdown_table(["a", "b"], [["1", "2"]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [f"| {' | '.join(cells)} |" for cells in (header, *rows)]
    return "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]])


def mean_std(values: Sequence[float], digits: int = 4) -> str:
    """The mean, and the standard deviation of more than one value.

    >>> mean_std([0.1, 0.3]), mean_std([0.5])
    ('0.2000 ± 0.1414', '0.5000')
    """
    mean = f"{statistics.mean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean
