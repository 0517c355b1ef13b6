"""Generated tokens, finish reasons and errors of single rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from softlook.base.errors import ConfigError, WeightsError

FinishReason = Literal["eos", "stop", "length"]
"""Why generation ended: an end-of-sequence token, a stop string, or the length limit."""


@dataclass(frozen=True)
class SequenceView:
    """A sequence in progress, as logits processors and samplers see it."""

    prompt: Sequence[int]
    """Prompt ids; for an encoder-decoder, the decoder prefix."""
    generated: Sequence[int] = ()
    """Ids generated so far."""
    index: int = 0
    """Index of the sequence in the batch: each index has its own random numbers."""

    @property
    def ids(self) -> list[int]:
        """Prompt and generated ids."""
        return [*self.prompt, *self.generated]

    def last(self, count: int) -> list[int]:
        """The last `count` ids, or as many as there are."""
        generated = list(self.generated[max(len(self.generated) - count, 0) :])
        return [*self.prompt[max(len(self.prompt) - count + len(generated), 0) :], *generated]


@dataclass(frozen=True)
class GeneratedToken:
    """A generated token. Its log-probability is the model's own, before logits processors and sampling."""

    id: int
    logprob: float
    rank: int
    """1 for the most likely token."""
    top_logprobs: tuple[tuple[int, float], ...] = ()
    """Ids and log-probabilities of the most likely tokens, best first, as many as requested."""
    from_draft: bool = False
    """Whether the token was proposed by a draft and accepted."""


@dataclass(frozen=True)
class GenerationOutput:
    """The continuation of one sequence."""

    tokens: list[GeneratedToken]
    """Without the end-of-sequence token."""
    finish_reason: FinishReason
    eos_token: GeneratedToken | None = None
    """The end-of-sequence token, if one was generated."""
    text: str | None = field(default=None)
    """Text up to the stop string; None if no stop strings were given."""

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    @property
    def logprob(self) -> float:
        """Log-probability of all tokens, the end-of-sequence token included."""
        eos = 0.0 if self.eos_token is None else self.eos_token.logprob
        return sum(token.logprob for token in self.tokens) + eos


class RowError(ValueError):
    """No token can be selected for some rows of a batch; the other rows are not affected.

    - `rows`: indices of the rows that failed, in the order of the prompts.
    - `outputs`: for functions that process whole batches, the output of every row, None where a row failed; empty if
      the error was raised before any output was complete.
    """

    def __init__(self, message: str, rows: Sequence[int] = (), outputs: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.rows, self.outputs = tuple(rows), list(outputs)


class LogitsError(RowError, WeightsError):
    """Logits that define no distribution: NaN, positive infinity, or negative infinity for every token.

    >>> raise LogitsError.for_rows([3], step=2)
    Traceback (most recent call last):
    softlook.decode.outputs.LogitsError: the model's logits are NaN or infinite in row 3, at new token 2. ...
    """

    @classmethod
    def for_rows(cls, rows: Sequence[int], step: int | None = None) -> "LogitsError":
        names = f"row{'s' * (len(rows) > 1)} {', '.join(map(str, rows[:8]))}{', ...' * (len(rows) > 8)}"
        where = "" if step is None else f", at new token {step}"
        return cls(
            f"the model's logits are NaN or infinite in {names}{where}. "
            "Its weights are broken, or too large for their dtype: check them, or load them as float32",
            rows,
        )


class NoTokenLeftError(RowError, ConfigError):
    """Logits processors mask every token of a row."""


def merge_row_errors(errors: dict[int, RowError], outputs: Sequence[Any]) -> RowError:
    """One error for all failed rows of a batch, of the type of the first, with the outputs of the other rows."""
    rows = sorted(errors)
    if all(isinstance(error, LogitsError) for error in errors.values()) and len(rows) > 1:
        first: RowError = LogitsError.for_rows(rows)
    else:
        first = errors[rows[0]]
    return type(first)(str(first), rows, [None if row in errors else one for row, one in enumerate(outputs)])
