"""BPE dropout: a text is cut otherwise each time it is read, so that a model learns what pieces are made of.

Every merge of two pieces is left out now and then (Provilkov et al., 2020). The library's own dropout rolls dice that
nobody can seed; here the same seed and epoch always give the same pieces.
"""

import json
import random
from collections.abc import Sequence

from softlook.base.errors import DataError
from softlook.tokens.text import TextTokenizer

WAYS = 24
"""Ways of cutting that are kept for each word: dice choose among them."""

Ids = tuple[int, ...]


class Varied:
    """Texts in ever new pieces.

    >>> from softlook.tokens import TextTokenizer, train_tokenizer
    >>> tokenizer = TextTokenizer(train_tokenizer(["she sells sea shells"] * 3, vocab=300))
    >>> varied = Varied(tokenizer, ["she sells shells"], dropout=0.5, seed=0)
    >>> varied.epoch(1) == varied.epoch(1), varied.epoch(1) == varied.epoch(2)
    (True, False)
    >>> tokenizer.decode(varied.epoch(1)[0])
    'she sells shells'
    """

    def __init__(self, tokenizer: TextTokenizer, texts: Sequence[str], *, dropout: float, seed: int) -> None:
        self.dropout, self.seed = dropout, seed
        model = json.loads(tokenizer.tokenizer.to_str())["model"]
        if model["type"] != "BPE" or not model["merges"]:
            raise DataError("tokens.dropout leaves out merges of pieces, and this tokenizer has none: use kind 'bpe'")
        self.vocab: dict[str, int] = model["vocab"]
        self.ranks = {(one, other): rank for rank, (one, other) in enumerate(model["merges"])}
        numbers: dict[str, int] = {}
        cut = _words(tokenizer)
        self.texts = [[numbers.setdefault(word, len(numbers)) for word in cut(text)] for text in texts]
        self.ways = [self._ways(word) for word in numbers]

    def epoch(self, number: int) -> list[list[int]]:
        """The ids of each text, this time."""
        roll = random.Random(f"{self.seed} {number}").random
        ways = self.ways
        return [[id for word in words for id in ways[word][int(roll() * WAYS)]] for words in self.texts]

    def _ways(self, word: str) -> list[Ids]:
        dice = random.Random(f"{self.seed} {word}")
        return [tuple(self.vocab[piece] for piece in self._pieces(word, dice)) for _ in range(WAYS)]

    def _pieces(self, word: str, dice: random.Random) -> list[str]:
        """Merge what may be merged, the commonest pair first, each left out with the chance of `dropout`."""
        pieces = list(word)
        while len(pieces) > 1:
            pairs = ((self.ranks.get(pair), place) for place, pair in enumerate(zip(pieces, pieces[1:], strict=False)))
            known = [(rank, place) for rank, place in pairs if rank is not None and dice.random() >= self.dropout]
            if not known:
                break
            _, place = min(known)
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
        return pieces


def _words(tokenizer: TextTokenizer):
    """Cuts a text into the words that merges never cross."""
    normalizer, cutter = tokenizer.tokenizer.normalizer, tokenizer.tokenizer.pre_tokenizer

    def cut(text: str) -> list[str]:
        plain = text if normalizer is None else normalizer.normalize_str(text)
        return [plain] if cutter is None else [word for word, _ in cutter.pre_tokenize_str(plain)]

    return cut
