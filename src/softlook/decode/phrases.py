"""Words that must appear: how much of them is still to come, and room in the beam for those who are on their way.

The beam is shared out among sequences that have said as much of the phrases as each other, anew at every word: dynamic
beam allocation, after Post & Vilar 2018.
"""

from collections.abc import Sequence
from itertools import permutations
from typing import TypeVar

from softlook.base.errors import ConfigError

Kind = TypeVar("Kind")
FEW = 4
"""Up to so many phrases, every order in which they can be said is looked at."""


class Phrases:
    """What one sequence has to say, in any order.

    >>> phrases = Phrases([[4, 5], [6]])
    >>> phrases.missing([1]), phrases.missing([1, 4]), phrases.missing([6, 4, 5])
    (3, 2, 0)
    """

    def __init__(self, phrases: Sequence[Sequence[int]]) -> None:
        if not all(phrases):
            raise ConfigError("a phrase that must appear wants at least one word; an empty one came")
        self.phrases = list(dict.fromkeys(tuple(phrase) for phrase in phrases))

    def missing(self, words: Sequence[int]) -> int:
        """How many words are enough to say all that was not said yet: no more than needed, but for many phrases."""
        left = self._left(words)
        left = [one for one in left if not any(one != other and said(one, other) for other in left)]
        if len(left) > FEW:
            return sum(map(len, left)) - max(begun(phrase, words) for phrase in left)
        return min((self._in_order(order, words) for order in permutations(left)), default=0)

    def _in_order(self, order: Sequence[tuple[int, ...]], words: Sequence[int]) -> int:
        """Words to say these one after the other, where the end of one may begin the next."""
        before = [words, *order]
        return sum(len(phrase) - begun(phrase, last) for last, phrase in zip(before, order, strict=False))

    def next(self, words: Sequence[int]) -> set[int]:
        """Words that begin a phrase or go on with one."""
        left = self._left(words)
        return {phrase[0] for phrase in left} | {phrase[begun(phrase, words)] for phrase in left}

    def _left(self, words: Sequence[int]) -> list[tuple[int, ...]]:
        return [phrase for phrase in self.phrases if not said(phrase, words)]


def said(phrase: Sequence[int], words: Sequence[int]) -> bool:
    """Does the phrase stand anywhere in there?"""
    length = len(phrase)
    return any(tuple(words[i : i + length]) == tuple(phrase) for i in range(len(words) - length + 1))


def begun(phrase: Sequence[int], words: Sequence[int]) -> int:
    """How many words of the phrase were said last, if it is not over yet.

    >>> begun([4, 4, 5], [1, 4, 4])
    2
    """
    fits = range(min(len(phrase) - 1, len(words)), 0, -1)
    return next((size for size in fits if tuple(words[len(words) - size :]) == tuple(phrase[:size])), 0)


def shared_out(banks: Sequence[Sequence[Kind]], room: int) -> list[Kind]:
    """At most `room` of all that is in the banks, each with as much room as the others; each bank's best come first.

    What one bank has no use for goes to the others, the first ones first.

    >>> shared_out([["a", "b", "c"], ["d"], []], 3)
    ['a', 'b', 'd']
    """
    each, kept = max(room // max(len(banks), 1), 1), [0] * len(banks)
    for extra in (each, room):  # first everybody's own share, then what is left
        for number, bank in enumerate(banks):
            kept[number] += min(extra, len(bank) - kept[number], room - sum(kept))
    return [one for bank, count in zip(banks, kept, strict=True) for one in bank[:count]]
