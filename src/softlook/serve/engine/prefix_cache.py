"""Prefix cache: keys and values of the beginnings of earlier prompts, in blocks.

A block is found by a hash of all tokens up to its end, as in vLLM. The keys and values of a token depend on the tokens
before it alone: a new prompt with the same beginning has the same ones, and need not compute them again. The least
recently used blocks are dropped first.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import islice
from math import ceil

import torch

from softlook.blocks.kv_cache import KeyValue

BLOCK_TOKENS = 16
"""Tokens of a block: only whole blocks are cached."""


class PrefixCache:
    """Keys and values of prefixes, at most `max_positions` tokens of them.

    >>> cache, kv = PrefixCache(max_positions=64), (torch.randn(2, 40, 8), torch.randn(2, 40, 8))
    >>> cache.insert(range(40), [kv])
    >>> cache.match(range(20)), cache.match([*range(32), 7]), cache.match([7, *range(1, 20)])
    (16, 32, 0)
    >>> torch.equal(cache.load(range(20), 16)[0][0], kv[0][:, :16])
    True
    """

    def __init__(self, max_positions: int) -> None:
        self.max_positions = max_positions
        self.blocks: OrderedDict[bytes, list[KeyValue]] = OrderedDict()
        """By the hash of all tokens up to the end of the block: keys and values of each layer, (G, tokens, D)."""
        self.num_queried = self.num_hits = 0
        """Tokens of the prompts that were looked up, and those found."""

    @property
    def positions(self) -> int:
        """Tokens in the cache."""
        return len(self.blocks) * BLOCK_TOKENS

    def match(self, ids: Sequence[int], salt: str = "") -> int:
        """The number of tokens at the beginning that are cached. At least the last token is not counted."""
        keys = list(_block_keys(ids[:-1], salt))
        count = next((index for index, key in enumerate(keys) if key not in self.blocks), len(keys))
        self._touch(keys[:count])
        self.num_queried, self.num_hits = self.num_queried + len(ids), self.num_hits + count * BLOCK_TOKENS
        return count * BLOCK_TOKENS

    def load(self, ids: Sequence[int], count: int, salt: str = "") -> list[KeyValue]:
        """Keys and values of the first `count` tokens, for each layer; they must be cached."""
        keys = islice(_block_keys(ids, salt), ceil(count / BLOCK_TOKENS))
        layers = zip(*(self.blocks[key] for key in keys), strict=True)
        return [(keys_[:, :count], values[:, :count]) for keys_, values in map(_concat, layers)]

    def insert(self, ids: Sequence[int], layers: Sequence[KeyValue], salt: str = "") -> None:
        """Copy the keys and values of a prompt, (G, T, D) in each layer, and drop others to make room."""
        keys = list(_block_keys(ids, salt))[: self.max_positions // BLOCK_TOKENS]
        for number, key in enumerate(keys):
            if key not in self.blocks:
                tokens = slice(number * BLOCK_TOKENS, (number + 1) * BLOCK_TOKENS)
                self.blocks[key] = [(keys_[:, tokens].clone(), values[:, tokens].clone()) for keys_, values in layers]
        self._touch(keys)
        self.shrink(self.max_positions)

    def shrink(self, max_positions: int) -> None:
        """Drop the least recently used blocks beyond this number of tokens."""
        while self.positions > max(max_positions, 0):
            self.blocks.popitem(last=False)

    def _touch(self, keys: Sequence[bytes]) -> None:
        """Mark blocks as used. A later block is useless without the earlier ones, and is dropped before them."""
        for key in reversed(keys):
            self.blocks.move_to_end(key)


def _block_keys(ids: Sequence[int], salt: str) -> Iterator[bytes]:
    """The keys of the whole blocks of a sequence."""
    key = salt.encode()
    for start in range(0, len(ids) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        key = sha256(key + array("q", ids[start : start + BLOCK_TOKENS]).tobytes()).digest()
        yield key


def _concat(parts: Sequence[KeyValue]) -> KeyValue:
    keys, values = zip(*parts, strict=True)
    return torch.cat(keys, 1), torch.cat(values, 1)
