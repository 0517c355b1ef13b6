"""Errors of single rows of a batch: which rows have no answer, and what the others answered."""

from collections.abc import Sequence
from typing import Any

from softlook.base.errors import ConfigError, WeightsError


class RowError(ValueError):
    """No token can be chosen for some rows of a batch; the other rows are not affected.

    - `rows`: the numbers of the rows that failed, in the order of the prompts.
    - `answers`: what a function that answers whole batches found for every row, None where a row failed; empty where
      the error was raised before anything was answered.
    """

    def __init__(self, what: str, rows: Sequence[int] = (), answers: Sequence[Any] = ()) -> None:
        super().__init__(what)
        self.rows, self.answers = tuple(rows), list(answers)


class LogitsError(RowError, WeightsError):
    """Logits that define no distribution: NaN, positive infinity, or negative infinity for every token.

    >>> raise LogitsError.of([3], step=2)
    Traceback (most recent call last):
    softlook.decode.row_errors.LogitsError: the model's logits are NaN or infinite in row 3, at new token 2. ...
    """

    @classmethod
    def of(cls, rows: Sequence[int], step: int | None = None) -> "LogitsError":
        which = f"row{'s' * (len(rows) > 1)} {', '.join(map(str, rows[:8]))}{', ...' * (len(rows) > 8)}"
        at = "" if step is None else f", at new token {step}"
        return cls(
            f"the model's logits are NaN or infinite in {which}{at}. "
            "Its weights are broken, or too large for their dtype: check them, or load them as float32",
            rows,
        )


class NoTokenLeftError(RowError, ConfigError):
    """Every token of a row is ruled out."""


def raised_for(errors: dict[int, RowError], answers: Sequence[Any]) -> RowError:
    """One error for all rows of a batch that failed, of the kind of the first of them, with the others' answers."""
    rows = sorted(errors)
    if all(isinstance(error, LogitsError) for error in errors.values()) and len(rows) > 1:
        whole: RowError = LogitsError.of(rows)
    else:
        whole = errors[rows[0]]
    return type(whole)(str(whole), rows, [None if row in errors else one for row, one in enumerate(answers)])
