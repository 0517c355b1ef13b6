"""What weights start from."""

import torch
from torch import nn
from torch.testing import assert_close

from softlook.blocks.init import init_normal, init_xavier


def test_weights_start_small_and_biases_at_nought() -> None:
    torch.manual_seed(0)
    words, linear, norm = nn.Embedding(100, 50), nn.Linear(50, 80), nn.LayerNorm(80)
    init_normal(nn.Sequential(words, linear, norm), std=0.5)
    assert abs(words.weight.std().item() - 0.5) < 0.02
    assert abs(linear.weight.std().item() - 0.5) < 0.02
    assert_close(linear.bias, torch.zeros(80))
    assert_close(norm.weight, torch.ones(80))


def test_layers_start_between_bounds_and_words_with_length_one_also_where_a_head_is_tied_to_them() -> None:
    torch.manual_seed(0)
    words, linear, head = nn.Embedding(400, 64), nn.Linear(64, 32), nn.Linear(64, 400)
    head.weight = words.weight
    init_xavier(nn.ModuleList([words, linear, head]))
    assert abs(words.weight.norm(dim=1).mean().item() - 1) < 0.05
    bound = (6 / (64 + 32)) ** 0.5
    assert 0.95 * bound < linear.weight.abs().max().item() <= bound
    assert_close(linear.bias, torch.zeros(32))
