"""A translation memory: the target of the training pair with the most similar source."""

import math
import re
import time
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+|[^\w\s]")
"""Words, punctuation marks, and single characters of Chinese and Japanese."""
FEWEST_WORDS = 2
"""Words of a source that are looked up if time is short: the rarest ones, which are also the fastest."""


class TranslationMemory:
    """Pairs that are searched by the cosine of the TF-IDF vectors of their sources.

    >>> memory = TranslationMemory([("red car", "rotes Auto"), ("blue car", "blaues Auto"), ("a cat", "eine Katze")])
    >>> memory.translate(["the blue one", "?"])
    ['blaues Auto', 'rotes Auto']
    """

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self.targets = [target for _, target in pairs]
        words = [count_words(source) for source, _ in pairs]
        frequencies = Counter(word for counts in words for word in counts)
        self.idf = {word: math.log(1 + len(pairs) / count) for word, count in frequencies.items()}
        numbers: dict[str, list[int]] = {word: [] for word in frequencies}
        weights: dict[str, list[float]] = {word: [] for word in frequencies}
        for number, counts in enumerate(words):
            vector = self._vector(counts)
            for word, weight in vector.items():
                numbers[word].append(number)
                weights[word].append(weight)
        self.postings = {
            word: (torch.tensor(numbers[word]), torch.tensor(weights[word], dtype=torch.float64)) for word in numbers
        }
        """For each word, the pairs that contain it, and its weight in each."""

    def translate(self, sources: Sequence[str], seconds: float = math.inf) -> list[str]:
        """The target of the most similar source. To keep the time, only the rarest words of a source may be used."""
        found, start = [], time.perf_counter()
        for number, source in enumerate(sources, 1):
            is_late = time.perf_counter() - start > seconds * number / len(sources)
            found.append(self.targets[self._nearest(source, FEWEST_WORDS if is_late else None)])
        return found

    def _nearest(self, source: str, max_words: int | None) -> int:
        vector = self._vector({word: count for word, count in count_words(source).items() if word in self.idf})
        if not vector:
            return 0
        rarest = sorted(vector, key=lambda word: len(self.postings[word][0]))[:max_words]
        numbers: list[Tensor] = [self.postings[word][0] for word in rarest]
        weights: list[Tensor] = [self.postings[word][1] * vector[word] for word in rarest]
        return int(torch.bincount(torch.cat(numbers), weights=torch.cat(weights)).argmax())

    def _vector(self, counts: dict[str, int]) -> dict[str, float]:
        """The TF-IDF vector of unit length."""
        weights = {word: count * self.idf[word] for word, count in counts.items()}
        norm = math.sqrt(sum(weight * weight for weight in weights.values())) or 1.0
        return {word: weight / norm for word, weight in weights.items()}


def count_words(text: str) -> dict[str, int]:
    """The number of occurrences of each word, in lower case.

    >>> count_words("The cat, the 猫だ")
    {'the': 2, 'cat': 1, ',': 1, '猫': 1, 'だ': 1}
    """
    return dict(Counter(WORD.findall(text.lower())))
