"""Some of the examples, spread evenly over all of them, kept while somebody else goes through them."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Generic

from softlook.data.examples import Example, Examples
from softlook.data.tally import Tally


class Sampling(Generic[Example]):
    """Keeps every example as long as they are few, then every second, every fourth: between `most` / 2 and `most`
    characters of them in the end.

    >>> from pathlib import Path
    >>> from softlook.data.tasks import sentences
    >>> _ = Path("a.txt").write_text("".join(f"{number}\\n" for number in range(10, 90)))
    >>> sampling = Sampling(sentences("a.txt"), most=20)
    >>> len(list(sampling.all())), [example.text for example in sampling.kept()], sampling.characters
    (80, ['10', '18', '26', '34', '42', '50', '58', '66', '74', '82'], 20)
    """

    def __init__(self, examples: Examples[Example], most: int) -> None:
        self.examples, self.most = examples, most
        self.some: list[Example] = []
        self.characters, self.stride = 0, 1

    def all(self) -> Examples[Example]:
        """The examples themselves: whoever goes through them fills the sample."""
        return replace(self.examples, begin=self._passing)

    def kept(self) -> Examples[Example]:
        """The sample."""
        return replace(self.examples, begin=self._listed)

    def _passing(self, tally: Tally) -> Iterator[Example]:
        self.some, self.characters, self.stride = [], 0, 1
        for number, example in enumerate(self.examples.begin(tally)):
            if number % self.stride == 0:
                self._keep(example)
            yield example

    def _keep(self, example: Example) -> None:
        self.some.append(example)
        self.characters += _length(example)
        while self.characters > self.most and len(self.some) > 1:
            self.some, self.stride = self.some[::2], 2 * self.stride
            self.characters = sum(map(_length, self.some))

    def _listed(self, tally: Tally) -> Iterator[Example]:
        for example in self.some:
            tally.read += 1
            yield example


def _length(example: Example) -> int:
    texts: dict[str, str] = example.texts
    return sum(map(len, texts.values()))
