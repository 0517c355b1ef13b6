"""softlook's attention matches torch's scaled_dot_product_attention on the samples of torch's own tests.

Torch's `is_causal` aligns the first query with the first key, softlook's `causal()` the last with the last. The samples
have 3 queries and 6 keys, so torch's causal mask is passed as a dense mask.
"""

from typing import Any, Literal, get_args

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.testing import assert_close
from torch.testing._internal.common_methods_invocations import op_db

from softlook import attention

EagerBackend = Literal["auto", "reference", "tiled", "sdpa"]
COPIES = 4000
"""Number of dropout masks, enough to estimate mean and standard deviation."""
ROUNDING = 1e-4
"""The samples have values up to 9 and scores up to 230: rounding a score changes a weight by up to 3e-5 of itself, and
an output by up to 9 times that. Other differences are tested in float64."""


def samples(dtype: torch.dtype = torch.float32, requires_grad: bool = False) -> list[Any]:
    """The samples; the same values in every call."""
    (operator,) = [op for op in op_db if op.name == "nn.functional.scaled_dot_product_attention"]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return list(operator.sample_inputs("cpu", dtype, requires_grad=requires_grad))


SAMPLES = samples()
WITH_DROPOUT = [number for number, sample in enumerate(SAMPLES) if sample.kwargs["dropout_p"] > 0]


def with_four_dimensions(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """All three tensors with mask_and_bias and head dimensions, broadcast as torch does."""
    tensors = [query, key, value]
    if all(tensor.ndim == 3 for tensor in tensors):
        tensors = [tensor[:, None] for tensor in tensors]
    tensors = [tensor if tensor.ndim == 4 else tensor[None] for tensor in tensors]
    leading = torch.broadcast_shapes(*(tensor.shape[:2] for tensor in tensors))
    query, key, value = (tensor.expand(*leading, *tensor.shape[2:]) for tensor in tensors)
    return query, key, value


def mask_and_bias(sample: Any) -> dict[str, Any]:
    """Torch's `attn_mask` and `is_causal` as softlook's mask and bias."""
    if sample.kwargs["is_causal"]:
        T, S = sample.input.shape[-2], sample.args[0].shape[-2]
        return {"mask": torch.ones(T, S, dtype=torch.bool).tril()}
    attn_mask = sample.kwargs.get("attn_mask")
    return {} if attn_mask is None else {"bias": attn_mask}


def without_dropout(sample: Any) -> Tensor:
    return scaled_dot_product_attention(sample.input, *sample.args, **{**sample.kwargs, "dropout_p": 0.0})


def test_all_samples_are_tested() -> None:
    assert len(SAMPLES) == 25
    assert len(WITH_DROPOUT) == 12


@pytest.mark.parametrize("backend", get_args(EagerBackend))
@pytest.mark.parametrize("number", range(len(SAMPLES)))
def test_outputs_without_dropout_match_torch(number: int, backend: EagerBackend) -> None:
    sample = SAMPLES[number]
    expected = without_dropout(sample)
    output = attention(*with_four_dimensions(sample.input, *sample.args), **mask_and_bias(sample), backend=backend)
    assert_close(output.view(expected.shape), expected, rtol=1e-5, atol=ROUNDING)


@pytest.mark.parametrize("backend", get_args(EagerBackend))
@pytest.mark.parametrize("number", range(len(SAMPLES)))
def test_outputs_and_gradients_without_dropout_match_torch_in_float64(number: int, backend: EagerBackend) -> None:
    sample = samples(torch.float64, requires_grad=True)[number]
    leaves = [sample.input, *sample.args, *(bias for bias in mask_and_bias(sample).values() if bias.requires_grad)]
    expected = without_dropout(sample)
    upstream = torch.randn_like(expected)
    output = attention(
        *with_four_dimensions(sample.input, *sample.args), **mask_and_bias(sample), backend=backend
    ).view(expected.shape)
    assert_close(output, expected)
    assert_close(torch.autograd.grad(output, leaves, upstream), torch.autograd.grad(expected, leaves, upstream))


@pytest.mark.parametrize("backend", get_args(EagerBackend))
@pytest.mark.parametrize("number", WITH_DROPOUT)
def test_dropout_keeps_the_mean_and_has_torch_s_standard_deviation(number: int, backend: EagerBackend) -> None:
    sample = SAMPLES[number]
    query, key, value = (
        tensor[:1, :1].repeat(COPIES, 1, 1, 1) for tensor in with_four_dimensions(sample.input, *sample.args)
    )
    p, is_causal = sample.kwargs["dropout_p"], sample.kwargs["is_causal"]
    actual = attention(query, key, value, **mask_and_bias(sample), dropout=p, backend=backend)
    expected = scaled_dot_product_attention(query, key, value, dropout_p=p, is_causal=is_causal)
    mean = scaled_dot_product_attention(query[:1], key[:1], value[:1], is_causal=is_causal)
    standard_error = expected.std(0, keepdim=True) / COPIES**0.5
    assert ((actual.mean(0, keepdim=True) - mean).abs() < 5 * standard_error).all()
    assert_close(actual.std(0), expected.std(0), rtol=0.1, atol=0)
