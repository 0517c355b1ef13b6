"""Text as one long row of ids: in memory where there is little of it, else on disk, where it is read as it lies."""

import hashlib
import logging
from array import array
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch

from softlook.base.errors import DataError
from softlook.data import Text
from softlook.recipes.corpus import Corpus, Part, unbroken
from softlook.tokens import TextTokenizer
from softlook.train.stream import Tokens, write_tokens

log = logging.getLogger("softlook.recipes")
AT_ONCE = 16
"""Stretches of text that are handed to the tokenizer together."""
LARGE = 100_000_000
"""Characters of text from which on ids are kept on disk."""
CACHE = ".tokens"


def tokens_of(part: Part[Text], tokenizer: TextTokenizer) -> Tokens:
    """All documents one behind the other, in memory."""
    ids, starts = array("i"), array("q")
    for row in rows_of(part, tokenizer):
        starts.append(len(ids))
        ids.extend(row)
    if not ids:
        raise DataError("there is nothing to learn from: every text is held out, or empty")
    return Tokens(torch.frombuffer(ids, dtype=torch.int32), torch.frombuffer(starts, dtype=torch.int64))


def tokens_on_disk(corpus: Corpus[Text], tokenizer: TextTokenizer, runs: Path) -> Tokens:
    """The same from a folder beside the runs, which is written once for each text and tokenizer."""
    key = hashlib.sha256(f"{corpus.digest} {tokenizer.tokenizer.to_str()}".encode()).hexdigest()[:16]
    folder = runs / CACHE / key
    if not folder.exists():
        log.info(f"The text is large: its ids are kept in {folder}, which can be removed after the run.")
        write_tokens(rows_of(corpus.train, tokenizer), folder, vocab=tokenizer.vocab)
    return Tokens.open(folder)


def rows_of(part: Part[Text], tokenizer: TextTokenizer) -> Iterator[list[int]]:
    """Ids of each stretch of text, with a sign where its document begins and where it ends."""
    stretches = unbroken(part)
    while some := list(islice(stretches, AT_ONCE)):
        coded = tokenizer.encode(["".join(text.text for text in texts) for texts, _, _ in some])
        for ids, (_, begins, ends) in zip(coded, some, strict=True):
            yield [*([tokenizer.begin] if begins else []), *ids, *([tokenizer.end] if ends else [])]


def bytes_of(part: Part[Text]) -> int:
    """How long the text is where every character takes the bytes that UTF-8 gives it."""
    return sum(len(text.text.encode("utf-8", "surrogatepass")) for texts, _, _ in unbroken(part) for text in texts)
