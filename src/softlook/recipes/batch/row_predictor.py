"""`RowPredictor`: a model that predicts rows of a table, with the parameters of a batch job."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from softlook.base.errors import ConfigError
from softlook.recipes.batch.parts import ParquetInput


@dataclass(frozen=True, kw_only=True)
class BatchParams:
    """What a batch job computes for each row. A parameter that belongs to another task is an error."""

    text: str | None = None
    """The column of texts. Default: the one called "text", or the only text column."""
    text_pair: str | None = None
    """The column of second texts, to classify pairs."""
    keep: tuple[str, ...] = ()
    """Columns to copy to the output."""
    probabilities: bool = False
    """Classifiers: add the probability of each class."""
    normalize: bool = False
    """Embeddings: scale each vector to unit length."""
    num_beams: int | None = None
    """Translations: the beam width. Default: the model's own."""
    max_new_tokens: int | None = None
    """Generated texts: the maximum number of tokens."""
    temperature: float | None = None
    """Generated texts: 0 decodes greedily. Default: 0.8."""
    seed: int | None = None
    """Generated texts: the random seed. Default: 0."""

    def check(self, task: str, *names: str) -> None:
        """Raise ConfigError if a parameter is set that is not among `names` and has no effect on a task.

        >>> BatchParams(num_beams=4).check("embed", "text", "normalize")
        Traceback (most recent call last):
        softlook.base.errors.ConfigError: --num-beams has no effect: the task of this model is embed
        """
        for name, value in vars(self).items():
            if name not in ("keep", *names) and value not in (None, False):
                raise ConfigError(f"--{name.replace('_', '-')} has no effect: the task of this model is {task}")


class RowPredictor(Protocol):
    """A model that predicts rows of a table. A prediction does not depend on other rows, nor on the part of a row."""

    columns: list[str]
    """The input columns."""
    schema: pa.Schema
    """The output columns."""

    def check(self, file: ParquetInput) -> None:
        """Raise DataError if the file lacks an input column, or one has another type."""
        ...

    def has_input(self, rows: pa.Table) -> pa.ChunkedArray:
        """Whether there is something to predict from, for each row."""
        ...

    def predict(self, rows: pa.Table, indices: Sequence[int]) -> pa.Table:
        """Predictions for rows, given with their positions in the whole input. Raises DataError for an invalid row."""
        ...
