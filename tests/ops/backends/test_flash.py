"""Flash attention over documents and windows: on a GPU against the reference; on a CPU its arguments and the runs."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from softlook import attention, explain, masks
from softlook.ops.arguments import prepare_args
from softlook.ops.backends import flash
from softlook.ops.backends.flash import (
    bind_flash_varlen,
    bind_flash_window,
    document_runs,
    find_runs,
    is_forward_window,
)
from softlook.ops.masks.masks import DocumentMask, WindowMask

LENGTHS = (700, 1, 1333, 62, 2500)
WINDOWS = {
    "whole documents": None,
    "causal": masks.causal(),
    "window": masks.window(300, 40),
    "causal window": masks.causal() & masks.window(300),
    "future": masks.window(0, None),
}


def ids_of(lengths: tuple[int, ...]) -> Tensor:
    return torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))


def tensors(shape: tuple[int, ...], groups: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(sum(shape))
    B, _, T, D = shape
    query = torch.randn(shape, generator=generator).to(dtype)
    key, value = torch.randn(2, B, groups, T, D, generator=generator).to(dtype)
    return query, key, value


@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5).map(tuple), min_size=1, max_size=3))
def test_runs_are_the_documents_of_all_rows(rows: Any) -> None:
    width = max(map(sum, rows))
    full = [(*row, width - sum(row)) if sum(row) < width else row for row in rows]
    runs = find_runs(DocumentMask(torch.stack([ids_of(row) for row in full]), None), len(rows))
    lengths = [length for row in full for length in row]
    assert runs is not None
    assert runs.offsets.diff().tolist() == lengths
    assert runs.longest == max(lengths)
    assert runs.offsets.dtype == torch.int32


def test_a_document_in_two_runs_has_no_runs() -> None:
    assert find_runs(DocumentMask(torch.tensor([[0, 0, 1], [2, 3, 2]]), None), 2) is None


def test_windows_with_negative_bounds_are_not_forwarded() -> None:
    assert is_forward_window(WindowMask(3, None))
    assert not is_forward_window(WindowMask(None, -1))


def flash_on_a_cpu(  # noqa: PLR0917  (torch's signature)
    query: Tensor,
    key: Tensor,
    value: Tensor,
    offsets: Tensor | None,
    key_offsets: Tensor | None,
    longest: int,
    longest_key: int,
    dropout: float,
    causal: bool,
    debug: bool,
    *,
    scale: float,
    window_size_left: int,
    window_size_right: int,
) -> tuple[Tensor]:
    """What torch's flash kernel computes of tokens (tokens, heads, head_dim)."""
    assert offsets is key_offsets
    left, right = (None if bound < 0 else bound for bound in (window_size_left, window_size_right))
    mask = masks.causal() if causal else WindowMask(left, right)
    if offsets is None:
        parts = (part.transpose(1, 2) for part in (query, key, value))
        return (attention(*parts, mask=mask, scale=scale, dropout=dropout).transpose(1, 2),)
    lengths = offsets.diff().tolist()
    assert longest == longest_key == max(lengths)
    outputs = [
        attention(*(part.transpose(0, 1)[None] for part in parts), mask=mask, scale=scale, dropout=dropout)
        for parts in zip(query.split(lengths), key.split(lengths), value.split(lengths), strict=True)
    ]
    return (torch.cat([output[0].transpose(0, 1) for output in outputs]),)


@pytest.mark.parametrize("scale", [None, -0.3])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", WINDOWS)
def test_tokens_and_bounds_are_passed_as_the_kernel_takes_them(
    name: str, batch: int, scale: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flash, "is_supported", lambda args, value: True)
    monkeypatch.setattr(flash, "MIN_TOKENS", 0)
    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", flash_on_a_cpu)
    ids = torch.stack([ids_of((20, 3, 14)), ids_of((7, 29, 1))])[:batch]
    mask = masks.documents(ids) if WINDOWS[name] is None else WINDOWS[name] & masks.documents(ids)
    query, key, value = tensors((batch, 4, 37, 8), 2)
    args = prepare_args(query, key, mask=mask, scale=scale)
    given = bind_flash_varlen(args, value, 0.0)(query, key, value)
    assert_close(given, attention(query, key, value, mask=mask, scale=scale, backend="reference"))


@pytest.mark.parametrize("scale", [None, -0.3])
@pytest.mark.parametrize("window", [WindowMask(3, 2), WindowMask(5, 0), WindowMask(0, None)], ids=str)
def test_windows_are_passed_as_the_kernel_takes_them(
    window: WindowMask, scale: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", flash_on_a_cpu)
    query, key, value = tensors((2, 4, 37, 8), 2)
    given = bind_flash_window(prepare_args(query, key, mask=window, scale=scale), 0.0)(query, key, value)
    assert_close(given, attention(query, key, value, mask=window, scale=scale, backend="reference"))


def test_a_cpu_has_no_flash_kernel_for_documents() -> None:
    query, key, value = tensors((1, 2, sum(LENGTHS), 8), 2, torch.bfloat16)
    assert document_runs(prepare_args(query, key, mask=masks.documents(ids_of(LENGTHS))), value) is None


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("groups", [4, 2])
@pytest.mark.parametrize("name", WINDOWS)
def test_outputs_and_gradients_on_a_gpu_match_the_reference(name: str, groups: int, dtype: torch.dtype) -> None:
    ids = ids_of(LENGTHS).cuda()
    mask = masks.documents(ids) if WINDOWS[name] is None else WINDOWS[name] & masks.documents(ids)
    halves = [tensor.cuda().requires_grad_() for tensor in tensors((1, 4, sum(LENGTHS), 64), groups, dtype)]
    exact = [tensor.detach().float().requires_grad_() for tensor in halves]
    upstream = torch.randn_like(halves[0])
    assert explain(*halves, mask=mask).kernel == "flash_varlen"
    output = attention(*halves, mask=mask)
    expected = attention(*exact, mask=mask, backend="reference")
    assert_close(output.float(), expected, rtol=2e-2, atol=2e-2)
    given = torch.autograd.grad(output, halves, upstream)
    for one, other in zip(given, torch.autograd.grad(expected, exact, upstream.float()), strict=True):
        assert_close(one.float(), other, rtol=5e-2, atol=5e-2)


@pytest.mark.cuda
@pytest.mark.parametrize(
    "window", [masks.causal() & masks.window(100), masks.window(30, 70), masks.window(0, None)], ids=str
)
def test_windows_on_a_gpu_match_the_reference(window: masks.Mask) -> None:
    halves = [tensor.cuda().requires_grad_() for tensor in tensors((2, 4, 700, 64), 2, torch.bfloat16)]
    exact = [tensor.detach().float().requires_grad_() for tensor in halves]
    upstream = torch.randn_like(halves[0])
    for _ in range(3):  # the third call runs the cached kernel
        assert explain(*halves, mask=window).kernel == "flash_window"
        output = attention(*halves, mask=window)
        expected = attention(*exact, mask=window, backend="reference")
        assert_close(output.float(), expected, rtol=2e-2, atol=2e-2)
        given = torch.autograd.grad(output, halves, upstream)
        for one, other in zip(given, torch.autograd.grad(expected, exact, upstream.float()), strict=True):
            assert_close(one.float(), other, rtol=5e-2, atol=5e-2)


@pytest.mark.cuda
def test_rows_with_documents_of_their_own_match_the_reference() -> None:
    ids = torch.stack([ids_of((2000, 48)), ids_of((1, 2047))]).cuda()
    mask = masks.causal() & masks.documents(ids)
    halves = [tensor.cuda() for tensor in tensors((2, 4, 2048, 64), 4, torch.bfloat16)]
    assert explain(*halves, mask=mask).kernel == "flash_varlen"
    expected = attention(*(half.float() for half in halves), mask=mask, backend="reference")
    assert_close(attention(*halves, mask=mask).float(), expected, rtol=2e-2, atol=2e-2)
