"""What was measured, a line of JSON for each run; and Markdown made of such lines."""

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def read(path: Path) -> list[Line]:
    """All lines that are there; none where there is no file yet, and not the last where it was cut off."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def append(path: Path, line: Line) -> None:
    """At once and whole, so that a run that is cut off loses nothing it had."""
    with path.open("a+b") as file:
        if file.tell() and not _ends_well(path):
            file.write(b"\n")
        file.write((json.dumps(line) + "\n").encode())


def _ends_well(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read() == b"\n"


def grouped(lines: Iterable[Line], *names: str) -> dict[tuple[Any, ...], list[Line]]:
    """Lines that say the same under these names together, in the order in which they first came.

    >>> grouped([{"a": 1, "b": 2}, {"a": 1, "b": 3}], "a")
    {(1,): [{'a': 1, 'b': 2}, {'a': 1, 'b': 3}]}
    """
    groups: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        groups.setdefault(tuple(line[name] for name in names), []).append(line)
    return groups


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown.

    >>> print(markdown(["a", "b"], [["1", "2"]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("|---" * len(line) + "|" if line[0] == "---" else f"| {' | '.join(line)} |" for line in lines)


def std(values: Sequence[float], digits: int = 4) -> str:
    """A mean, and a standard deviation where there is more than one.

    >>> spread([0.1, 0.3]), spread([0.5])
    ('0.2000 ± 0.1414', '0.5000')
    """
    mean = f"{statistics.mean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean
