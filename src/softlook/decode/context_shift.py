"""Context shift: generation beyond the context of a model."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from softlook.base.errors import ConfigError
from softlook.decode.outputs import GeneratedToken
from softlook.decode.sampling import SequenceState
from softlook.decode.sessions import DecodingSession

DecodeSteps = Callable[[DecodingSession, Sequence[SequenceState]], Iterator[list[GeneratedToken]]]
"""Decodes until every sequence is finished or paused; yields the tokens of each step."""


@dataclass(frozen=True)
class ContextShift:
    """Generate beyond the context: once it is full, encode its last half again and continue (as in llama.cpp).

    The model then sees between one half and all of its context; encoding costs one more forward pass per half a
    context. A prompt that fills the context is shortened likewise. The rule is the same for every model with a maximum
    length; models without one, such as Transformer-XL, are not affected.

    >>> ContextShift(num_keep=1).window([1, 5, 6, 7, 8, 9], context=6)
    [1, 8, 9]
    """

    num_keep: int = 0
    """Number of tokens at the start of the sequence that stay, such as 1 for BOS. They count towards the half."""

    def window(self, ids: Sequence[int], context: int) -> list[int]:
        """The ids that the model encodes: all of them, or the last half of a context if they fill it."""
        size = context // 2
        if not 0 <= self.num_keep < size:
            expected = f"num_keep from 0 to {size - 1}" if size else "a context of at least 2 tokens"
            raise ConfigError(f"a context shift needs {expected}, got num_keep {self.num_keep} and context {context}")
        if len(ids) < context:
            return list(ids)
        return [*ids[: self.num_keep], *ids[len(ids) - size + self.num_keep :]]

    def start_round(self, sequence: SequenceState, context: int | None) -> None:
        """Set what the model encodes of a sequence, and where it pauses."""
        if context is not None:
            sequence.window = self.window([*sequence.prompt, *sequence.generated], context)
            sequence.pause_at = len(sequence.generated) + context - len(sequence.window)


def shifted_steps(
    session: DecodingSession,
    new_session: Callable[[], DecodingSession],
    sequences: Sequence[SequenceState],
    shift: ContextShift,
    steps: DecodeSteps,
) -> Iterator[list[GeneratedToken]]:
    """Decode in rounds, each after the first with a new session, until every sequence is finished.

    A sequence that fills its context pauses until the round is over. In the next round all windows have the same
    length: a batch needs no more forward passes than its longest sequence, and its rows are independent.
    """
    while True:
        for sequence in sequences:
            shift.start_round(sequence, session.max_length)
        yield from steps(session, sequences)
        sequences = [sequence for sequence in sequences if sequence.finish_reason is None and sequence.error is None]
        if not sequences:
            return
        session = new_session()
