"""Guess several words ahead, and read the guesses at once: where they are right, one look says many words.

A guess is only ever compared with what the model says at that place, so the answer is the same as without; with a
seed, that goes for sampling as well. (As far as numbers go that are added up in another order: of two words that are
equally likely to the last digit, the other one may be said.)
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

import torch
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.decode.choosing import Asked, Row, chosen
from softlook.decode.said import Token
from softlook.decode.speakers import speaker_for
from softlook.decode.speaking import Rewinding, Speaker

LONG = 64
"""Tokens of a prompt from which on it is read by itself, so that the logits within it are not computed."""
Draft = Callable[[Sequence[int]], Sequence[int]]
"""All ids so far -> what may come next, several words of it or none."""


@torch.no_grad()
def ahead(speaker: Speaker, row: Row, asked: Asked, draft: Draft) -> Iterator[list[Token]]:
    """The words of one row, those that were guessed marked as such. The row takes them in."""
    speaker = rewindable(speaker)
    unread = row.prompt
    if len(unread) > LONG:  # nobody asks for the logits within the prompt
        speaker.next(_row(unread[:-1], speaker.device))
        unread = unread[-1:]
    while row.reason is None:
        guess = list(draft([*row.prompt, *row.new]))[: row.limit - len(row.new) - 1]
        scores = speaker.read(_row([*unread, *guess], speaker.device))[0, len(unread) - 1 :]
        right = 0
        for place in range(len(guess) + 1):
            token = chosen(scores[place : place + 1], [row.said()], asked)[0]
            is_right = place < len(guess) and token.id == guess[place]
            token, right = replace(token, guessed=is_right), right + is_right
            row.take(token, asked.end)
            yield [token]
            if row.reason is not None:
                return
            if not is_right:
                break
        speaker.forget(len(guess) - right)
        unread = row.new[-1:]


def look_up(longest: int = 3, ahead: int = 8) -> Draft:
    """What came after the last words when they came before, in the prompt or the answer: the latest, longest match.

    For answers that quote: every guess is read, right or wrong, and a CPU takes its time for each.

    >>> look_up(ahead=2)([7, 8, 9, 5, 7, 8])
    [9, 5]
    """
    if longest < 1 or ahead < 1:
        raise ConfigError(f"to look up words, match 1 at least and guess 1 at least; {longest=}, {ahead=} came")

    def draft(ids: Sequence[int]) -> list[int]:
        ids = list(ids)
        for size in range(min(longest, len(ids) - 1), 0, -1):
            for start in range(len(ids) - size - 1, -1, -1):
                if ids[start : start + size] == ids[-size:]:
                    return ids[start + size : start + size + ahead]
        return []

    return draft


class Drafting:
    """A smaller model that says what it would say, `ahead` words of it. It remembers what it has read.

    One that reads a source is handed in as a speaker that has read it.

    >>> from softlook.models import GPT, GPTConfig
    >>> draft = Drafting(GPT(GPTConfig(vocab=10, context=16, dim=16, depth=1, heads=2)).eval(), ahead=3)
    >>> len(draft([3, 1, 4]))
    3
    """

    def __init__(self, model: nn.Module | Speaker, ahead: int = 4) -> None:
        if ahead < 1:
            raise ConfigError(f"a draft guesses 1 word at least; {ahead=} came")
        speaker = speaker_for(model) if isinstance(model, nn.Module) else model
        self.speaker, self.ahead, self.heard = rewindable(speaker), ahead, list[int]()

    @torch.no_grad()
    def __call__(self, ids: Sequence[int]) -> list[int]:
        known = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self.heard, ids[:-1], strict=False)))
        self.speaker.forget(len(self.heard) - known)
        room = self.ahead if self.speaker.context is None else self.speaker.context - len(ids)
        guess, unread, self.heard = list[int](), list(ids[known:]), list(ids[:known])
        for _ in range(min(self.ahead, room)):
            guess.append(int(self.speaker.next(_row(unread, self.speaker.device)).argmax()))
            self.heard, unread = self.heard + unread, guess[-1:]
        return guess


def rewindable(speaker: Speaker) -> Rewinding:
    if not isinstance(speaker, Rewinding):
        raise ConfigError(f"guesses have to be taken back where they are wrong; {type(speaker).__name__} cannot")
    return speaker


def _row(ids: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor([list(ids)], device=device)
