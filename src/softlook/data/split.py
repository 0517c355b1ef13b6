"""Digests of examples and files, the stratified train/validation split by them, and stride sampling."""

import hashlib
from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic

from softlook.data.examples import Example, Examples, LabeledText, ReadStats, TaggedText, TextExample, TextPair
from softlook.data.streams import file_errors

VALIDATION_FRACTION, MIN_HELD_OUT, MAX_HELD_OUT = 0.02, 1, 2000
SPLIT_VERSION = 2
"""The rule of `make_validation_split`. A run that resumes must not see another split: change it with the rule."""
MIN_VALIDATION, VALIDATION_SHARE, MAX_VALIDATION = 500, 0.1, 5000
"""Examples held out for validation: a tenth of them, at least 500 and at most 5,000."""
SMALL_DATA_SHARE = 0.2
"""The largest share held out, where 500 examples would be more."""
MAX_VALIDATION_CHARS = 5_000_000
"""Characters of the held-out texts, about: examples may be long documents."""
MAX_TRACKED_DIGESTS = 1 << 19
"""Different examples of which the class is remembered; of more, a sample by content."""
DIGEST_RANGE = 1 << 64


def content_digest(text: str) -> int:
    """A 64-bit digest of a text, ignoring case and whitespace; the same on every machine.

    >>> content_digest("Hello  world") == content_digest("hello world ")
    True
    """
    return exact_digest(" ".join(text.casefold().split()))


def exact_digest(text: str) -> int:
    """A 64-bit digest of exactly this text.

    >>> exact_digest("Hello") == exact_digest("hello")
    False
    """
    content = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")


def file_digests(files: Iterable[Path]) -> dict[str, str]:
    """The SHA-256 of each file."""
    digests = {}
    for path in files:
        with file_errors(path), path.open("rb") as file:
            digests[str(path)] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def data_digest(files: Iterable[Path]) -> str:
    """One digest of files in order: of their contents, not of their paths.

    >>> _ = Path("a.txt").write_text("words"), Path("b.txt").write_text("words")
    >>> data_digest([Path("a.txt")]) == data_digest([Path("b.txt")])
    True
    """
    digests = (bytes.fromhex(digest) for path in files for digest in file_digests([path]).values())
    return hashlib.sha256(b"".join(digests)).hexdigest()


@dataclass(frozen=True)
class Split:
    """Holds out examples by the digest of their content: equal examples are always on the same side."""

    digests: frozenset[int]
    """Content digests of the examples held out."""

    @property
    def held_out(self) -> int:
        """Number of different examples held out."""
        return len(self.digests)

    def holds_out(self, example: Example) -> bool:
        """Whether an example is held out."""
        return content_digest(example.key) in self.digests

    def train(self, examples: Iterable[Example]) -> Iterator[Example]:
        """The training examples."""
        return (example for example in examples if not self.holds_out(example))

    def validation(self, examples: Iterable[Example]) -> Iterator[Example]:
        """The held-out examples, each input once."""
        seen: set[int] = set()
        for example in examples:
            digest = content_digest(example.key)
            if digest in self.digests and digest not in seen:
                seen.add(digest)
                yield example


def make_validation_split(examples: Iterable[Example]) -> Split:
    """Hold out a tenth of the different examples: at least 500, but at most a fifth of small data, and at most 5,000.

    Texts with one class each are stratified: every class keeps its share, rounded up or down, and at least one example
    to train on. Of plain text, in which every token is a prediction, at most a tenth is held out. The split depends on
    the content of the examples, not on their order, the file or a seed.

    >>> from collections import Counter
    >>> from softlook.data.examples import LabeledText
    >>> texts = [LabeledText(str(number), None, "rare" if number % 10 == 0 else "common") for number in range(8000)]
    >>> split = make_validation_split(texts)
    >>> Counter(example.label for example in split.validation(texts))
    Counter({'common': 720, 'rare': 80})
    """
    strata = _Strata()
    for example in examples:
        strata.add(example)
    count = validation_size(len(strata.labels), strata.mean_length, is_plain_text=strata.is_plain_text)
    by_class: dict[str, list[int]] = defaultdict(list)
    for digest in sorted(strata.labels):
        by_class[strata.labels[digest]].append(digest)
    sizes = {label: len(digests) for label, digests in by_class.items()}
    quotas = allocate(count, sizes)
    held_out = [digest for label, digests in by_class.items() for digest in digests[: quotas[label]]]
    # Where every class has one example, one of them is held out: training needs a validation set.
    return Split(frozenset(held_out or sorted(strata.labels)[:count]))


def validation_size(count: int, mean_length: float = 0.0, *, is_plain_text: bool = False) -> int:
    """The number of examples to hold out of `count` different ones.

    >>> [validation_size(count) for count in (1, 2, 10, 1000, 5000, 30_000, 1_000_000)]
    [0, 1, 2, 200, 500, 3000, 5000]
    """
    share = VALIDATION_SHARE if is_plain_text else SMALL_DATA_SHARE
    size = min(max(MIN_VALIDATION, int(VALIDATION_SHARE * count)), int(share * count), MAX_VALIDATION)
    if mean_length:
        size = min(size, int(MAX_VALIDATION_CHARS / mean_length))
    return max(size, 1) if count > 1 else 0


def allocate(count: int, sizes: dict[str, int]) -> dict[str, int]:
    """How many examples of each class to hold out: its share, rounded, so that the sum is `count` if possible.

    Fractions are rounded by the largest remainder (Hamilton's method). One example of each class is never held out.

    >>> allocate(5, {"a": 30, "b": 19, "c": 1})
    {'a': 3, 'b': 2, 'c': 0}
    """
    total = sum(sizes.values())
    quotas = {label: min(count * size // total, size - 1) for label, size in sizes.items()}
    growing = [label for label, size in sizes.items() if quotas[label] < size - 1]
    growing.sort(key=lambda label: (-(count * sizes[label] % total), label))
    for label in growing[: count - sum(quotas.values())]:
        quotas[label] += 1
    return quotas


class _Strata:
    """The class of each different example, by its digest; of very many examples, those with low digests only."""

    def __init__(self) -> None:
        self.labels: dict[int, str] = {}
        self.threshold = DIGEST_RANGE
        self.count = self.characters = 0
        self.is_plain_text = False

    @property
    def mean_length(self) -> float:
        """Characters per example."""
        return self.characters / max(self.count, 1)

    def add(self, example: TextPair | TextExample | LabeledText | TaggedText) -> None:
        self.count += 1
        self.characters += sum(map(len, example.texts.values()))
        self.is_plain_text = isinstance(example, TextExample)
        digest = content_digest(example.key)
        if digest >= self.threshold:
            return
        label = example.stratum if isinstance(example, LabeledText) else ""
        known = self.labels.get(digest)
        # A text with several labels belongs to the first in alphabetical order, whichever the file has first.
        if known is None or label < known:
            self.labels[digest] = label
        if len(self.labels) > MAX_TRACKED_DIGESTS:
            self.threshold //= 2
            self.labels = {digest: label for digest, label in self.labels.items() if digest < self.threshold}


def make_split(
    examples: Iterable[Example],
    *,
    fraction: float = VALIDATION_FRACTION,
    min_held_out: int = MIN_HELD_OUT,
    max_held_out: int = MAX_HELD_OUT,
) -> Split:
    """Hold out about a fraction of the different examples, within limits and whatever their class. At least one is
    left to train on.

    The split depends on the content of the examples, not on their order or a seed; adding data moves few examples.

    >>> from softlook.data.examples import TextExample
    >>> numbers = [TextExample(str(number)) for number in range(1000)]
    >>> split = make_split(numbers)
    >>> len(list(split.train(numbers))) + split.held_out, make_split(numbers[::-1]) == split
    (1000, True)
    """
    lowest = _lowest((content_digest(example.key) for example in examples), max_held_out + 1)
    if len(lowest) < 2:
        return Split(frozenset())
    threshold = int(fraction * DIGEST_RANGE)
    if min_held_out:
        threshold = max(threshold, lowest[min(min_held_out, len(lowest) - 1) - 1] + 1)
    threshold = min(threshold, lowest[-1])  # the maximum that may be held out, or all but one
    return Split(frozenset(digest for digest in lowest if digest < threshold))


def _lowest(digests: Iterable[int], count: int) -> list[int]:
    """The `count` lowest different numbers, sorted."""
    lowest: list[int] = []
    kept: set[int] = set()
    for digest in digests:
        if digest in kept or (len(lowest) == count and digest > lowest[-1]):
            continue
        insort(lowest, digest)
        kept.add(digest)
        if len(lowest) > count:
            kept.discard(lowest.pop())
    return lowest


class StrideSampler(Generic[Example]):
    """Samples every n-th example while the examples are iterated; n doubles whenever the sample exceeds `max_chars`.

    >>> from softlook.data.readers import read_sentences
    >>> _ = Path("a.txt").write_text("".join(f"{number}\\n" for number in range(10, 90)))
    >>> sampler = StrideSampler(read_sentences("a.txt"), max_chars=20)
    >>> len(list(sampler.iterate())), [example.text for example in sampler.sample()], sampler.characters
    (80, ['10', '18', '26', '34', '42', '50', '58', '66', '74', '82'], 20)
    """

    def __init__(self, examples: Examples[Example], max_chars: int) -> None:
        self.examples, self.max_chars = examples, max_chars
        self.sampled: list[Example] = []
        self.characters, self.stride = 0, 1

    def iterate(self) -> Examples[Example]:
        """All examples; iterating over them fills the sample."""
        return replace(self.examples, reader=self._iterate_and_sample)

    def sample(self) -> Examples[Example]:
        """The sample."""
        return replace(self.examples, reader=self._iterate_sample)

    def _iterate_and_sample(self, stats: ReadStats) -> Iterator[Example]:
        self.sampled, self.characters, self.stride = [], 0, 1
        for number, example in enumerate(self.examples.reader(stats)):
            if number % self.stride == 0:
                self._add(example)
            yield example

    def _add(self, example: Example) -> None:
        self.sampled.append(example)
        self.characters += _length(example)
        while self.characters > self.max_chars and len(self.sampled) > 1:
            self.sampled, self.stride = self.sampled[::2], 2 * self.stride
            self.characters = sum(map(_length, self.sampled))

    def _iterate_sample(self, stats: ReadStats) -> Iterator[Example]:
        for example in self.sampled:
            stats.read += 1
            yield example


def _length(example: Example) -> int:
    texts: dict[str, str] = example.texts
    return sum(map(len, texts.values()))
