"""Attention rollout is the product of the dense maps, without any of them."""

import pytest
import torch
from torch.testing import assert_close

from softlook.lens import attention_maps, attention_rollout, trace
from softlook.models import GPT, Bert, BertConfig, GPTConfig
from tests.memory import LargestTensor


def test_rollout_of_a_long_text_is_the_dense_product() -> None:
    torch.manual_seed(0)
    model = Bert(BertConfig(vocab_size=50, context=512, dim=32, depth=4, heads=4)).eval()
    ids = torch.randint(50, (2, 512))
    padding = torch.arange(512) < torch.tensor([[512], [300]])
    with torch.no_grad(), trace(model) as recorded:
        model(ids, padding_mask=padding)
    product = torch.eye(512, dtype=torch.float64)
    for weights in attention_maps(model, ids, padding_mask=padding).values():
        product = (0.5 * torch.eye(512) + 0.5 * weights.double().mean(1)) @ product
    assert_close(attention_rollout(recorded).double(), product, atol=1e-5, rtol=0)
    groups = torch.eye(8).repeat_interleave(64, 0)
    assert_close(attention_rollout(recorded, groups).double(), product @ groups.double(), atol=1e-5, rtol=0)


@pytest.mark.slow
def test_rollout_of_sixteen_thousand_tokens_takes_memory_linear_in_the_length() -> None:
    torch.manual_seed(0)
    N, R, heads = 16384, 8, 2
    model = GPT(GPTConfig(vocab_size=50, context=N, dim=16, depth=2, heads=heads)).eval()
    with torch.no_grad(), trace(model) as recorded:
        model(torch.randint(50, (1, N)))
    sources = torch.eye(R).repeat_interleave(N // R, 0)
    with LargestTensor() as largest:
        flow = attention_rollout(recorded, sources)
    assert_close(flow.sum(-1), torch.ones(1, N), atol=1e-4, rtol=0)
    assert flow[0, : N // R, 1:].abs().max() == 0  # nothing flows back in time
    tile = 1 << 21  # entries of the map that are held at once
    assert largest.elements <= max(N * R * heads, 2 * tile), largest.name
