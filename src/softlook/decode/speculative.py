"""Speculative decoding: draft tokens verified in one forward pass (Leviathan et al. 2022).

A draft token is accepted only if it equals the token the model selects at its position, so the output is the same as
without a draft, also for sampling with a seed. (Sums are rounded differently: of two tokens whose logits are equal to
the last digit, the other one may be selected.)
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

import torch
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.decode.outputs import GeneratedToken
from softlook.decode.sampling import SequenceState, TokenSelector, select_tokens
from softlook.decode.sessions import DecodingSession, RewindableSession, create_session

LONG_PROMPT = 64
"""Longer prompts are read in a separate pass that does not compute the logits within the prompt."""
DraftFunction = Callable[[Sequence[int]], Sequence[int]]
"""All ids so far -> proposed next ids, any number of them."""


@torch.no_grad()
def speculative_steps(
    session: DecodingSession, sequence: SequenceState, selector: TokenSelector, draft: DraftFunction
) -> Iterator[list[GeneratedToken]]:
    """Decode one sequence with a draft; yield its tokens, which are appended to the sequence."""
    session = require_rewindable(session)
    unread = sequence.window
    if len(unread) > LONG_PROMPT:
        session.step(_as_batch(unread[:-1], session.device))
        unread = unread[-1:]
    while sequence.is_running:
        max_draft = sequence.remaining - 1
        proposed = list(draft([*sequence.prompt, *sequence.generated]))[:max_draft]
        logits = session.all_logits(_as_batch([*unread, *proposed], session.device))[0, len(unread) - 1 :]
        accepted = 0
        for position in range(len(proposed) + 1):
            token = select_tokens(logits[position : position + 1], [sequence.view()], selector)[0]
            is_accepted = position < len(proposed) and token.id == proposed[position]
            token, accepted = replace(token, from_draft=is_accepted), accepted + is_accepted
            sequence.append(token, selector.eos_ids)
            yield [token]
            if not sequence.is_running:
                return
            if not is_accepted:
                break
        session.crop(len(proposed) - accepted)
        unread = sequence.generated[-1:]


def prompt_lookup(max_ngram: int = 3, num_tokens: int = 8) -> DraftFunction:
    """Prompt lookup decoding (Saxena 2023): propose what followed the latest, longest match of the last tokens.

    Suited to outputs that quote the prompt. Every draft token is computed, accepted or not, which takes time on a CPU.

    >>> prompt_lookup(num_tokens=2)([7, 8, 9, 5, 7, 8])
    [9, 5]
    """
    if max_ngram < 1 or num_tokens < 1:
        raise ConfigError(f"prompt lookup needs max_ngram >= 1 and num_tokens >= 1, got {max_ngram} and {num_tokens}")

    def draft(ids: Sequence[int]) -> list[int]:
        ids = list(ids)
        for size in range(min(max_ngram, len(ids) - 1), 0, -1):
            for start in range(len(ids) - size - 1, -1, -1):
                if ids[start : start + size] == ids[-size:]:
                    return ids[start + size : start + size + num_tokens]
        return []

    return draft


class DraftModel:
    """A smaller model that proposes `num_tokens` tokens greedily. It keeps its own KV cache.

    An encoder-decoder is passed as a session that has encoded its source.

    >>> from softlook.models import GPT, GPTConfig
    >>> draft = DraftModel(GPT(GPTConfig(vocab_size=10, context=16, dim=16, depth=1, heads=2)).eval(), num_tokens=3)
    >>> len(draft([3, 1, 4]))
    3
    """

    def __init__(self, model: nn.Module | DecodingSession, num_tokens: int = 4) -> None:
        if num_tokens < 1:
            raise ConfigError(f"a draft model needs num_tokens >= 1, got {num_tokens}")
        session = create_session(model) if isinstance(model, nn.Module) else model
        self.session, self.num_tokens, self.cached_ids = require_rewindable(session), num_tokens, list[int]()

    @torch.no_grad()
    def __call__(self, ids: Sequence[int]) -> list[int]:
        pairs = zip(self.cached_ids, ids[:-1], strict=False)
        known = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        self.session.crop(len(self.cached_ids) - known)
        available = self.num_tokens if self.session.max_length is None else self.session.max_length - len(ids)
        proposed, unread, self.cached_ids = list[int](), list(ids[known:]), list(ids[:known])
        for _ in range(min(self.num_tokens, available)):
            proposed.append(int(self.session.step(_as_batch(unread, self.session.device)).argmax()))
            self.cached_ids, unread = self.cached_ids + unread, proposed[-1:]
        return proposed


def require_rewindable(session: DecodingSession) -> RewindableSession:
    if not isinstance(session, RewindableSession):
        raise ConfigError(
            f"speculative decoding removes rejected tokens, which {type(session).__name__} does not support"
        )
    return session


def _as_batch(ids: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor([list(ids)], device=device)
