"""Token cache: tokenized text in memory or memory-mapped on disk."""

import hashlib
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from softlook.base.errors import DataError, DiskError, TrainingError
from softlook.data import TextExample
from softlook.recipes.run_dir.layout import RUNS
from softlook.recipes.text.corpus import Corpus, CorpusSplit, contiguous_texts
from softlook.tokens import TextTokenizer
from softlook.train.batching.collate import Ids
from softlook.train.batching.packed_stream import TokenizedDocuments
from softlook.train.batching.token_store import TokenStore, store_in_memory, write_store

log = logging.getLogger("softlook.recipes")
DOCUMENTS_PER_CALL = 16
"""Chunks of documents that are tokenized together."""
MAX_EXAMPLES, MAX_CHARACTERS = 1024, 1 << 20
"""Examples, and characters, that are tokenized together."""
DISK_THRESHOLD = 100_000_000
"""Characters of text from which token ids are kept on disk."""
CACHE_DIR = ".tokens"
Example = TypeVar("Example")


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


def chunk_by_size(examples: Iterable[Example], size: Callable[[Example], int]) -> Iterator[list[Example]]:
    """Examples in chunks that a tokenizer encodes efficiently. `size` gives the characters of an example.

    >>> [len(chunk) for chunk in chunk_by_size(["a"] * 1500 + ["b" * (1 << 20)] * 2, len)]
    [1024, 477, 1]
    """
    chunk: list[Example] = []
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


def tokenize_corpus(cache: TokenCache) -> tuple[TokenizedDocuments, TokenizedDocuments]:
    """Training and validation documents, in memory or, if large, on disk."""
    corpus, tokenizer = cache.corpus, cache.tokenizer
    train = cache.store(encode_documents(corpus.train, tokenizer), "documents")
    valid = cache.store(encode_documents(corpus.valid, tokenizer), "documents", is_validation=True)
    return _as_documents(train), _as_documents(valid)


def _as_documents(store: TokenStore) -> TokenizedDocuments:
    if not len(store.ids):
        raise DataError("no training text: every text is held out or empty")
    return TokenizedDocuments.from_store(store)


def encode_documents(split: CorpusSplit[TextExample], tokenizer: TextTokenizer) -> Iterator[tuple[Ids]]:
    """Ids of each chunk of text, with BOS where its document begins and EOS where it ends."""
    chunks = contiguous_texts(split)
    while group := list(islice(chunks, DOCUMENTS_PER_CALL)):
        encoded = tokenizer.encode(["".join(text.text for text in texts) for texts, _, _ in group])
        for ids, (_, begins, ends) in zip(encoded, group, strict=True):
            row = [*([tokenizer.bos_id] if begins else []), *ids, *([tokenizer.eos_id] if ends else [])]
            if row:
                yield (row,)


def count_utf8_bytes(split: CorpusSplit[TextExample]) -> int:
    """The length of the text in UTF-8 bytes."""
    return sum(
        len(text.text.encode("utf-8", "surrogatepass")) for texts, _, _ in contiguous_texts(split) for text in texts
    )
