"""What may be said, and what had better not be: functions from scores to scores, one after the other.

A rule sees the scores (N, V) of what may come next and the N sequences that it would come after. It changes nothing in
place, and knows of no other row: what a rule does to a sequence does not depend on the batch.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.decode.said import Said
from softlook.decode.token_rows import (
    among,
    counts,
    followers,
    forced,
    padded,
    penalised,
    places_of,
    with_values,
    without,
)

Rule = Callable[[Tensor, Sequence[Said]], Tensor]
"""Scores (N, V), and the N sequences so far -> scores (N, V)."""


def together(*rules: Rule) -> Rule:
    """Several rules as one, the first one first.

    >>> rule = together(forbid([[0]]), repetition_penalty(2.0))
    >>> rule(torch.ones(1, 3), [Said([1])])
    tensor([[  -inf, 0.5000, 1.0000]])
    """

    def all_of_them(scores: Tensor, said: Sequence[Said]) -> Tensor:
        for rule in rules:
            scores = rule(scores, said)
        return scores

    return all_of_them


def repetition_penalty(penalty: float) -> Rule:
    """What was said or asked already is less likely: its score is divided by the penalty, or multiplied if negative.

    As in CTRL and in Hugging Face's: the prompt counts, and how often does not.

    >>> repetition_penalty(2.0)(torch.tensor([[4.0, -4.0, 4.0]]), [Said([0], [1])])
    tensor([[ 2., -8.,  4.]])
    """
    if not 0 < penalty < math.inf:
        raise ConfigError(f"a repetition penalty is a number above 0, and 1 changes nothing; {penalty} came")

    return lambda scores, said: penalised(scores, padded([(one.prompt, one.new) for one in said]), penalty)


def source_repetition_penalty(penalty: float, source_of: Callable[[Said], Sequence[int]]) -> Rule:
    """Words of the source are likelier: the reverse of `repetition_penalty`, as Hugging Face's for an encoder's input.

    >>> source_repetition_penalty(2.0, lambda said: [0, 1])(torch.tensor([[4.0, -4.0, 4.0]]), [Said([2])])
    tensor([[ 8., -2.,  4.]])
    """
    if not 0 < penalty < math.inf:
        raise ConfigError(f"a repetition penalty is a number above 0, and 1 changes nothing; {penalty} came")
    return lambda scores, said: penalised(scores, padded([(source_of(one),) for one in said]), 1 / penalty)


def presence_penalty(penalty: float) -> Rule:
    """Taken off the score of every word that was said, once. As in OpenAI's definition, the prompt does not count.

    >>> presence_penalty(0.5)(torch.zeros(1, 3), [Said([0], [1, 1])])
    tensor([[ 0.0000, -0.5000,  0.0000]])
    """
    _is_number("presence penalty", penalty)
    return lambda scores, said: scores - penalty * counts(scores, padded([(one.new,) for one in said])).clamp(max=1)


def frequency_penalty(penalty: float) -> Rule:
    """Taken off the score of every word as often as it was said. As in OpenAI's definition, the prompt does not count.

    >>> frequency_penalty(0.5)(torch.zeros(1, 3), [Said([0], [1, 1])])
    tensor([[ 0., -1.,  0.]])
    """
    _is_number("frequency penalty", penalty)
    return lambda scores, said: scores - penalty * counts(scores, padded([(one.new,) for one in said]))


def logit_bias(bias: Mapping[int, float]) -> Rule:
    """Added to the logits of these tokens. As in OpenAI's definition, -100 bans a token and 100 forces it.

    >>> logit_bias({2: 1.5})(torch.zeros(1, 3), [Said([0])])
    tensor([[0.0000, 0.0000, 1.5000]])
    """
    for value in bias.values():
        _is_number("bias", value)

    def rule(scores: Tensor, said: Sequence[Said]) -> Tensor:
        known = {id: value for id, value in bias.items() if 0 <= id < scores.shape[-1]}
        ids = torch.tensor(list(known), dtype=torch.long, device=scores.device)
        return scores.index_add(1, ids, scores.new_tensor(list(known.values())).expand(len(scores), -1))

    return rule


def no_repeats(length: int) -> Rule:
    """No `length` words in a row come twice, those of the prompt included.

    >>> no_repeats(2)(torch.zeros(1, 3), [Said([1, 2, 1])])
    tensor([[0., 0., -inf]])
    """
    if length < 1:
        raise ConfigError(f"repeats are of 1 word at least; no_repeats({length}) came")

    def rule(scores: Tensor, said: Sequence[Said]) -> Tensor:
        ids = padded([(one.prompt, one.new) for one in said])
        return with_values(scores, places_of(scores, *followers(ids, ids, length)), -torch.inf)

    return rule


def no_source_repeats(length: int, source_of: Callable[[Said], Sequence[int]]) -> Rule:
    """No `length` words in a row of the source are said, as Hugging Face's `encoder_no_repeat_ngram_size`.

    >>> no_source_repeats(2, lambda said: [1, 2])(torch.zeros(1, 3), [Said([1])])
    tensor([[0., 0., -inf]])
    """
    if length < 1:
        raise ConfigError(f"repeats are of 1 word at least; no_source_repeats({length}) came")

    def rule(scores: Tensor, said: Sequence[Said]) -> Tensor:
        ids, sources = padded([(one.prompt, one.new) for one in said]), padded([(source_of(one),) for one in said])
        return with_values(scores, places_of(scores, *followers(sources, ids, length)), -torch.inf)

    return rule


def forbid(words: Iterable[Sequence[int]]) -> Rule:
    """None of these words is said: each is a list of ids, of which only the last is forbidden, behind the others.

    >>> forbid([[0], [1, 2]])(torch.zeros(1, 3), [Said([1])])
    tensor([[-inf, 0., -inf]])
    """
    forbidden = [list(word) for word in words]
    if not all(forbidden):
        raise ConfigError("a forbidden word has at least one id; an empty one came")
    always = suppress([word[0] for word in forbidden if len(word) == 1])
    behind = [word for word in forbidden if len(word) > 1]
    longest = max(map(len, behind), default=1) - 1

    def rule(scores: Tensor, said: Sequence[Said]) -> Tensor:
        scores = always(scores, said)
        if not behind:
            return scores
        ends = [one.last(longest) for one in said]
        return without(scores, [[word[-1] for word in behind if end[-len(word) + 1 :] == word[:-1]] for end in ends])

    return rule


def suppress(ids: Iterable[int], only: int | None = None) -> Rule:
    """None of these tokens is said; with `only`, not as the new token of this number, counted from 0.

    >>> suppress([0, 2])(torch.zeros(1, 3), [Said([1])])
    tensor([[-inf, 0., -inf]])
    >>> suppress([0], only=0)(torch.zeros(2, 2), [Said([1]), Said([1], [1])])
    tensor([[-inf, 0.],
            [0., 0.]])
    """
    kept = torch.tensor(sorted(set(ids)), dtype=torch.long)

    def rule(scores: Tensor, said: Sequence[Said]) -> Tensor:
        here = kept[kept < scores.shape[-1]].to(scores.device)
        if not len(here):
            return scores
        suppressed = scores.index_fill(1, here, -torch.inf)
        if only is None:
            return suppressed
        now = torch.tensor([len(one.new) == only for one in said], device=scores.device)
        return torch.where(now[:, None], suppressed, scores)

    return rule


def allow(allowed: Callable[[Said], Collection[int]]) -> Rule:
    """Only what a function allows to come after a sequence may come.

    >>> allow(lambda said: [said.ids[-1] + 1])(torch.zeros(1, 3), [Said([0])])
    tensor([[-inf, 0., -inf]])
    """

    def rule(scores: Tensor, said: Sequence[Said]) -> Tensor:
        return scores.masked_fill(~among(scores, [allowed(one) for one in said]), -torch.inf)

    return rule


def forced_prefix(ids: Sequence[int]) -> Rule:
    """The answer begins with these words, whatever the model thinks of them.

    >>> forced_prefix([2])(torch.zeros(2, 3), [Said([0]), Said([0], [2])])
    tensor([[-inf, -inf, 0.],
            [0., 0., 0.]])
    """
    prefix = list(ids)

    def rule(scores: Tensor, said: Sequence[Said]) -> Tensor:
        return forced(scores, [prefix[len(one.new) : len(one.new) + 1] for one in said])

    return rule


def least(length: int, end: int | Collection[int]) -> Rule:
    """No end is said before so many new words are.

    >>> least(2, end=0)(torch.zeros(2, 2), [Said([1], [1]), Said([1], [1, 1])])
    tensor([[-inf, 0.],
            [0., 0.]])
    """
    ends = ends_of(end)
    return lambda scores, said: without(scores, [ends if len(one.new) < length else () for one in said])


def decaying_end(start: int, factor: float, end: int | Collection[int]) -> Rule:
    """After `start` new words an end becomes likelier with each: Hugging Face's `exponential_decay_length_penalty`.

    Its score rises by its own size times factor ** (words beyond start) - 1.

    >>> decaying_end(1, 2.0, end=0)(torch.full((3, 2), -1.0), [Said([1], [1] * count) for count in (1, 2, 3)])
    tensor([[-1., -1.],
            [ 0., -1.],
            [ 2., -1.]])
    """
    if start < 0 or not 0 < factor < math.inf:
        raise ConfigError(f"an end decays from word 0 on at least, by a factor above 0; {start} and {factor} came")
    ends = sorted(ends_of(end))

    def rule(scores: Tensor, said: Sequence[Said]) -> Tensor:
        beyond = torch.tensor([max(len(one.new) - start, 0) for one in said], device=scores.device)
        own = scores[:, ends]
        raised = own + own.abs() * (torch.pow(float(factor), beyond) - 1)[:, None].to(own)
        raised = torch.where(own.isfinite() & (beyond > 0)[:, None], raised, own)  # an end that is ruled out stays so
        return scores.index_copy(1, torch.tensor(ends, device=scores.device), raised)

    return rule


def end_at(length: int, end: int | Collection[int]) -> Rule:
    """The last of so many new words is an end, if none came before.

    >>> end_at(2, end=0)(torch.zeros(2, 2), [Said([1]), Said([1], [1])])
    tensor([[0., 0.],
            [0., -inf]])
    """
    if length < 1:
        raise ConfigError(f"to end at the last word, there has to be one; end_at({length}) came")
    ends = sorted(ends_of(end))
    return lambda scores, said: forced(scores, [ends if len(one.new) == length - 1 else [] for one in said])


def ends_of(end: int | Collection[int]) -> frozenset[int]:
    """One id that ends a sequence, several, or none."""
    return frozenset([end]) if isinstance(end, int) else frozenset(end)


def _is_number(name: str, penalty: float) -> None:
    if not math.isfinite(penalty):
        raise ConfigError(f"a {name} is a number, and 0 changes nothing; {penalty} came")
