"""Text corpus: training and validation data, read lazily and tokenized in memory or on disk."""

import hashlib
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from softlook.base.activity import report_activity
from softlook.base.errors import DataError, DiskError, TrainingError
from softlook.data import Examples, TextExample, data_digest, make_split, make_validation_split
from softlook.data.examples import Example
from softlook.data.split import Split, content_digest
from softlook.recipes.config.schema import Files
from softlook.recipes.run_dir.layout import RUNS
from softlook.tokens import TextTokenizer
from softlook.tokens.label_tokens import label_ids
from softlook.train.batching.collate import Ids
from softlook.train.batching.packed_stream import TokenizedDocuments
from softlook.train.batching.token_store import TokenStore, store_in_memory, write_store

log = logging.getLogger("softlook.recipes")
MAX_VALIDATION_EXAMPLES = 20_000
"""Examples of given validation data that are used, in tasks that keep all of them in memory."""
MAX_CHUNK_CHARACTERS = 1 << 19
"""Characters of text that are tokenized at once."""
DOCUMENTS_PER_CALL = 16
"""Chunks of documents that are tokenized together."""
MAX_EXAMPLES, MAX_CHARACTERS = 1024, 1 << 20
"""Examples, and characters, that are tokenized together."""
DISK_THRESHOLD = 100_000_000
"""Characters of text from which token ids are kept on disk."""
CACHE_DIR = ".tokens"
Item = TypeVar("Item")


@dataclass(frozen=True)
class CorpusSplit(Generic[Example]):
    """One side of a split, or all examples."""

    examples: Examples[Example]
    split: Split | None = None
    is_held_out: bool = False

    def __iter__(self) -> Iterator[Example]:
        if self.split is None:
            return iter(self.examples)
        return self.split.validation(self.examples) if self.is_held_out else self.split.train(self.examples)


@dataclass(frozen=True)
class Corpus(Generic[Example]):
    """The data of one run."""

    train: CorpusSplit[Example]
    valid: CorpusSplit[Example]
    counts: tuple[int, int]
    """Training and validation examples."""
    characters: int
    """Characters of training text."""
    digest: str
    valid_characters: int = 0
    """Characters of given validation data; an automatic split is small."""
    notes: tuple[str, ...] = ()
    columns: tuple[str | None, ...] = ()
    """Columns named by the user; detected ones follow from the data."""
    test_count: int = 0
    """Test examples."""

    def summary(self) -> dict[str, dict[str, int]]:
        """The sizes of the training, validation and test data."""
        sizes = {
            "training": {"examples": self.counts[0], "characters": self.characters},
            "validation": {"examples": self.counts[1]},
        }
        return sizes | ({"test": {"examples": self.test_count}} if self.test_count else {})

    @property
    def messages(self) -> tuple[str, ...]:
        """What was detected, for people."""
        return (*self.train.examples.notes, *self.notes)


def read_corpus(
    read: Callable[..., Examples[Example]],
    data: Files,
    valid: Files,
    *,
    max_valid: int | None = None,
    columns: tuple[str | None, ...] = (),
) -> Corpus[Example]:
    """Training data and validation data: given, or a split that depends on the examples' content only.

    At most `max_valid` examples of given validation data are used.
    """
    examples = read(data)
    if not valid:
        split = make_validation_split(examples)
        train, held_out = CorpusSplit(examples, split), CorpusSplit(examples, split, is_held_out=True)
        count, characters = count_examples(train)
        digest, notes = data_digest(examples.files), _skipped("training data", examples)
        return Corpus(train, held_out, (count, split.held_out), characters, digest, notes=notes, columns=columns)
    train, used = CorpusSplit(examples), CorpusSplit(read(valid, **examples.inferred))
    (count, characters), (valid_count, valid_characters) = count_examples(train), count_examples(used)
    notes = (*_skipped("training data", examples), *_skipped("validation data", used.examples))
    digest = data_digest([*examples.files, *used.examples.files])
    if max_valid is not None and valid_count > max_valid:
        sampled, given = make_split(used.examples, fraction=1.0, max_held_out=max_valid), valid_count
        used = CorpusSplit(used.examples, sampled, is_held_out=True)
        valid_count, valid_characters = count_examples(used)
        notes += (f"Evaluating on {valid_count:,} of the {given:,} validation examples, sampled by content.",)
    return Corpus(train, used, (count, valid_count), characters, digest, valid_characters, notes, columns)


def count_examples(split: CorpusSplit[Example]) -> tuple[int, int]:
    """The number of examples, and of their characters."""
    count, characters = 0, 0
    for example in split:
        count += 1
        characters += sum(map(len, cast(dict[str, str], example.texts).values()))
    return count, characters


def _skipped(name: str, examples: Examples[Any]) -> tuple[str, ...]:
    """How many rows the last pass skipped, and why; nothing if it skipped none."""
    return (f"{name}: {examples.read_stats}",) if str(examples.read_stats) else ()


def contiguous_texts(split: CorpusSplit[TextExample]) -> Iterator[tuple[list[TextExample], bool, bool]]:
    """Consecutive texts of one document, interrupted where an example is in the other split.

    Each comes with two flags: whether the document begins, and whether it ends, with them.
    """
    texts: list[TextExample] = []
    begins, last, length = True, None, 0
    for example in split.examples:
        is_included = split.split is None or split.split.holds_out(example) == split.is_held_out
        is_new = example.document != last
        if texts and (is_new or not is_included or length > MAX_CHUNK_CHARACTERS):
            yield texts, begins, is_new
            texts, length, begins = [], 0, False
        if is_included:
            begins = is_new if not texts else begins
            texts.append(example)
            length += len(example.text)
        last = example.document
    if texts:
        yield texts, begins, True


@dataclass(frozen=True)
class TokenCache:
    """Token ids of a corpus: in memory or, if the text is large, in a folder next to the runs."""

    corpus: Corpus[Any]
    tokenizer: TextTokenizer
    run_dir: Path | None = None

    @property
    def is_on_disk(self) -> bool:
        return self.corpus.characters > DISK_THRESHOLD

    def store(
        self,
        examples: Iterable[Sequence[Ids]],
        format: str,
        *,
        rows: int = 1,
        num_ids: int = 0,
        is_validation: bool = False,
    ) -> TokenStore:
        """Token ids of the training or of the validation data.

        `format` is part of the cache key: it names everything besides text and tokenizer that the ids depend on.
        `num_ids` is the number of different ids, if larger than the vocabulary.
        """
        report_activity("tokenizing the data")
        vocab_size = max(self.tokenizer.vocab_size, num_ids)
        if (self.corpus.valid_characters if is_validation else self.corpus.characters) <= DISK_THRESHOLD:
            return store_in_memory(examples, vocab_size=vocab_size, rows=rows)
        format = f"validation {format}" if is_validation else format
        folder = (self.run_dir.parent if self.run_dir else RUNS) / CACHE_DIR / self._key(format)
        return _open(folder) or _write(examples, folder, vocab_size=vocab_size, rows=rows)

    def _key(self, format: str) -> str:
        """A name that depends on the text, the columns and the tokenizer."""
        corpus, tokenizer = self.corpus, self.tokenizer.tokenizer
        parts = (corpus.digest, corpus.columns, corpus.counts, corpus.characters, format, tokenizer.to_str())
        return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _open(folder: Path) -> TokenStore | None:
    """An existing store; a damaged one is removed with a warning."""
    if not folder.exists():
        return None
    try:
        return TokenStore.open(folder)
    except TrainingError as error:
        log.warning(f"{error}. Tokenizing again.")
        shutil.rmtree(folder)
        return None


def _write(examples: Iterable[Sequence[Ids]], folder: Path, *, vocab_size: int, rows: int) -> TokenStore:
    """Write a store; another run that writes the same one may finish first."""
    log.info(f"The text is large: token ids are cached in {folder}, which can be deleted after the run.")
    try:
        write_store(examples, folder, vocab_size=vocab_size, rows=rows)
    except DiskError:
        if not folder.exists():
            raise
    return TokenStore.open(folder)


def chunk_by_size(examples: Iterable[Item], size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Examples in chunks that a tokenizer encodes efficiently. `size` gives the characters of an example.

    >>> [len(chunk) for chunk in chunk_by_size(["a"] * 1500 + ["b" * (1 << 20)] * 2, len)]
    [1024, 477, 1]
    """
    chunk: list[Item] = []
    characters = 0
    for example in examples:
        chunk.append(example)
        characters += size(example)
        if len(chunk) >= MAX_EXAMPLES or characters >= MAX_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def tokenize_split(split: CorpusSplit[TextExample], tokenizer: TextTokenizer) -> TokenizedDocuments:
    """All documents of a split, concatenated in memory."""
    return _as_documents(store_in_memory(encode_documents(split, tokenizer), vocab_size=tokenizer.vocab_size))


def tokenize_corpus(cache: TokenCache, label_dropout: float = 0.0) -> tuple[TokenizedDocuments, TokenizedDocuments]:
    """Training and validation documents, in memory or, if large, on disk; see `encode_documents`."""
    corpus, tokenizer = cache.corpus, cache.tokenizer
    format = f"documents without {label_dropout:g} of the labels" if label_dropout else "documents"
    train = cache.store(encode_documents(corpus.train, tokenizer, label_dropout), format)
    valid = cache.store(encode_documents(corpus.valid, tokenizer), "documents", is_validation=True)
    return _as_documents(train), _as_documents(valid)


def _as_documents(store: TokenStore) -> TokenizedDocuments:
    if not len(store.ids):
        raise DataError("no training text: every text is held out or empty")
    return TokenizedDocuments.from_store(store)


def encode_documents(
    split: CorpusSplit[TextExample], tokenizer: TextTokenizer, label_dropout: float = 0.0
) -> Iterator[tuple[Ids]]:
    """Ids of each chunk of text, with BOS and its label where its document begins, and EOS where it ends.

    A share of `label_dropout` of the documents, by their content, has no label: the model learns to do without.
    """
    chunks, labels = contiguous_texts(split), label_ids(tokenizer.tokenizer)
    while group := list(islice(chunks, DOCUMENTS_PER_CALL)):
        encoded = tokenizer.encode(["".join(text.text for text in texts) for texts, _, _ in group])
        for ids, (texts, begins, ends) in zip(encoded, group, strict=True):
            is_dropped = label_dropout and content_digest(texts[0].text) % 10_000 < 10_000 * label_dropout
            label = [] if is_dropped or texts[0].label not in labels else [labels[texts[0].label]]
            row = [*([tokenizer.bos_id, *label] if begins else []), *ids, *([tokenizer.eos_id] if ends else [])]
            if row:
                yield (row,)


def count_utf8_bytes(split: CorpusSplit[TextExample]) -> int:
    """The length of the text in UTF-8 bytes."""
    return sum(
        len(text.text.encode("utf-8", "surrogatepass")) for texts, _, _ in contiguous_texts(split) for text in texts
    )
