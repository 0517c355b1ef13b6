"""Batched sampling with per-request parameters and seeds."""

import logging
from collections.abc import Hashable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.decode import GeneratedToken, Multinomial, SequenceView
from softlook.decode.sampling import TokenSelector, sample_inverse_cdf, seeded_uniform, select_tokens
from softlook.serve.engine.request import ScheduledRequest
from softlook.serve.engine.scheduler import NonFiniteError, client_error

log = logging.getLogger("softlook.serve")


def advance(logits: Float[Tensor, "N V"], requests: Sequence[ScheduledRequest]) -> list[int]:
    """Append a sampled token to each request; return the indices of the requests that continue."""
    for scheduled, token in zip(requests, sample_tokens(logits, requests), strict=True):
        try:
            scheduled.append_token(token) if isinstance(token, GeneratedToken) else scheduled.fail(token)
        except Exception as error:  # its own text or stop strings: no other request is affected
            log.error("a token could not be appended", exc_info=error)
            scheduled.fail(client_error(error))
    return [i for i, scheduled in enumerate(requests) if not (scheduled.finished or scheduled.cancelled)]


def sample_tokens(
    logits: Float[Tensor, "N V"], requests: Sequence[ScheduledRequest]
) -> list[GeneratedToken | Exception]:
    """A token for each request, equal to the one it gets when sampled alone, or the error if sampling fails.

    Non-finite logits are rejected before sampling: on a GPU, an index out of range would end the process.
    """
    results: list[GeneratedToken | Exception] = [NonFiniteError("logits")] * len(requests)
    groups: dict[Hashable, list[int]] = {}
    finite = logits.amax(-1).isfinite().tolist()  # NaN, +inf and all -inf show in the maximum
    for index, scheduled in enumerate(requests):
        if finite[index]:
            groups.setdefault(_batch_key(scheduled), []).append(index)
    for indices in groups.values():
        is_all = len(indices) == len(requests)
        own_logits = logits if is_all else logits[torch.tensor(indices, device=logits.device)]
        tokens = _sample_isolated(own_logits, [requests[index] for index in indices])
        for index, token in zip(indices, tokens, strict=True):
            results[index] = token
    return results


def _batch_key(scheduled: ScheduledRequest) -> Hashable:
    """Requests with equal keys are sampled together."""
    request = scheduled.request
    return request.sampling, None if request.generation_config is None else request.processor_key


def _sample_isolated(logits: Tensor, requests: Sequence[ScheduledRequest]) -> Sequence[GeneratedToken | Exception]:
    try:
        return _sample_batch(logits, requests)
    except Exception as error:  # caused by one of them: sample each alone
        if len(requests) == 1:
            log.error("sampling failed", exc_info=error)
            return [client_error(error)]
        return [_sample_isolated(logits[i : i + 1], [scheduled])[0] for i, scheduled in enumerate(requests)]


def _sample_batch(logits: Tensor, requests: Sequence[ScheduledRequest]) -> list[GeneratedToken]:
    first, sequences = requests[0].request, [scheduled.row.view() for scheduled in requests]
    sampler = first.sampling.sampler()
    if isinstance(sampler, Multinomial):
        sampler = _SeededSampler(sampler, requests)
    selector = TokenSelector(sampler, first.processors(), frozenset(), first.sampling.num_logprobs)
    return select_tokens(logits, sequences, selector)


class _SeededSampler:
    """Samples a batch in which every sequence has its own seed."""

    def __init__(self, sampler: Multinomial, requests: Sequence[ScheduledRequest]) -> None:
        self.sampler, self.seeds = sampler, [scheduled.request.seed for scheduled in requests]

    def __call__(self, logits: Float[Tensor, "N V"], sequences: Sequence[SequenceView]) -> Tensor:
        uniforms = [
            seeded_uniform(seed, one.index, len(one.generated)) for seed, one in zip(self.seeds, sequences, strict=True)
        ]
        numbers = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)
        return sample_inverse_cdf(self.sampler.warp_logits(logits), numbers)
