"""What may be said, and what had better not be: functions from scores to scores, one after the other.

A rule sees the scores (N, V) of what may come next and the N sequences that it would come after. It changes nothing in
place, and knows of no other row: what a rule does to a sequence does not depend on the batch.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.decode.said import Said

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

    def rule(scores: Tensor, said: Sequence[Said]) -> Tensor:
        seen = counts(scores, [one.ids for one in said]) > 0
        return torch.where(seen, torch.where(scores < 0, scores * penalty, scores / penalty), scores)

    return rule


def presence_penalty(penalty: float) -> Rule:
    """Taken off the score of every word that was said, once. As in OpenAI's definition, the prompt does not count.

    >>> presence_penalty(0.5)(torch.zeros(1, 3), [Said([0], [1, 1])])
    tensor([[ 0.0000, -0.5000,  0.0000]])
    """
    _is_number("presence penalty", penalty)
    return lambda scores, said: scores - penalty * (counts(scores, [one.new for one in said]) > 0)


def frequency_penalty(penalty: float) -> Rule:
    """Taken off the score of every word as often as it was said. As in OpenAI's definition, the prompt does not count.

    >>> frequency_penalty(0.5)(torch.zeros(1, 3), [Said([0], [1, 1])])
    tensor([[ 0., -1.,  0.]])
    """
    _is_number("frequency penalty", penalty)
    return lambda scores, said: scores - penalty * counts(scores, [one.new for one in said])


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
        return without(scores, [_followers(one.ids, length) for one in said])

    return rule


def forbid(words: Iterable[Sequence[int]]) -> Rule:
    """None of these words is said: each is a list of ids, of which only the last is forbidden, behind the others.

    >>> forbid([[0], [1, 2]])(torch.zeros(1, 3), [Said([1])])
    tensor([[-inf, 0., -inf]])
    """
    forbidden = [list(word) for word in words]
    if not all(forbidden):
        raise ConfigError("a forbidden word has at least one id; an empty one came")

    def rule(scores: Tensor, said: Sequence[Said]) -> Tensor:
        return without(scores, [[word[-1] for word in forbidden if _ends_in(one.ids, word[:-1])] for one in said])

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


def end_at(length: int, end: int) -> Rule:
    """The last of so many new words is an end, if none came before.

    >>> end_at(2, end=0)(torch.zeros(2, 2), [Said([1]), Said([1], [1])])
    tensor([[0., 0.],
            [0., -inf]])
    """
    if length < 1:
        raise ConfigError(f"to end at the last word, there has to be one; end_at({length}) came")
    return lambda scores, said: forced(scores, [[end] if len(one.new) == length - 1 else [] for one in said])


def ends_of(end: int | Collection[int]) -> frozenset[int]:
    """One id that ends a sequence, several, or none."""
    return frozenset([end]) if isinstance(end, int) else frozenset(end)


def counts(scores: Float[Tensor, "N V"], ids: Sequence[Iterable[int]]) -> Float[Tensor, "N V"]:
    """How often each word stands in each row; ids that have no score are passed over."""
    V = scores.shape[-1]
    places = [row * V + id for row, words in enumerate(ids) for id in words if 0 <= id < V]
    where = torch.tensor(places, dtype=torch.long, device=scores.device)
    return scores.new_zeros(scores.numel()).index_add(0, where, scores.new_ones(len(places))).view_as(scores)


def among(scores: Float[Tensor, "N V"], ids: Sequence[Iterable[int]]) -> Bool[Tensor, "N V"]:
    """Which words are among those of their row?"""
    return counts(scores, ids) > 0


def without(scores: Float[Tensor, "N V"], ids: Sequence[Iterable[int]]) -> Float[Tensor, "N V"]:
    """The scores, but for words that must not come."""
    return scores.masked_fill(among(scores, ids), -torch.inf) if any(ids) else scores


def forced(scores: Float[Tensor, "N V"], ids: Sequence[Sequence[int]]) -> Float[Tensor, "N V"]:
    """In rows that are told a word, that word and no other, even where an earlier rule forbade it."""
    if not any(ids):
        return scores
    told = torch.tensor([bool(words) for words in ids], device=scores.device)[:, None]
    only = torch.where(among(scores, ids), 0.0, -torch.inf).to(scores)
    return torch.where(told, only, scores)


def _followers(ids: Sequence[int], length: int) -> list[int]:
    """What came after the last words, whenever they came before."""
    last = ids[len(ids) - length + 1 :]
    return [ids[i + length - 1] for i in range(len(ids) - length + 1) if ids[i : i + length - 1] == last]


def _ends_in(ids: list[int], word: list[int]) -> bool:
    return not word or ids[-len(word) :] == word


def _is_number(name: str, value: float) -> None:
    if not math.isfinite(value):
        raise ConfigError(f"a {name} is a number, and 0 changes nothing; {value} came")
