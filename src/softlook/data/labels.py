"""Labels of texts: a class, several labels of a cell or a JSON list, or a number."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from softlook.base.errors import ConfigError
from softlook.data.columns import NUMBER
from softlook.data.records import Origin

Problem = Literal["single_label", "multi_label", "regression"]
SEPARATORS = (";", "|", ",")
"""What may separate the labels of a cell, in the order of preference."""
JOINED = "; "
"""Separates several labels where they are shown as one text."""


MAX_NUMERIC_CLASSES = 20
"""Different labels that are numbers above which regression is suggested."""


class Label(NamedTuple):
    """What a label column says about a text."""

    text: str
    """Empty if there is no label."""
    labels: tuple[str, ...] | None = None
    """Of multi-label data: any number of labels."""
    value: float | None = None
    """Of regression data."""


ParseLabel = Callable[[Any, str, Origin], Label]
"""The value of a cell, the column and the origin -> the label; raises an error for a value that cannot be one."""


@dataclass(frozen=True)
class LabelFormat:
    """How the cells of a label column are read."""

    problem: Problem | None = None
    separator: str | None = None
    """Between the labels of a cell; None: a cell is one label."""
    note: str = ""
    """What was inferred, as a sentence."""

    @property
    def parse(self) -> ParseLabel:
        parsers: dict[Problem | None, ParseLabel] = {
            "multi_label": partial(parse_labels, self.separator),
            "regression": parse_value,
        }
        return parsers.get(self.problem, parse_class)

    @property
    def inferred(self) -> dict[str, str]:
        """The problem and the separator, by the names of the options; a single label per text is the default."""
        named = {"problem": self.problem, "label_separator": self.separator}
        return {name: value for name, value in named.items() if value and self.problem == "multi_label"}


def infer_label_format(problem: Problem | None, separator: str | None, sample: Sequence[Any]) -> LabelFormat:
    """The format of a label column: lists are several labels, and so are cells where that is requested.

    >>> infer_label_format(None, None, [["a", "b"], []]).problem, infer_label_format(None, None, ["a;b"]).problem
    ('multi_label', None)
    >>> infer_label_format("multi_label", None, ["big, red", "red;round", "red;flat"]).separator
    ';'
    """
    if separator and problem not in (None, "multi_label"):
        raise ConfigError(f"--label-separator is for --problem multi_label, not for {problem}")
    if problem is None and (separator or any(isinstance(value, list) for value in sample)):
        problem = "multi_label"
    if problem != "multi_label":
        return LabelFormat(problem)
    cells = [value for value in sample if isinstance(value, str)]
    found = separator or detect_separator(cells)
    by = f", separated by {found!r}" if found else ", one label in each row" if cells else ""
    return LabelFormat(problem, found, f"every text has any number of labels{by}")


def detect_separator(cells: Sequence[str]) -> str | None:
    """The separator in most of the cells; None if there is none in any of them."""
    counts = Counter({separator: sum(separator in cell for cell in cells) for separator in SEPARATORS})
    separator, count = counts.most_common(1)[0]
    return separator if count else None


def parse_class(value: Any, column: str, origin: Origin) -> Label:
    """A class."""
    return Label(as_text(value, column, origin).strip())


def parse_labels(separator: str | None, value: Any, column: str, origin: Origin) -> Label:
    """Several labels, each once: the items of a list, or the parts of a cell.

    >>> parse_labels(";", "red; round;;red", "tags", None).labels, parse_labels(";", None, "tags", None).labels
    (('red', 'round'), ())
    """
    cells = value if isinstance(value, list) else [value]
    texts = [as_text(cell, column, origin) for cell in cells]
    if separator and not isinstance(value, list):
        texts = texts[0].split(separator)
    labels = tuple(dict.fromkeys(text.strip() for text in texts if text.strip()))
    return Label(JOINED.join(labels), labels)


def parse_value(value: Any, column: str, origin: Origin) -> Label:
    """A number."""
    text = as_text(value, column, origin).strip()
    try:
        number = float(text) if text else None
    except ValueError:
        number = math.nan
    if number is not None and not math.isfinite(number):
        what = f"{column!r:.80}: expected a number, got {text!r:.40}"
        raise origin.error(what, help="regression needs numbers; classes are --problem single_label")
    return Label(text, value=number)


def suggest_regression(labels: Iterable[str]) -> str:
    """A hint at regression if there are many different labels, all of them numbers; otherwise empty.

    >>> suggest_regression(map(str, range(5))), suggest_regression(map(str, range(21)))
    ('', 'the 21 different labels are numbers: --problem regression predicts a number instead of a class')
    """
    different = set(labels)
    if len(different) <= MAX_NUMERIC_CLASSES or not all(NUMBER.fullmatch(label) for label in different):
        return ""
    what = f"the {len(different):,} different labels are numbers"
    return f"{what}: --problem regression predicts a number instead of a class"


def as_text(value: Any, column: str, origin: Origin) -> str:
    """The value of a cell as text; a missing value is empty."""
    if isinstance(value, str):
        return value
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(int(value)) if value == int(value) else str(value)
    kind = {list: "a list", dict: "an object"}.get(type(value), f"a {type(value).__name__}")
    raise origin.error(f"{column!r:.80}: expected a text or a number, got {kind}", excerpt=str(value)[:200])
