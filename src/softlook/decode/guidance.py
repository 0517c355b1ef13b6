"""Classifier-free guidance: texts of a class, weighing it more than the model alone would."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softlook.base.errors import ConfigError, ShapeError
from softlook.decode.sessions import DecodingSession


class GuidedSession:
    """Two sessions of one model, with and without the condition (Ho and Salimans 2022).

    The condition is the token at `position` of every prompt, such as a label. The log probabilities are
    without + `scale` x (with - without): 1 is the model with the condition, 0 without it, and more follows it more
    strongly.

    >>> from softlook.decode import create_session, generate
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=16, dim=16, depth=1, heads=2)).eval()
    >>> session = GuidedSession(create_session(model), create_session(model), scale=3.0, position=1)
    >>> len(generate(session, [[1, 7, 4]], max_new_tokens=5)[0].ids)
    5
    """

    def __init__(
        self, conditional: DecodingSession, unconditional: DecodingSession, *, scale: float, position: int
    ) -> None:
        if scale < 0:
            raise ConfigError(f"expected a guidance scale of at least 0, got {scale}")
        self.conditional, self.unconditional, self.scale, self.position = conditional, unconditional, scale, position
        self.device, self.max_length, self.is_empty = conditional.device, conditional.max_length, True

    def step(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N V"]:
        without = (ids, lengths)
        if self.is_empty:
            without = without_position(ids, lengths, self.position)
            self.is_empty = False
        likely, base = _step(self.conditional, ids, lengths), _step(self.unconditional, *without)
        likely, base = likely.float().log_softmax(-1), base.float().log_softmax(-1)
        return base + self.scale * (likely - base)

    def reorder(self, rows: Int[Tensor, " M"]) -> None:
        self.conditional.reorder(rows)
        self.unconditional.reorder(rows)


def without_position(
    ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None, position: int
) -> tuple[Int[Tensor, "N T1"], Int[Tensor, " N"] | None]:
    """Left-padded rows without the token at this position of each, and their lengths.

    >>> without_position(torch.tensor([[0, 1, 7], [1, 7, 4]]), torch.tensor([2, 3]), 1)
    (tensor([[0, 1],
            [1, 4]]), tensor([1, 2]))
    """
    rows, columns = ids.shape
    sizes = torch.full((rows,), columns, device=ids.device) if lengths is None else lengths.to(ids.device)
    if int(sizes.min()) <= max(position, 1):
        raise ShapeError(f"expected prompts with a token besides the one at position {position}")
    removed = columns - sizes + position
    kept = torch.arange(columns, device=ids.device) != removed[:, None]
    return ids[kept].view(rows, columns - 1), None if lengths is None else lengths - 1


def _step(session: DecodingSession, ids: Tensor, lengths: Tensor | None) -> Tensor:
    return session.step(ids) if lengths is None else session.step(ids, lengths)
