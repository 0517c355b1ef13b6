"""What weights start from."""

import torch
from torch import nn
from torch.testing import assert_close

from softlook.blocks.initial import start


def test_weights_start_small_and_biases_at_nought() -> None:
    torch.manual_seed(0)
    words, linear, norm = nn.Embedding(100, 50), nn.Linear(50, 80), nn.LayerNorm(80)
    start(nn.Sequential(words, linear, norm), std=0.5)
    assert abs(words.weight.std().item() - 0.5) < 0.02
    assert abs(linear.weight.std().item() - 0.5) < 0.02
    assert_close(linear.bias, torch.zeros(80))
    assert_close(norm.weight, torch.ones(80))
