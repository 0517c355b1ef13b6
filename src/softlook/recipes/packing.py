"""Text as rows of ids: in memory where there is little of it, else on disk, where it is read as it lies."""

import hashlib
import logging
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from softlook.base.errors import DataError, DiskError, TrainingError
from softlook.data import Text
from softlook.recipes.corpus import Corpus, Part, unbroken
from softlook.recipes.remembering import RUNS
from softlook.tokens import TextTokenizer
from softlook.train.examples import Ids
from softlook.train.store import Store, gathered, write_store
from softlook.train.stream import Tokens

log = logging.getLogger("softlook.recipes")
AT_ONCE = 16
"""Stretches of text that are handed to the tokenizer together."""
TOGETHER, MUCH = 1024, 1 << 20
"""Examples that are handed to the tokenizer together; and fewer, where they have so many characters."""
LARGE = 100_000_000
"""Characters of text from which on ids are kept on disk."""
CACHE = ".tokens"
Example = TypeVar("Example")


@dataclass(frozen=True)
class Shelf:
    """Where the ids of a run's data are kept: in memory; or, where the text is large, in a folder beside the runs."""

    corpus: Corpus[Any]
    tokenizer: TextTokenizer
    run: Path | None = None
    """The folder of the run, where it was told."""

    @property
    def is_large(self) -> bool:
        return self.corpus.characters > LARGE

    def store(self, examples: Iterable[Sequence[Ids]], what: str, *, rows: int = 1, words: int = 0) -> Store:
        """What there is to learn from, as ids. `what` says all that decides about them beside text and tokenizer.

        `words`: how many different ids there are, if more than the tokenizer has.
        """
        return self._kept(examples, what, rows=rows, words=words, is_large=self.is_large)

    def held_out(self, examples: Iterable[Sequence[Ids]], what: str, *, rows: int = 1) -> Store:
        """What is held out, as ids."""
        is_large = self.corpus.held_characters > LARGE
        return self._kept(examples, f"held out {what}", rows=rows, words=0, is_large=is_large)

    def _kept(self, examples: Iterable[Sequence[Ids]], what: str, *, rows: int, words: int, is_large: bool) -> Store:
        vocab = max(self.tokenizer.vocab, words)
        if not is_large:
            return gathered(examples, vocab=vocab, rows=rows)
        folder = (self.run.parent if self.run else RUNS) / CACHE / self._key(what)
        return found_again(folder) or written(examples, folder, vocab=vocab, rows=rows)

    def _key(self, what: str) -> str:
        """A name for these ids: another one for other text, other columns of it or another tokenizer."""
        corpus = self.corpus
        about = (corpus.digest, corpus.said, corpus.counts, corpus.characters, what, self.tokenizer.tokenizer.to_str())
        return hashlib.sha256(repr(about).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def found_again(folder: Path) -> Store | None:
    """What was written before, if it is as it was written. Otherwise it is removed, and that is said."""
    if not folder.exists():
        return None
    try:
        return Store.open(folder)
    except TrainingError as fault:
        log.warning(f"{fault}. It is made anew.")
        shutil.rmtree(folder)
        return None


def written(examples: Iterable[Sequence[Ids]], folder: Path, *, vocab: int, rows: int) -> Store:
    """Write a store; another run that writes the same one may be done with it first."""
    log.info(f"The text is large: its ids are kept in {folder}, which can be removed after the run.")
    try:
        write_store(examples, folder, vocab=vocab, rows=rows)
    except DiskError:
        if not folder.exists():
            raise
    return Store.open(folder)


def in_turn(examples: Iterable[Example], size: Any) -> Iterator[list[Example]]:
    """Examples, some at a time: as many as a tokenizer reads well at once. `size` says how long one is.

    >>> [len(some) for some in in_turn(["a"] * 1500 + ["b" * (1 << 20)] * 2, len)]
    [1024, 477, 1]
    """
    held: list[Example] = []
    characters = 0
    for example in examples:
        held.append(example)
        characters += size(example)
        if len(held) >= TOGETHER or characters >= MUCH:
            yield held
            held, characters = [], 0
    if held:
        yield held


def tokens_of(part: Part[Text], tokenizer: TextTokenizer) -> Tokens:
    """All documents one behind the other, in memory."""
    return spoken(gathered(documents_of(part, tokenizer), vocab=tokenizer.vocab))


def tokens_for(shelf: Shelf) -> tuple[Tokens, Tokens]:
    """What there is to learn from, and what is held out: in memory, or on disk where it is large."""
    corpus, tokenizer = shelf.corpus, shelf.tokenizer
    train = shelf.store(documents_of(corpus.train, tokenizer), "documents")
    return spoken(train), spoken(shelf.held_out(documents_of(corpus.valid, tokenizer), "documents"))


def spoken(store: Store) -> Tokens:
    """The documents of a store, of which there should be one."""
    if not len(store.ids):
        raise DataError("there is nothing to learn from: every text is held out, or empty")
    return Tokens.of(store)


def documents_of(part: Part[Text], tokenizer: TextTokenizer) -> Iterator[tuple[Ids]]:
    """Ids of each stretch of text, with a sign where its document begins and where it ends."""
    stretches = unbroken(part)
    while some := list(islice(stretches, AT_ONCE)):
        coded = tokenizer.encode(["".join(text.text for text in texts) for texts, _, _ in some])
        for ids, (_, begins, ends) in zip(coded, some, strict=True):
            row = [*([tokenizer.begin] if begins else []), *ids, *([tokenizer.end] if ends else [])]
            if row:
                yield (row,)


def bytes_of(part: Part[Text]) -> int:
    """How long the text is where every character takes the bytes that UTF-8 gives it."""
    return sum(len(text.text.encode("utf-8", "surrogatepass")) for texts, _, _ in unbroken(part) for text in texts)
