"""Rows with invalid logits fail alone."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from softlook.base.errors import ConfigError, WeightsError
from softlook.decode import CausalLMSession, Greedy, Multinomial, SequenceView, beam_search, generate, stream
from softlook.decode.cuda_graphs.session import model_unsupported_reason
from softlook.decode.generation_config import GenerationConfig
from softlook.decode.outputs import LogitsError, NoTokenLeftError, RowError
from softlook.decode.sampling import (
    Sampler,
    TokenSelector,
    sample_inverse_cdf,
    select_tokens,
    try_select_tokens,
)
from softlook.models import GPT
from tests.models.tiny import TINY

BAD = 10
"""The id after which the model's logits are broken."""
PROMPTS = [[3, 1, 4], [1, 5, BAD], [9, 2, 6], [5, 3, 5]]
BREAKAGES: dict[str, Callable[[Tensor], Tensor]] = {
    "one NaN": lambda row: row.index_fill(-1, torch.tensor(2, device=row.device), torch.nan),
    "all NaN": lambda row: row * torch.nan,
    "one +inf": lambda row: row.index_fill(-1, torch.tensor(2, device=row.device), torch.inf),
    "all +inf": lambda row: torch.full_like(row, torch.inf),
    "all -inf": lambda row: torch.full_like(row, -torch.inf),
}
SAMPLERS: dict[str, Sampler] = {
    "greedy": Greedy(),
    "sampling": Multinomial(temperature=1.3, seed=5),
    "truncated sampling": Multinomial(temperature=0.7, top_k=5, top_p=0.9, min_p=0.01, seed=5),
    "unseeded sampling": Multinomial(),
}
STREAM, BEAM = sys.modules["softlook.decode.generation"], sys.modules["softlook.decode.beam.search"]


def tiny() -> GPT:
    model = TINY["GPT"].build()
    assert isinstance(model, GPT)
    return model


def breaking(breakage: Callable[[Tensor], Tensor]) -> GPT:
    """A model whose logits are broken in rows that have just read BAD."""
    model = tiny()
    original = model.forward

    def forward(ids: Tensor, **more: Any) -> Tensor:
        logits = original(ids, **more)
        return torch.where((ids[:, -1] == BAD)[:, None, None], breakage(logits), logits)

    model.forward = forward  # pyright: ignore[reportAttributeAccessIssue]
    return model


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=BREAKAGES)
def test_only_broken_rows_fail(breakage: Callable[[Tensor], Tensor], sampler: Sampler) -> None:
    torch.manual_seed(0)
    logits, generated = torch.randn(4, 300), [SequenceView([1], (), value) for value in range(4)]
    broken = logits.clone()
    broken[1] = breakage(logits[1:2])[0]
    selector = TokenSelector(sampler, (), frozenset(), 3)
    torch.manual_seed(1)
    expected = try_select_tokens(logits, generated, selector)
    torch.manual_seed(1)
    found = try_select_tokens(broken, generated, selector)
    assert isinstance(found[1], LogitsError) and found[1].rows == (1,)
    assert [one for row, one in enumerate(found) if row != 1] == [one for row, one in enumerate(expected) if row != 1]
    with pytest.raises(LogitsError, match="NaN or infinite in row 1, at new token 1") as raised:
        select_tokens(broken, generated, selector)
    assert raised.value.rows == (1,)


@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=BREAKAGES)
def test_sampled_ids_are_in_the_vocabulary(breakage: Callable[[Tensor], Tensor]) -> None:
    logits = breakage(torch.randn(8, 50))
    for uniform in (0.0, 0.5, 1 - 2**-53):
        assert int(sample_inverse_cdf(logits, torch.full((8,), uniform, dtype=torch.float64)).max()) < 50
        assert (
            int(
                sample_inverse_cdf(Multinomial(top_k=3, top_p=0.9).warp_logits(logits), torch.full((8,), uniform)).max()
            )
            < 50
        )


def test_very_large_logits_at_a_low_temperature_are_still_a_distribution() -> None:
    logits = torch.tensor([[1e37, 3e37, 2e37]])
    assert Multinomial(temperature=1e-6, seed=1)(logits, [SequenceView([0])]).tolist() == [1]


def test_some_masked_logits_are_valid() -> None:
    logits = torch.zeros(2, 4)
    logits[:, 0] = logits[0, 1:3] = -torch.inf
    for sampler in SAMPLERS.values():
        tokens = select_tokens(
            logits, [SequenceView([1]), SequenceView([1])], TokenSelector(sampler, (), frozenset(), 0)
        )
        assert tokens[0].id == 3 and tokens[1].id > 0


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=BREAKAGES)
def test_other_rows_of_the_batch_are_completed(breakage: Callable[[Tensor], Tensor], sampler: Sampler) -> None:
    if sampler == SAMPLERS["unseeded sampling"]:
        pytest.skip("draws depend on the batch")
    expected = generate(tiny(), PROMPTS, sampler=sampler, max_new_tokens=1)
    with pytest.raises(WeightsError, match="NaN or infinite in row 1") as raised:
        generate(breaking(breakage), PROMPTS, sampler=sampler, max_new_tokens=1)
    assert isinstance(raised.value, RowError) and raised.value.rows == (1,)
    assert raised.value.outputs == [expected[0], None, *expected[2:]]


def test_stream_raises_the_error() -> None:
    generated = stream(breaking(BREAKAGES["all NaN"]), [BAD], max_new_tokens=3)
    with pytest.raises(LogitsError, match="row 0, at new token 1"):
        next(generated)


def test_fully_masked_row_fails_alone() -> None:
    def nothing_for_second(logits: Tensor, generated: list[SequenceView]) -> Tensor:
        return torch.stack(
            [row - torch.inf if one.index == 1 else row for row, one in zip(logits, generated, strict=True)]
        )

    with pytest.raises(ConfigError, match="mask every token at new token 1 of sequence 1") as raised:
        generate(tiny(), PROMPTS, logits_processors=[nothing_for_second], max_new_tokens=2)  # pyright: ignore[reportArgumentType]
    assert isinstance(raised.value, NoTokenLeftError)
    assert [output is None for output in raised.value.outputs] == [False, True, False, False]


def test_processor_returning_nan_fails_its_row() -> None:
    with pytest.raises(ConfigError, match="return NaN or infinity at new token 1"):
        generate(tiny(), [[1]], logits_processors=[lambda logits, generated: logits * torch.nan], max_new_tokens=2)


def test_fully_masked_beam_search_raises_an_error() -> None:
    config = GenerationConfig(
        forced_eos_token_ids=(7,), suppress_tokens=(7,), renormalize_logits=True
    )  # the end of sequence is both forced and suppressed
    with pytest.raises(NoTokenLeftError, match="leave no token"):
        beam_search(
            CausalLMSession(tiny()),
            PROMPTS,
            eos_ids=7,
            max_new_tokens=1,
            num_beams=2,
            logits_processors=config.logits_processors(1, (7,)),
        )


@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=BREAKAGES)
@pytest.mark.parametrize(
    "processors", [(), (lambda logits, generated: logits - 0.0,)], ids=["plain", "with a processor"]
)
def test_other_sequences_of_a_beam_search_are_completed(
    breakage: Callable[[Tensor], Tensor], processors: tuple[Any, ...]
) -> None:
    options: dict[str, Any] = {"eos_ids": 0, "max_new_tokens": 4, "num_beams": 3, "logits_processors": processors}
    expected = beam_search(CausalLMSession(tiny()), [PROMPTS[0], *PROMPTS[2:]], **options)
    with pytest.raises(LogitsError, match="row 1") as raised:
        beam_search(CausalLMSession(only_prompts(breakage)), PROMPTS, **options)
    assert raised.value.rows == (1,)
    found = [output for output in raised.value.outputs if output is not None]
    assert [[one.ids for one in hypotheses] for hypotheses in found] == [
        [one.ids for one in hypotheses] for hypotheses in expected
    ]


def only_prompts(breakage: Callable[[Tensor], Tensor]) -> GPT:
    """As `breaking`, but only for prompts."""
    model = breaking(breakage)
    broken, original = model.forward, tiny()
    model.forward = lambda ids, **more: (broken if ids.shape[1] > 1 else original)(ids, **more)  # pyright: ignore
    return model


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the step of the CUDA graphs for every supported model, without a graph where there is no GPU."""
    for module in (STREAM, BEAM):
        monkeypatch.setattr(module, "graph_unsupported_reason", lambda session: model_unsupported_reason(session))
        monkeypatch.setattr(module, "MIN_TOKENS_TO_CAPTURE", 1)


def broken_embedding(value: float) -> GPT:
    """A model whose logits are broken after BAD, and which never generates BAD."""
    model = TINY["GPT untied"].build()
    assert isinstance(model, GPT)
    with torch.no_grad():
        model.token_embedding.weight[BAD] = value
        model.final_norm.bias.fill_(1.0)  # pyright: ignore
        model.lm_head.weight[BAD] = -100.0  # pyright: ignore
    return model


@pytest.mark.usefixtures("captures")
@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_graph_step_fails_only_the_broken_row(value: float, sampler: Sampler) -> None:
    with pytest.raises(LogitsError, match="row 1, at new token 1") as raised:
        generate(broken_embedding(value), [[1], [BAD], [2]], sampler=sampler, max_new_tokens=6)
    assert [None if one is None else len(one.ids) for one in raised.value.outputs] == [6, None, 6]


@pytest.mark.usefixtures("captures")
@pytest.mark.parametrize("num_logprobs", [0, 1])
@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_asynchronous_step_reports_broken_rows(sampler: Sampler, num_logprobs: int) -> None:
    model = broken_embedding(torch.nan)
    with torch.no_grad():
        model.lm_head.weight[BAD] = 100.0  # now it generates only BAD  # pyright: ignore
    outputs = generate(model, [[1], [2]], sampler=sampler, eos_ids=BAD, max_new_tokens=6, num_logprobs=num_logprobs)
    assert [(output.ids, output.finish_reason) for output in outputs] == [([], "eos")] * 2, (
        "broken logits after the end of sequence do not count"
    )
    with pytest.raises(LogitsError, match="rows 0, 1") as raised:
        generate(model, [[1], [2]], sampler=sampler, max_new_tokens=6, num_logprobs=num_logprobs)
    assert raised.value.outputs == [None, None]


@pytest.mark.usefixtures("captures")
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_graph_search_fails_only_the_broken_sequence(value: float) -> None:
    model = broken_embedding(value)
    expected = beam_search(CausalLMSession(model), [[1], [2]], eos_ids=0, max_new_tokens=5, num_beams=2)
    with pytest.raises(LogitsError, match="row 1") as raised:
        beam_search(CausalLMSession(model), [[1], [BAD], [2]], eos_ids=0, max_new_tokens=5, num_beams=2)
    assert raised.value.rows == (1,)
    found = [output for output in raised.value.outputs if output is not None]
    assert [[one.ids for one in hypotheses] for hypotheses in found] == [
        [one.ids for one in hypotheses] for hypotheses in expected
    ]


@pytest.mark.cuda
@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=BREAKAGES)
def test_broken_logits_on_a_gpu_leave_the_process_alive(breakage: Callable[[Tensor], Tensor]) -> None:
    logits = breakage(torch.randn(4, 300, device="cuda"))
    found = try_select_tokens(logits, [SequenceView([1])] * 4, TokenSelector(Multinomial(seed=1), (), frozenset(), 0))
    assert all(isinstance(one, LogitsError) for one in found)
    torch.cuda.synchronize()
