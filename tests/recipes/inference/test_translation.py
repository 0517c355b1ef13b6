"""Batches of texts to translate."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.decode.generation_config import default_max_new_tokens
from softlook.recipes.inference.translation import (
    MAX_BATCH_SIZE,
    MAX_BATCH_TOKENS,
    MIN_BATCH_TOKENS,
    make_batches,
    max_batch_tokens,
)


@given(st.lists(st.integers(1, 90), max_size=200), st.integers(1, 8), st.integers(1, 3000))
def test_every_text_is_in_one_batch_within_the_limit(lengths: list[int], beams: int, max_tokens: int) -> None:
    batches = list(make_batches(lengths, beams, max_tokens))
    assert sorted(number for batch in batches for number in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[number] for number in batch) * beams <= max_tokens
        assert len({default_max_new_tokens(lengths[number]) for number in batch}) == 1


def test_batches_have_a_maximum_size() -> None:
    assert [len(batch) for batch in make_batches([1] * (2 * MAX_BATCH_SIZE + 1), 1, 10**9)] == [
        MAX_BATCH_SIZE,
        MAX_BATCH_SIZE,
        1,
    ]


@pytest.mark.parametrize(
    ("gigabytes", "max_tokens"), [(1, MIN_BATCH_TOKENS), (24, 24 * 2048), (140, MAX_BATCH_TOKENS)], ids=str
)
def test_the_batch_size_grows_with_gpu_memory(gigabytes: int, max_tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(total_memory=gigabytes << 30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert max_batch_tokens(torch.device("cuda")) == max_tokens
    assert max_batch_tokens(torch.device("cpu")) == MIN_BATCH_TOKENS
