"""The prefix cache changes the time to the first token, and nothing else."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from softlook.decode.sampling import SamplingParams
from softlook.serve.engine.continuous_batcher import ContinuousBatcher
from softlook.serve.engine.prefix_cache import BLOCK_TOKENS, PrefixCache
from softlook.serve.engine.request import EngineRequest, ScheduledRequest
from tests.serve.tiny_models import decoder

VOCAB = 40


def tokens(count: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(torch.randint(VOCAB, (count,), generator=torch.Generator().manual_seed(seed)).tolist())


def run_all(scheduler: ContinuousBatcher, requests: Sequence[EngineRequest]) -> list[ScheduledRequest]:
    """Run requests on a scheduler, all admitted together."""
    entries = [ScheduledRequest(request, lambda scheduled, output: None) for request in requests]
    scheduler.add(entries)
    while scheduler.requests:
        scheduler.step()
    return entries


def outputs(entries: Sequence[ScheduledRequest]) -> list[list[int]]:
    return [entry.row.generated for entry in entries]


def count_read_tokens(model: Any, counts: list[int]) -> None:
    """Record the size of every forward pass of a model."""
    model.register_forward_pre_hook(lambda _, args, kwargs: counts.append(args[0].numel()), with_kwargs=True)


@pytest.mark.parametrize("kind", ["gpt", "llama", "windowed", "ngrams"])
@pytest.mark.parametrize("num_samples", [1, 3])
def test_responses_with_cached_prefixes_equal_those_without(kind: str, num_samples: int) -> None:
    shared = tokens(36)
    prompts = [(*shared, *tokens(length, seed=length)) for length in (1, 5, 14)] + [tokens(9, seed=1), shared[:20]]
    sampling = SamplingParams(temperature=1.0)
    requests = [
        EngineRequest(prompt, max_new_tokens=6, sampling=sampling, seed=seed, sample_index=sample)
        for seed, prompt in enumerate(prompts)
        for sample in range(num_samples)
    ]
    model = decoder(kind, VOCAB)
    expected = outputs(run_all(ContinuousBatcher(model, prefix_caching=False), requests))
    cached = ContinuousBatcher(model)
    assert outputs(run_all(cached, requests)) == expected
    assert cached.prefixes.num_hits == 0
    assert outputs(run_all(cached, requests)) == expected
    assert cached.prefixes.num_hits > 0
    for request, answer in zip(requests, expected, strict=True):
        assert outputs(run_all(cached, [request])) == [answer]


def test_cached_tokens_are_not_computed_again() -> None:
    model, counts = decoder("gpt", VOCAB), list[int]()
    count_read_tokens(model, counts)
    scheduler, shared = ContinuousBatcher(model), tokens(3 * BLOCK_TOKENS)
    run_all(scheduler, [EngineRequest((*shared, 1, 2))])
    run_all(scheduler, [EngineRequest((*shared, 3, 4, 5))])
    assert counts == [len(shared) + 2, 3]


def test_log_probabilities_after_a_cached_prefix_are_those_of_the_whole_prompt() -> None:
    model, shared = decoder("llama", VOCAB), tokens(40)
    request = EngineRequest((*shared, 7, 8), max_new_tokens=4)
    (alone,) = run_all(ContinuousBatcher(model, prefix_caching=False), [request])
    scheduler = ContinuousBatcher(model)
    run_all(scheduler, [EngineRequest((*shared, 1))])
    (cached,) = run_all(scheduler, [request])
    assert scheduler.prefixes.num_hits == 32
    found, expected = ([token.logprob for token in one.row.tokens] for one in (cached, alone))
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), atol=1e-5, rtol=0)


def test_requests_with_another_salt_share_nothing() -> None:
    scheduler, prompt = ContinuousBatcher(decoder("gpt", VOCAB)), tokens(40)
    run_all(scheduler, [EngineRequest(prompt, cache_salt="one")])
    run_all(scheduler, [EngineRequest(prompt, cache_salt="two")])
    assert scheduler.prefixes.num_hits == 0
    run_all(scheduler, [EngineRequest(prompt, cache_salt="two")])
    assert scheduler.prefixes.num_hits == 32


def test_the_cache_and_the_running_requests_stay_within_the_budget() -> None:
    budget = 400
    scheduler = ContinuousBatcher(decoder("gpt", VOCAB), max_positions=budget)
    for seed in range(12):
        run_all(scheduler, [EngineRequest(tokens(40, seed), max_new_tokens=4)])
        assert scheduler.used_positions() + scheduler.prefixes.positions <= budget
    assert scheduler.prefixes.positions > 0


def test_a_failed_request_is_not_cached() -> None:
    model = decoder("gpt", VOCAB)
    with torch.no_grad():
        model.token_embedding.weight[5] = torch.nan
    scheduler = ContinuousBatcher(model)
    (entry,) = run_all(scheduler, [EngineRequest((5,) * 20)])
    assert entry.error is not None
    assert scheduler.prefixes.positions == 0


def test_the_least_recently_used_prefix_is_dropped_from_its_end() -> None:
    def kv(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return [(torch.zeros(1, count, 2), torch.zeros(1, count, 2))]

    cache = PrefixCache(max_positions=6 * BLOCK_TOKENS)
    first, second, third = (tokens(3 * BLOCK_TOKENS + 1, seed) for seed in range(3))
    cache.insert(first, kv(len(first)))
    cache.insert(second, kv(len(second)))
    assert cache.match(first) == 3 * BLOCK_TOKENS  # used: `second` is older now
    cache.insert(third[: 2 * BLOCK_TOKENS], kv(2 * BLOCK_TOKENS))
    assert [cache.match(ids) // BLOCK_TOKENS for ids in (first, second, third)] == [3, 1, 2]
    assert cache.positions == 6 * BLOCK_TOKENS
