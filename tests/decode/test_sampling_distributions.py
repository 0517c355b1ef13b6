"""Every sampler draws from the distribution that its settings define: chi-square tests with fixed seeds.

The expected probabilities are computed here in plain Python, token by token, independently of the package.
"""

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch

from softlook.decode import Multinomial, SequenceView, generate
from softlook.decode.cuda_graphs.session import model_unsupported_reason
from softlook.decode.sampling import SamplingParams, sample_inverse_cdf, seeded_uniform
from softlook.models import GPT, GPTConfig
from softlook.serve.engine.request import EngineRequest, ScheduledRequest
from softlook.serve.engine.sampler import sample_tokens

LOGITS = [2.0, 1.5, 1.5, 1.0, 0.3, 0.0, -0.5, -1.0, -2.0, -4.0, -math.inf, 0.7]
DRAWS, MIN_P_VALUE = 20_000, 1e-4
"""The number of samples, and the p-value below which a sampler is considered wrong."""


class Params(NamedTuple):
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None


PARAMS = {
    "plain": Params(),
    "low temperature": Params(0.6),
    "high temperature": Params(1.8),
    "top_k": Params(1.0, 4),
    "top_k with ties": Params(1.0, 2),
    "top_p": Params(1.0, None, 0.7),
    "top_p at a high temperature": Params(1.5, None, 0.9),
    "min_p": Params(1.0, None, None, 0.15),
    "all": Params(1.2, 8, 0.95, 0.03),
}


def expected(logits: Sequence[float], params: Params) -> list[float]:
    """Temperature, then the top k (with ties), then the smallest set that reaches p, then min_p."""
    scaled = [one / params.temperature for one in logits]
    ids = sorted(range(len(scaled)), key=lambda id: (-scaled[id], id))
    if params.top_k is not None:
        ids = [id for id in ids if scaled[id] >= scaled[ids[params.top_k - 1]]]
    probabilities = softmax(scaled, ids)
    if params.top_p is not None:
        kept, total = list[int](), 0.0
        for id in ids:
            if kept and total >= params.top_p:
                break
            kept.append(id)
            total += probabilities[id]
        probabilities = softmax(scaled, kept)
    if params.min_p is not None:
        best = max(probabilities)
        probabilities = softmax(scaled, [id for id in ids if probabilities[id] >= params.min_p * best])
    return probabilities


def softmax(scores: Sequence[float], ids: Sequence[int]) -> list[float]:
    best = max(scores[id] for id in ids)
    weights = {id: math.exp(scores[id] - best) for id in ids}
    return [weights.get(id, 0.0) / math.fsum(weights.values()) for id in range(len(scores))]


def p_value(ids: Sequence[int], probabilities: Sequence[float]) -> float:
    """The p-value of the chi-square test; 0 if a token of probability 0 was sampled."""
    counts = torch.tensor(ids).bincount(minlength=len(probabilities)).tolist()
    if any(count and not probability for count, probability in zip(counts, probabilities, strict=True)):
        return 0.0
    expected = [
        (count, len(ids) * probability) for count, probability in zip(counts, probabilities, strict=True) if probability
    ]
    rare = [pair for pair in expected if pair[1] < 5]
    pairs = [pair for pair in expected if pair[1] >= 5]
    pairs += [(sum(count for count, _ in rare), sum(mean for _, mean in rare))] if sum(m for _, m in rare) > 1 else []
    statistic = sum((count - mean) ** 2 / mean for count, mean in pairs)
    half = torch.tensor([(len(pairs) - 1) / 2, statistic / 2], dtype=torch.float64)
    return 1.0 if len(pairs) == 1 else float(torch.special.gammaincc(half[0], half[1]))


def batched(params: Params) -> list[int]:
    generated = [SequenceView([1], (), number) for number in range(DRAWS)]
    return Multinomial(*params, seed=11)(torch.tensor([LOGITS]).expand(DRAWS, -1), generated).tolist()


def unseeded(params: Params) -> list[int]:
    torch.manual_seed(5)
    return Multinomial(*params)(torch.tensor([LOGITS]).expand(DRAWS, -1), [SequenceView([1])] * DRAWS).tolist()


def one_by_one(params: Params) -> list[int]:
    sampler, scores = Multinomial(*params, seed=12), torch.tensor([LOGITS])
    return [int(sampler(scores, [SequenceView([1], [0] * word, word)])) for word in range(2_000)]


def served(params: Params) -> list[int]:
    sampling, found = SamplingParams(params.temperature, params.top_k, params.top_p, params.min_p), list[int]()
    for start in range(0, 4_000, 500):
        requests = [
            ScheduledRequest(EngineRequest((1,), sampling=sampling, seed=start + i), lambda *_: None)
            for i in range(500)
        ]
        found += [one.id for one in sample_tokens(torch.tensor([LOGITS]).expand(500, -1), requests)]  # pyright: ignore[reportAttributeAccessIssue]
    return found


def constant_model() -> GPT:
    """A model whose logits are always LOGITS, with -30 instead of -inf."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=len(LOGITS), context=64, dim=16, depth=1, heads=2, tie_embeddings=False)).eval()
    with torch.no_grad():
        model.final_norm.weight.zero_()  # pyright: ignore
        model.final_norm.bias.zero_()  # pyright: ignore
        model.final_norm.bias[0] = 1.0  # pyright: ignore
        model.lm_head.weight.zero_()  # pyright: ignore
        model.lm_head.weight[:, 0] = torch.tensor([max(one, -30.0) for one in LOGITS])  # pyright: ignore
    return model


def generated(params: Params) -> list[int]:
    outputs = generate(constant_model(), [[1]] * 100, sampler=Multinomial(*params, seed=13), max_new_tokens=30)
    return [id for output in outputs for id in output.ids]


SAMPLERS: dict[str, Callable[[Params], list[int]]] = {
    "batched": batched, "unseeded": unseeded, "one by one": one_by_one, "served": served, "generated": generated,
}  # fmt: skip


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
def test_token_frequencies_match_the_settings(params: Params, sampler: Callable[[Params], list[int]]) -> None:
    assert p_value(sampler(params), expected([max(one, -30.0) for one in LOGITS], params)) > MIN_P_VALUE


@pytest.mark.parametrize("params", [PARAMS["plain"], PARAMS["all"]], ids=["plain", "all"])
def test_graph_token_frequencies_match_the_settings(params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    stream: Any = sys.modules["softlook.decode.generation"]
    monkeypatch.setattr(stream, "graph_unsupported_reason", lambda decoder: model_unsupported_reason(decoder))
    monkeypatch.setattr(stream, "MIN_TOKENS_TO_CAPTURE", 1)
    assert p_value(generated(params), expected([max(one, -30.0) for one in LOGITS], params)) > MIN_P_VALUE


def uniforms(seed: int) -> torch.Tensor:
    return torch.tensor([seeded_uniform(seed, number, 0) for number in range(DRAWS)], dtype=torch.float64)


ROWS = torch.tensor([LOGITS]).expand(DRAWS, -1)
WRONG: dict[str, tuple[Params, Callable[[], torch.Tensor]]] = {
    "a temperature that is wrong by 10 %": (Params(), lambda: sample_inverse_cdf(ROWS / 1.1, uniforms(1))),
    "top_k too large by one": (
        Params(1.0, 4),
        lambda: sample_inverse_cdf(Multinomial(top_k=5).warp_logits(ROWS), uniforms(1)),
    ),
    "top_k too small by one": (
        Params(1.0, 4),
        lambda: sample_inverse_cdf(Multinomial(top_k=3).warp_logits(ROWS), uniforms(1)),
    ),
    "top_p before the temperature": (
        Params(1.8, None, 0.6),
        lambda: sample_inverse_cdf(Multinomial(top_p=0.6).warp_logits(ROWS) / 1.8, uniforms(1)),
    ),
    "ids that are off by one": (Params(), lambda: (sample_inverse_cdf(ROWS, uniforms(1)) + 1) % len(LOGITS)),
    "a non-uniform generator": (Params(), lambda: sample_inverse_cdf(ROWS, uniforms(1) ** 1.05)),
    "a coarse generator": (Params(), lambda: sample_inverse_cdf(ROWS, (uniforms(1) * 8).floor() / 8)),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_samplers_are_detected(name: str) -> None:
    params, wrong = WRONG[name]
    assert p_value(wrong().tolist(), expected(LOGITS, params)) < MIN_P_VALUE
