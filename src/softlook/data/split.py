"""Digests of examples and files, the train/validation split by them, and stride sampling."""

import hashlib
from bisect import insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic

from softlook.data.examples import Example, Examples, ReadStats
from softlook.data.streams import file_errors

VALIDATION_FRACTION, MIN_HELD_OUT, MAX_HELD_OUT = 0.02, 1, 2000
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
    """Holds out examples whose content digest is below a threshold: equal examples are always on the same side."""

    threshold: int
    held_out: int
    """Number of different examples held out."""

    def holds_out(self, example: Example) -> bool:
        """Whether an example is held out."""
        return content_digest(example.key) < self.threshold

    def train(self, examples: Iterable[Example]) -> Iterator[Example]:
        """The training examples."""
        return (example for example in examples if not self.holds_out(example))

    def validation(self, examples: Iterable[Example]) -> Iterator[Example]:
        """The held-out examples, each input once."""
        seen: set[int] = set()
        for example in examples:
            digest = content_digest(example.key)
            if digest < self.threshold and digest not in seen:
                seen.add(digest)
                yield example


def make_split(
    examples: Iterable[Example],
    *,
    fraction: float = VALIDATION_FRACTION,
    min_held_out: int = MIN_HELD_OUT,
    max_held_out: int = MAX_HELD_OUT,
) -> Split:
    """Hold out about a fraction of the different examples, within limits. At least one is left to train on.

    The split depends on the content of the examples, not on their order or a seed; adding data moves few examples.

    >>> from softlook.data.examples import TextExample
    >>> numbers = [TextExample(str(number)) for number in range(1000)]
    >>> split = make_split(numbers)
    >>> len(list(split.train(numbers))) + split.held_out, make_split(numbers[::-1]) == split
    (1000, True)
    """
    lowest = _lowest((content_digest(example.key) for example in examples), max_held_out + 1)
    if len(lowest) < 2:
        return Split(0, 0)
    threshold = int(fraction * DIGEST_RANGE)
    if min_held_out:
        threshold = max(threshold, lowest[min(min_held_out, len(lowest) - 1) - 1] + 1)
    threshold = min(threshold, lowest[-1])  # the maximum that may be held out, or all but one
    return Split(threshold, sum(digest < threshold for digest in lowest))


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
