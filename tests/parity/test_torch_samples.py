"""The samples torch tests its own scaled_dot_product_attention with give the same answers in softlook.

Torch's `is_causal` lines the first query up with the first key; softlook's `causal()` the last with the last. The
samples have 3 queries and 6 keys, so torch's rule is written out here as a mask.
"""

from typing import Any, Literal, get_args

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.testing import assert_close
from torch.testing._internal.common_methods_invocations import op_db

from softlook import attention

Path = Literal["auto", "reference", "blocks", "sdpa"]
COPIES = 4000
"""Draws of a dropout mask: enough to tell a mean and a spread."""
ROUNDING = 1e-4
"""The samples hold numbers up to 9, so scores up to 230: rounding one moves a weight by up to 3e-5 of itself, and an
output by up to 9 times that. A difference beside the rounding is looked for in double precision."""


def samples(kind: torch.dtype = torch.float32, requires_grad: bool = False) -> list[Any]:
    """Always the same numbers, whoever asks and whenever."""
    (operator,) = [op for op in op_db if op.name == "nn.functional.scaled_dot_product_attention"]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return list(operator.sample_inputs("cpu", kind, requires_grad=requires_grad))


SAMPLES = samples()
WITH_DROPOUT = [number for number, sample in enumerate(SAMPLES) if sample.kwargs["dropout_p"] > 0]


def four_axes(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One batch and one head axis for all three, stretched where torch would stretch them."""
    tensors = [query, key, value]
    if all(tensor.ndim == 3 for tensor in tensors):
        tensors = [tensor[:, None] for tensor in tensors]
    tensors = [tensor if tensor.ndim == 4 else tensor[None] for tensor in tensors]
    leading = torch.broadcast_shapes(*(tensor.shape[:2] for tensor in tensors))
    query, key, value = (tensor.expand(*leading, *tensor.shape[2:]) for tensor in tensors)
    return query, key, value


def batch(sample: Any) -> dict[str, Any]:
    """Torch's `attn_mask` and `is_causal` as softlook's mask and bias."""
    if sample.kwargs["is_causal"]:
        T, S = sample.input.shape[-2], sample.args[0].shape[-2]
        return {"mask": torch.ones(T, S, dtype=torch.bool).tril()}
    written = sample.kwargs.get("attn_mask")
    return {} if written is None else {"bias": written}


def without_dropout(sample: Any) -> Tensor:
    return scaled_dot_product_attention(sample.input, *sample.args, **{**sample.kwargs, "dropout_p": 0.0})


def test_no_sample_is_left_out() -> None:
    assert len(SAMPLES) == 25
    assert len(WITH_DROPOUT) == 12


@pytest.mark.parametrize("path", get_args(Path))
@pytest.mark.parametrize("number", range(len(SAMPLES)))
def test_a_sample_gives_torch_s_output_when_its_dropout_is_off(number: int, path: Path) -> None:
    sample = SAMPLES[number]
    expected = without_dropout(sample)
    output = attention(*four_axes(sample.input, *sample.args), **batch(sample), backend=path)
    assert_close(output.view(expected.shape), expected, rtol=1e-5, atol=ROUNDING)


@pytest.mark.parametrize("path", get_args(Path))
@pytest.mark.parametrize("number", range(len(SAMPLES)))
def test_in_double_precision_a_sample_gives_torch_s_output_and_gradients_when_its_dropout_is_off(
    number: int, path: Path
) -> None:
    sample = samples(torch.float64, requires_grad=True)[number]
    leaves = [sample.input, *sample.args, *(bias for bias in batch(sample).values() if bias.requires_grad)]
    expected = without_dropout(sample)
    upstream = torch.randn_like(expected)
    output = attention(*four_axes(sample.input, *sample.args), **batch(sample), backend=path).view(expected.shape)
    assert_close(output, expected)
    assert_close(torch.autograd.grad(output, leaves, upstream), torch.autograd.grad(expected, leaves, upstream))


@pytest.mark.parametrize("path", get_args(Path))
@pytest.mark.parametrize("number", WITH_DROPOUT)
def test_dropout_keeps_the_mean_and_has_torch_s_spread_though_not_its_draws(number: int, path: Path) -> None:
    sample = SAMPLES[number]
    query, key, value = (tensor[:1, :1].repeat(COPIES, 1, 1, 1) for tensor in four_axes(sample.input, *sample.args))
    share = sample.kwargs["dropout_p"]
    drawn = attention(query, key, value, **batch(sample), dropout=share, backend=path)
    torch_drew = scaled_dot_product_attention(query, key, value, dropout_p=share, is_causal=sample.kwargs["is_causal"])
    still = scaled_dot_product_attention(query[:1], key[:1], value[:1], is_causal=sample.kwargs["is_causal"])
    standard_error = torch_drew.std(0, keepdim=True) / COPIES**0.5
    assert ((drawn.mean(0, keepdim=True) - still).abs() < 5 * standard_error).all()
    assert_close(drawn.std(0), torch_drew.std(0), rtol=0.1, atol=0)
