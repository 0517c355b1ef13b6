"""Continuous batching of decoder-only models."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from softlook.blocks.kv_cache import DynamicCache, KeyValue, KVCache
from softlook.decode import CausalLMSession
from softlook.decode.token_tensors import pad_left
from softlook.ops.masks import padding
from softlook.serve.engine.kv_cache import AdmissionPlan, RaggedKVCache
from softlook.serve.engine.prefix_cache import PrefixCache
from softlook.serve.engine.request import ScheduledRequest
from softlook.serve.engine.sampler import advance
from softlook.serve.engine.scheduler import RequestGroup, Scheduler, group_by_length

PREFILL_CHUNK = 512
"""Prompt tokens processed per step (chunked prefill), so that running sequences do not wait long."""


class DecodeBatch:
    """Sequences that share a KV cache and get one token each per step."""

    def __init__(self, model: Any) -> None:
        self.model, self.cache, self.running = model, RaggedKVCache(), list[ScheduledRequest]()
        self.prefilled: list[tuple[KVCache, list[int], list[ScheduledRequest]]] = []
        """Prefilled requests that join at the next step: cache, prompt lengths, requests."""
        self.device = next(model.parameters()).device

    @property
    def requests(self) -> list[ScheduledRequest]:
        return [*self.running, *(scheduled for *_, requests in self.prefilled for scheduled in requests)]

    def step(self) -> "list[DecodeBatch]":
        """Drop cancelled requests, add prefilled ones, and generate one token for each."""
        self._keep([index for index, scheduled in enumerate(self.running) if not scheduled.cancelled])
        while self.prefilled:
            cache, lengths, requests = self.prefilled[0]
            self.cache.add_rows(cache, lengths, [scheduled.request.max_length for scheduled in requests])
            self.running += requests
            del self.prefilled[0]
        if self.running:
            self._decode()
        return [self] if self.running else []

    def restart(self, requests: Sequence[ScheduledRequest]) -> "Prefill":
        """In a batch of their own: one of them may fail again."""
        return Prefill(self.model, requests, DecodeBatch(self.model))

    def release(self) -> None:
        self.cache, self.running, self.prefilled = RaggedKVCache(), [], []

    def _decode(self) -> None:
        ids = torch.tensor([scheduled.row.generated[-1:] for scheduled in self.running], device=self.device)
        self.cache.advance()
        lengths = torch.tensor(self.cache.lengths, device=self.device)
        is_dense = min(self.cache.lengths) == self.cache.width
        mask = None if is_dense else padding(lengths, side="left", length=self.cache.width)
        logits = self.model(ids, cache=self.cache, mask=mask, positions=lengths[:, None] - 1)
        self._keep(advance(logits[:, -1], self.running))

    def _keep(self, indices: Sequence[int]) -> None:
        """Remove all other rows. Backwards, because the last row takes the index of a removed one."""
        kept = set(indices)
        for index in reversed(range(len(self.running))):
            if index not in kept:
                self.cache.remove_row(index)
                self.running[index] = self.running[-1]
                self.running.pop()


class Prefill:
    """Chunked prefill of prompts, before their sequences join a batch. Equal prompts are processed once.

    What all prompts have in the prefix cache is not computed again. A group that is retried after an error has none.
    """

    def __init__(
        self,
        model: Any,
        requests: Sequence[ScheduledRequest],
        batch: DecodeBatch,
        prefixes: PrefixCache | None = None,
    ) -> None:
        self.model, self.requests, self.batch = model, list(requests), batch
        self.prefixes = PrefixCache(0) if prefixes is None else prefixes
        distinct = list(dict.fromkeys(_prompt_and_salt(scheduled) for scheduled in requests))
        self.prompts, self.salts = [ids for ids, _ in distinct], [salt for _, salt in distinct]
        self.rows = [distinct.index(_prompt_and_salt(scheduled)) for scheduled in requests]
        """Index into `prompts` of each request."""
        self.session, self.num_read = CausalLMSession(model), 0
        self.padded: tuple[Tensor, Tensor | None] | None = None

    def step(self) -> Sequence[RequestGroup]:
        """Process the next chunk. After the last one, each request gets its first token and joins the batch."""
        if all(scheduled.cancelled for scheduled in self.requests):
            return []
        logits = self._read_chunk()
        if logits is None:
            return [self]
        running = advance(logits[torch.tensor(self.rows, device=logits.device)], self.requests)
        self._cache_prefixes()
        if not running:
            return []
        rows = [self.rows[index] for index in running]
        self.session.cache.reorder(torch.tensor(rows, device=logits.device))
        lengths = [len(self.prompts[row]) for row in rows]
        self.batch.prefilled.append((self.session.cache, lengths, [self.requests[index] for index in running]))
        return [self.batch]

    def restart(self, requests: Sequence[ScheduledRequest]) -> "Prefill":
        return Prefill(self.model, requests, DecodeBatch(self.model))

    def release(self) -> None:
        self.requests, self.session = [], CausalLMSession(self.model)

    def _read_chunk(self) -> Tensor | None:
        """Process a chunk; the logits of the last tokens after the last chunk."""
        if self.padded is None:
            self.padded = pad_left(self.prompts, self.batch.device)
            self._load_prefixes(*self.padded)
        ids, lengths = self.padded
        width = ids.shape[1]
        stop = min(self.num_read + max(PREFILL_CHUNK // len(ids), 1), width)
        # Tokens of each row in the first chunk: all of the padding is there, and possibly nothing else.
        chunk_lengths = lengths - (width - stop) if self.num_read == 0 and lengths is not None else None
        logits = self.session.step(ids[:, self.num_read : stop], chunk_lengths)
        self.num_read = stop
        return logits if stop == width else None

    def _load_prefixes(self, ids: Tensor, lengths: Tensor | None) -> None:
        """Start after the columns that are padding or cached in every row."""
        hits = [self.prefixes.match(*prompt) for prompt in zip(self.prompts, self.salts, strict=True)]
        pads = [ids.shape[1] - len(prompt) for prompt in self.prompts]
        self.num_read = min(pad + hit for pad, hit in zip(pads, hits, strict=True))
        if not self.num_read:
            return
        counts = [max(self.num_read - pad, 0) for pad in pads]
        loaded = [
            self.prefixes.load(prompt, count, salt) if count else []
            for prompt, salt, count in zip(self.prompts, self.salts, counts, strict=True)
        ]
        depth = max(map(len, loaded))
        for layer, cache in enumerate(self.session.cache.allocate(depth)):
            cache.update(*_pad_left([row[layer] if row else None for row in loaded], self.num_read))
        self.session.padding.begin(ids, lengths)

    def _cache_prefixes(self) -> None:
        """Add the prompts of the requests that did not fail to the prefix cache."""
        layers = [layer.kv for layer in self.session.cache.layers if isinstance(layer, DynamicCache) and layer.kv]
        for row in {row for row, scheduled in zip(self.rows, self.requests, strict=True) if scheduled.error is None}:
            length = len(self.prompts[row])
            own = [(key[row, :, -length:], value[row, :, -length:]) for key, value in layers]
            self.prefixes.insert(self.prompts[row], own, self.salts[row])


def _prompt_and_salt(scheduled: ScheduledRequest) -> tuple[tuple[int, ...], str]:
    return scheduled.token_ids, scheduled.request.cache_salt


def _pad_left(rows: Sequence[KeyValue | None], width: int) -> KeyValue:
    """Keys and values of rows as one batch, with zeros on the left."""
    given = next(row for row in rows if row is not None)
    padded = []
    for side, like in enumerate(given):
        batch = like.new_zeros(len(rows), like.shape[0], width, like.shape[2])
        for number, row in enumerate(rows):
            if row is not None:
                batch[number, :, width - row[side].shape[1] :] = row[side]
        padded.append(batch)
    return padded[0], padded[1]


class ContinuousBatcher(Scheduler):
    """Continuous batching for GPT and Llama: requests join and leave a ragged batch between any two tokens.

    There are several batches if one would be wider than its share of the KV cache.
    """

    def __init__(
        self, model: Any, *, max_requests: int = 64, max_positions: int = 1 << 20, prefix_caching: bool = True
    ) -> None:
        super().__init__(max_requests, max_positions)
        self.model, self.open_batches = model, [DecodeBatch(model)]
        """Batches that accept new requests."""
        self.prefix_caching, self.prefixes = prefix_caching, PrefixCache(0)
        """The cache of prefixes has the memory that running requests leave."""

    @property
    def prefills(self) -> list[Prefill]:
        return [group for group in self.groups if isinstance(group, Prefill)]

    @property
    def batches(self) -> list[DecodeBatch]:
        """The open batches, and those restarted after an error."""
        batches = {id(batch): batch for batch in self.open_batches}
        for group in self.groups:
            batch = group.batch if isinstance(group, Prefill) else group
            assert isinstance(batch, DecodeBatch)
            batches.setdefault(id(batch), batch)
        return list(batches.values())

    def can_admit(self, scheduled: ScheduledRequest, admitted: Sequence[ScheduledRequest]) -> bool:
        """A request that is alone always fits."""
        others = len(self.requests) + len(admitted)
        if not others or others >= self.max_requests:
            return not others
        plan = self._plan()
        for other in (*admitted, scheduled):
            plan.add(other.request.max_length)
        return plan.used <= self.budget

    def add(self, requests: Sequence[ScheduledRequest]) -> None:
        """Prompts of similar length are prefilled together."""
        plan, batches = self._plan(), list(self.open_batches)
        by_batch: dict[int, list[ScheduledRequest]] = {}
        for scheduled in requests:
            by_batch.setdefault(plan.add(scheduled.request.max_length), []).append(scheduled)
        batches += [DecodeBatch(self.model) for _ in range(len(batches), max(by_batch) + 1)]
        prefills = [
            Prefill(self.model, group, batches[number], self.prefixes)
            for number, members in by_batch.items()
            for group in group_by_length(members)
        ]
        self.open_batches, self.groups = batches, [*self.groups, *prefills]
        if self.prefix_caching:
            self.prefixes.max_positions = self.budget - plan.used
            self.prefixes.shrink(self.prefixes.max_positions)

    def next_groups(self) -> Sequence[RequestGroup]:
        """A chunk of the first prefill, then one token of every batch."""
        first, *others = self.open_batches
        self.open_batches = [first, *(batch for batch in others if self._members(batch))]
        return [*self.prefills[:1], *(group for group in self.groups if isinstance(group, DecodeBatch))]

    def used_positions(self) -> int:
        return self._plan().used

    def _plan(self) -> AdmissionPlan:
        sizes = [
            ([one.request.max_length for one in self._members(batch)], batch.cache.rows * batch.cache.columns)
            for batch in self.batches
        ]
        return AdmissionPlan(self.budget, sizes, len(self.open_batches))

    def _members(self, batch: DecodeBatch) -> list[ScheduledRequest]:
        """Requests in a batch, and those being prefilled for it."""
        prefilling = (scheduled for one in self.prefills if one.batch is batch for scheduled in one.requests)
        return [*batch.requests, *prefilling]
