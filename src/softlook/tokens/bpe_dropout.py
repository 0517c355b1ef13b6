"""BPE dropout (Provilkov et al., 2020), seeded per epoch.

Every merge is skipped with some probability, so that a text is segmented differently each time. The dropout of the
tokenizers library cannot be seeded; here the same seed and epoch always give the same segmentation.
"""

import json
import random
from array import array
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from softlook.base.errors import DataError
from softlook.tokens.tokenizer import TextTokenizer

SEGMENTATIONS = 24
"""Segmentations sampled per word; each epoch chooses among them."""
CHUNK = 1 << 18
"""Words processed at once."""
Ids = tuple[int, ...]


class BPEDropout:
    """Texts segmented anew in each epoch. Stores the words of each text as numbers, and the segmentations of each word.

    >>> from softlook.tokens import TextTokenizer, train_tokenizer
    >>> tokenizer = TextTokenizer(train_tokenizer(["she sells sea shells"] * 3, vocab_size=300))
    >>> texts = BPEDropout(tokenizer, ["she sells shells"], dropout=0.5, seed=0)
    >>> list(texts.epoch(1)) == list(texts.epoch(1)), list(texts.epoch(1)) == list(texts.epoch(2))
    (True, False)
    >>> tokenizer.decode(texts.epoch(1)[0])
    'she sells shells'
    """

    def __init__(self, tokenizer: TextTokenizer, texts: Iterable[str], *, dropout: float, seed: int) -> None:
        self.dropout, self.seed = dropout, seed
        model = json.loads(tokenizer.tokenizer.to_str())["model"]
        if model["type"] != "BPE" or not model["merges"]:
            raise DataError("BPE dropout skips merges, and this tokenizer has none: use a BPE tokenizer")
        self.vocab: dict[str, int] = model["vocab"]
        self.ranks = {(left, right): rank for rank, (left, right) in enumerate(model["merges"])}
        words, offsets, numbers = array("i"), array("q", [0]), dict[str, int]()
        split = _word_splitter(tokenizer)
        for text in texts:
            words.extend(numbers.setdefault(word, len(numbers)) for word in split(text))
            offsets.append(len(words))
        self.words, self.offsets = words, offsets
        self.segmentations = [ids for word in numbers for ids in self._sample(word)]
        self.lengths = torch.tensor([len(ids) for ids in self.segmentations], dtype=torch.int32)

    def epoch(self, number: int) -> "BPEDropoutEpoch":
        """The texts as segmented in one epoch."""
        draw = _make_sampler(random.Random(f"{self.seed} {number}"))
        chosen = array("i", self.words)
        for start in range(0, len(chosen), CHUNK):
            chunk = torch.frombuffer(memoryview(chosen)[start : start + CHUNK], dtype=torch.int32)
            chunk.mul_(SEGMENTATIONS).add_(draw(len(chunk)))
        return BPEDropoutEpoch(self, chosen)

    def _sample(self, word: str) -> list[Ids]:
        rng = random.Random(f"{self.seed} {word}")
        unique: dict[Ids, Ids] = {}  # most segmentations are equal: one copy of each is kept
        sampled = (tuple(self.vocab[token] for token in self._merge(word, rng.random)) for _ in range(SEGMENTATIONS))
        return [unique.setdefault(ids, ids) for ids in sampled]

    def _merge(self, word: str, draw: Callable[[], float]) -> list[str]:
        """Apply merges by rank, each skipped with probability `dropout`."""
        tokens, rank_of, dropout = list(word), self.ranks.get, self.dropout
        ranks = [rank_of(pair) for pair in zip(tokens, tokens[1:], strict=False)]
        while merges := [(rank, i) for i, rank in enumerate(ranks) if rank is not None and draw() >= dropout]:
            _, i = min(merges)
            tokens[i : i + 2] = [tokens[i] + tokens[i + 1]]
            del ranks[i]
            if i:
                ranks[i - 1] = rank_of((tokens[i - 1], tokens[i]))
            if i < len(ranks):
                ranks[i] = rank_of((tokens[i], tokens[i + 1]))
        return tokens


class BPEDropoutEpoch(Sequence[list[int]]):
    """The ids of each text in one epoch, built on access; `chosen` is the segmentation of every word."""

    def __init__(self, texts: BPEDropout, chosen: "array[int]") -> None:
        self.texts, self.chosen = texts, chosen

    def __len__(self) -> int:
        return len(self.texts.offsets) - 1

    def __getitem__(self, index: int, /) -> list[int]:  # pyright: ignore[reportIncompatibleMethodOverride]  (no slices)
        index = range(len(self))[index]  # raises IndexError
        segmentations, offsets = self.texts.segmentations, self.texts.offsets
        return [id for word in self.chosen[offsets[index] : offsets[index + 1]] for id in segmentations[word]]

    def lengths(self) -> Tensor:
        """Number of tokens of each text."""
        ends = torch.zeros(len(self.chosen) + 1, dtype=torch.int32)
        if len(self.chosen):
            chosen = torch.frombuffer(self.chosen, dtype=torch.int32)
            ends[1:] = self.texts.lengths[chosen].cumsum(0, dtype=torch.int32)
        return ends[torch.frombuffer(self.texts.offsets, dtype=torch.int64)].diff()


def _make_sampler(rng: random.Random) -> Callable[[int], Tensor]:
    """Draws `int(rng.random() * SEGMENTATIONS)` many times: the same numbers, vectorized.

    Python's `random` makes a float of 27 bits of one 32-bit draw and 26 of the next.
    """

    def draw(count: int) -> Tensor:
        draws = torch.frombuffer(bytearray(rng.randbytes(8 * count)), dtype=torch.long)
        high, low = (draws & 0xFFFFFFFF) >> 5, (draws >> 32 & 0xFFFFFFFF) >> 6
        return ((high * (1 << 26) + low).double() / (1 << 53) * SEGMENTATIONS).int()

    return draw


def _word_splitter(tokenizer: TextTokenizer) -> Callable[[str], list[str]]:
    """A function that splits a text into pre-tokens, which merges never cross."""
    normalizer, pre_tokenizer = tokenizer.tokenizer.normalizer, tokenizer.tokenizer.pre_tokenizer

    def split(text: str) -> list[str]:
        normalized = text if normalizer is None else normalizer.normalize_str(text)
        return (
            [normalized] if pre_tokenizer is None else [word for word, _ in pre_tokenizer.pre_tokenize_str(normalized)]
        )

    return split
