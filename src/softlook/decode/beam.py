"""Beam search: several likely beginnings are kept, and the best whole sequence wins."""

from collections.abc import Collection, Sequence
from contextlib import nullcontext

import torch
from jaxtyping import Int
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.decode.beams import Beams
from softlook.decode.branching import watching
from softlook.decode.captured.beams import CapturedBeams
from softlook.decode.captured.speaker import Captured, why_not
from softlook.decode.history import Tell
from softlook.decode.penalties import LengthPenalty, power
from softlook.decode.phrases import Phrases
from softlook.decode.rows import filled_left
from softlook.decode.rules import Rule
from softlook.decode.search import EarlyStopping, Wanted
from softlook.decode.search import Hypothesis as Hypothesis
from softlook.decode.speaking import Speaker

WORTH = 4
"""Words from which on it pays to capture a step."""


@torch.no_grad()
def beam(  # noqa: PLR0913  (a search has many settings, and each is told by its name)
    speaker: Speaker,
    start: Int[Tensor, "N T"] | Sequence[Sequence[int]],
    *,
    end: int | Collection[int],
    longest: int,
    beams: int = 4,
    penalty: float | LengthPenalty = 1.0,
    coverage: float = 0.0,
    shortest: int = 0,
    groups: int = 1,
    diversity: float = 0.0,
    rules: Sequence[Rule] = (),
    early_stopping: EarlyStopping = "never",
    phrases: Sequence[Sequence[Sequence[int]]] | None = None,
    align: bool = False,
    tell: Tell | None = None,
) -> list[list[Hypothesis]]:
    """The best `beams` whole sequences for each start, best first, each different from the others.

    - `start`: what each sequence begins with; rows of ids need not be equally long.
    - `penalty`: what log-probabilities are divided by: the length to this power, or what `gnmt` or any function of the
      length says.
    - `coverage`: how much it costs to leave words of the source unseen (Wu et al. 2016).
    - `shortest`: how many words there are before an end at least; `longest`: with it, at most.
    - `groups`, `diversity`: the beams are parted, and a word costs so much for each time that a group before has
      chosen it for the same place (Vijayakumar et al. 2016); the cost stays in the score.
    - `rules`: see log-probabilities; they may lower them, but not lift them above 0.
    - `phrases`: for each start, words that must appear, in a row within a phrase and in any order beyond.
    - `align`: tell where the model looked in the source with each word.
    - `tell`: is told of every step, with all that was kept and dropped.

    Sequences whose logits are NaN or infinite fail; the others are searched on, and a `LogitsError` then names the
    `rows` that failed and holds the `answers` of the others.

    It stops only when nothing better can come; with `early_stopping=False` or `True` earlier, as Hugging Face's
    `generate` does: when none under way is better by its present length, or as soon as `beams` sequences are whole.

    >>> from softlook.decode import Continuing
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab=10, context=8, dim=16, depth=1, heads=2)).eval()
    >>> found = beam(Continuing(model), torch.tensor([[3, 1]]), end=0, longest=5, beams=3)
    >>> len(found[0]), found[0][0].score >= found[0][1].score
    (3, True)
    """
    wanted = Wanted(
        ends=(end,) if isinstance(end, int) else tuple(end),
        longest=longest,
        shortest=shortest,
        beams=beams,
        groups=groups,
        diversity=diversity,
        penalty=power(penalty) if isinstance(penalty, int | float) else penalty,
        coverage=coverage,
        early_stopping=early_stopping,
    )
    musts = None if phrases is None else _musts(phrases, len(start), wanted)
    if not len(start):
        return []
    if not isinstance(start, Tensor) and not all(start):
        raise ConfigError("every sequence wants at least one id to begin with; an empty one came")
    ids, lengths = (start, None) if isinstance(start, Tensor) else filled_left(start, speaker.device)
    asked_more = rules or musts is not None or align or coverage or tell is not None or groups > 1
    asked_more = asked_more or early_stopping is True
    has_room = speaker.context is None or ids.shape[1] + longest - 1 <= speaker.context
    if not asked_more and longest >= WORTH and has_room and why_not(speaker) is None:
        captured = Captured(speaker, room=ids.shape[1] + longest)  # pyright: ignore[reportArgumentType]  (just asked)
        return CapturedBeams(captured, ids, lengths, wanted).run()
    with watching(speaker) if align or coverage else nullcontext() as looks:
        search = Beams(speaker, ids, lengths, wanted, rules=rules, musts=musts, looks=looks, align=align, tell=tell)
        return search.run()


def _musts(phrases: Sequence[Sequence[Sequence[int]]], sequences: int, wanted: Wanted) -> list[Phrases]:
    if len(phrases) != sequences:
        raise ConfigError(f"phrases are told for each of the {sequences} sequences; {len(phrases)} came")
    if wanted.groups > 1:
        raise ConfigError("words that must appear and groups that differ do not go together: leave out one of them")
    musts = [Phrases(one) for one in phrases]
    for must in musts:
        if must.missing([]) > wanted.longest:
            raise ConfigError(
                f"phrases of {must.missing([])} words have no room in at most {wanted.longest}. Allow more words"
            )
        if any(word in wanted.ends for phrase in must.phrases for word in phrase):
            raise ConfigError(f"an end cannot be among the words that must appear: {must.phrases}")
    return musts
