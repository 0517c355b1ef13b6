"""BPE dropout: a text is cut otherwise each time it is read, so that a model learns what pieces are made of.

Every merge of two pieces is left out now and then (Provilkov et al., 2020). The library's own dropout rolls dice that
nobody can seed; here the same seed and epoch always give the same pieces.
"""

import json
import random
from array import array
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from softlook.base.errors import DataError
from softlook.tokens.text import TextTokenizer

WAYS = 24
"""Ways of cutting that are kept for each word: dice choose among them."""
PORTION = 1 << 18
"""Words that dice are rolled for at once."""
Ids = tuple[int, ...]


class Varied:
    """Texts in ever new pieces. Kept are the words of each text, as numbers, and the ways to cut every word.

    >>> from softlook.tokens import TextTokenizer, train_tokenizer
    >>> tokenizer = TextTokenizer(train_tokenizer(["she sells sea shells"] * 3, vocab=300))
    >>> varied = Varied(tokenizer, ["she sells shells"], dropout=0.5, seed=0)
    >>> list(varied.epoch(1)) == list(varied.epoch(1)), list(varied.epoch(1)) == list(varied.epoch(2))
    (True, False)
    >>> tokenizer.decode(varied.epoch(1)[0])
    'she sells shells'
    """

    def __init__(self, tokenizer: TextTokenizer, texts: Iterable[str], *, dropout: float, seed: int) -> None:
        self.dropout, self.seed = dropout, seed
        model = json.loads(tokenizer.tokenizer.to_str())["model"]
        if model["type"] != "BPE" or not model["merges"]:
            raise DataError("tokens.dropout leaves out merges of pieces, and this tokenizer has none: use kind 'bpe'")
        self.vocab: dict[str, int] = model["vocab"]
        self.ranks = {(one, other): rank for rank, (one, other) in enumerate(model["merges"])}
        words, edges, numbers = array("i"), array("q", [0]), dict[str, int]()
        cut = _words(tokenizer)
        for text in texts:
            words.extend(numbers.setdefault(word, len(numbers)) for word in cut(text))
            edges.append(len(words))
        self.words, self.edges = words, edges
        self.ways = [way for word in numbers for way in self._ways(word)]
        self.lengths = torch.tensor([len(way) for way in self.ways], dtype=torch.int32)

    def epoch(self, number: int) -> "Cut":
        """The ids of each text, this time."""
        roll = _dice(random.Random(f"{self.seed} {number}"))
        chosen = array("i", self.words)
        for start in range(0, len(chosen), PORTION):
            some = torch.frombuffer(memoryview(chosen)[start : start + PORTION], dtype=torch.int32)
            some.mul_(WAYS).add_(roll(len(some)))
        return Cut(self, chosen)

    def _ways(self, word: str) -> list[Ids]:
        dice = random.Random(f"{self.seed} {word}")
        known: dict[Ids, Ids] = {}  # most ways are alike: one of them is kept
        ways = (tuple(self.vocab[piece] for piece in self._pieces(word, dice.random)) for _ in range(WAYS))
        return [known.setdefault(way, way) for way in ways]

    def _pieces(self, word: str, roll: Callable[[], float]) -> list[str]:
        """Merge what may be merged, the commonest pair first, each left out with the chance of `dropout`."""
        pieces, find, dropout = list(word), self.ranks.get, self.dropout
        ranks = [find(pair) for pair in zip(pieces, pieces[1:], strict=False)]
        while known := [(rank, at) for at, rank in enumerate(ranks) if rank is not None and roll() >= dropout]:
            _, at = min(known)
            pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
            del ranks[at]
            if at:
                ranks[at - 1] = find((pieces[at - 1], pieces[at]))
            if at < len(ranks):
                ranks[at] = find((pieces[at], pieces[at + 1]))
        return pieces


class Cut(Sequence[list[int]]):
    """Texts as they are cut in one epoch, in the way `chosen` for every word; each is made when it is asked for."""

    def __init__(self, varied: Varied, chosen: "array[int]") -> None:
        self.varied, self.chosen = varied, chosen

    def __len__(self) -> int:
        return len(self.varied.edges) - 1

    def __getitem__(self, number: int, /) -> list[int]:  # pyright: ignore[reportIncompatibleMethodOverride]  (no slices)
        number = range(len(self))[number]  # one that is not there is an IndexError
        ways, edges = self.varied.ways, self.varied.edges
        return [id for way in self.chosen[edges[number] : edges[number + 1]] for id in ways[way]]

    def lengths(self) -> Tensor:
        """How many pieces each text has."""
        ends = torch.zeros(len(self.chosen) + 1, dtype=torch.int32)
        if len(self.chosen):
            chosen = torch.frombuffer(self.chosen, dtype=torch.int32)
            ends[1:] = self.varied.lengths[chosen].cumsum(0, dtype=torch.int32)
        return ends[torch.frombuffer(self.varied.edges, dtype=torch.int64)].diff()


def _dice(dice: random.Random) -> Callable[[int], Tensor]:
    """Rolls `int(dice.random() * WAYS)` so many times: the same numbers, many times as fast.

    A number of `random` is made of 27 bits of one draw and 26 of the next.
    """

    def roll(count: int) -> Tensor:
        draws = torch.frombuffer(bytearray(dice.randbytes(8 * count)), dtype=torch.long)
        high, low = (draws & 0xFFFFFFFF) >> 5, (draws >> 32 & 0xFFFFFFFF) >> 6
        return ((high * (1 << 26) + low).double() / (1 << 53) * WAYS).int()

    return roll


def _words(tokenizer: TextTokenizer) -> Callable[[str], list[str]]:
    """Cuts a text into the words that merges never cross."""
    normalizer, cutter = tokenizer.tokenizer.normalizer, tokenizer.tokenizer.pre_tokenizer

    def cut(text: str) -> list[str]:
        plain = text if normalizer is None else normalizer.normalize_str(text)
        return [plain] if cutter is None else [word for word, _ in cutter.pre_tokenize_str(plain)]

    return cut
