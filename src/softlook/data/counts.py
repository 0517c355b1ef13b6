"""What is gathered in one way through the data: sums, and a number of 64 bits for each example."""

from collections import Counter

from softlook.data.digest import content_digest, exact_digest
from softlook.data.examples import Labelled, Pair, Text
from softlook.data.facts import Lengths, Side
from softlook.data.odd import oddities, script_of
from softlook.data.records import Origin

REMEMBERED = 20_000_000
"""Examples that are looked at for repeats: more would fill the memory of a laptop."""


class Counts:
    """What was seen so far, and where some of it was seen first."""

    def __init__(self) -> None:
        self.characters: dict[str, Counter[int]] = {}
        self.words: dict[str, Counter[int]] = {}
        self.scripts: dict[str, Counter[str]] = {}
        self.odd: dict[str, Counter[str]] = {}
        self.labels: Counter[str] = Counter()
        self.ratios: Counter[int] = Counter()
        self.duplicates = self.copies = self.disputed = 0
        self.places: dict[str, Origin | None] = {}
        self.seen: set[int] = set()
        self.keys: dict[int, int] = {}
        self.longest = 0

    def add(self, example: Pair | Text | Labelled) -> None:
        """Take one example in."""
        label = example.label if isinstance(example, Labelled) else ""
        place = example.origin
        for name, text in example.texts.items():
            self._add_text(name, text, place)
        self._add_digests(example, label, place)
        if isinstance(example, Labelled):
            self.labels[label] += 1
        if isinstance(example, Pair):
            self._add_ratio(example, place)

    def _add_text(self, name: str, text: str, place: Origin | None) -> None:
        size = len(text)
        self.characters.setdefault(name, Counter())[size] += 1
        self.words.setdefault(name, Counter())[len(text.split())] += 1
        self.scripts.setdefault(name, Counter())[script_of(text)] += 1
        if size > self.longest:
            self.longest, self.places["longest"] = size, place
        for kind in oddities(text):
            self.odd.setdefault(name, Counter())[kind] += 1
            self.places.setdefault(f"{name} {kind}", place)

    def _add_digests(self, example: Pair | Text | Labelled, label: str, place: Origin | None) -> None:
        whole = exact_digest("\0".join((*example.texts.values(), label)))
        if whole in self.seen:
            self.duplicates += 1
            self.places.setdefault("duplicates", place)
        elif len(self.seen) < REMEMBERED:
            self.seen.add(whole)
            answer = hash(label)
            if self.keys.setdefault(content_digest(example.key), answer) != answer:
                self.disputed += 1
                self.places.setdefault("disputed", place)

    def _add_ratio(self, pair: Pair, place: Origin | None) -> None:
        if pair.source == pair.target:
            self.copies += 1
            self.places.setdefault("copies", place)
        ratio = round(100 * (len(pair.target) + 5) / (len(pair.source) + 5))  # plus five: short texts vary more
        self.ratios[ratio] += 1
        self.places.setdefault(f"ratio {ratio}", place)


def lengths(counted: Counter[int]) -> Lengths:
    """From how often each length comes, what is usual and what is not.

    >>> lengths(Counter({1: 10, 5: 1}))
    Lengths(shortest=1, median=1, p95=5, longest=5, total=15)
    """
    total = sum(size * often for size, often in counted.items())
    return Lengths(min(counted), quantile(counted, 0.5), quantile(counted, 0.95), max(counted), total)


def quantile(counted: Counter[int], share: float) -> int:
    """The smallest number that so large a share does not exceed."""
    left = share * counted.total()
    for size in sorted(counted):
        left -= counted[size]
        if left <= 0:
            return size
    return max(counted, default=0)


def side(counts: Counts, name: str) -> Side:
    """What was gathered of one column."""
    odd = counts.odd.get(name, Counter())
    scripts = counts.scripts[name].most_common()
    return Side(lengths(counts.characters[name]), lengths(counts.words[name]), dict(scripts), dict(odd.most_common()))
