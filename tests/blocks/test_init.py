"""Weight initialization."""

import torch
from torch import nn
from torch.testing import assert_close

from softlook.blocks.init import init_normal, init_xavier


def test_init_normal_draws_weights_and_sets_biases_to_zero() -> None:
    torch.manual_seed(0)
    embedding, linear, norm = nn.Embedding(100, 50), nn.Linear(50, 80), nn.LayerNorm(80)
    init_normal(nn.Sequential(embedding, linear, norm), std=0.5)
    assert abs(embedding.weight.std().item() - 0.5) < 0.02
    assert abs(linear.weight.std().item() - 0.5) < 0.02
    assert_close(linear.bias, torch.zeros(80))
    assert_close(norm.weight, torch.ones(80))


def test_init_xavier_bounds_layers_and_gives_embeddings_unit_norm_even_if_tied_to_a_head() -> None:
    torch.manual_seed(0)
    embedding, linear, head = nn.Embedding(400, 64), nn.Linear(64, 32), nn.Linear(64, 400)
    head.weight = embedding.weight
    init_xavier(nn.ModuleList([embedding, linear, head]))
    assert abs(embedding.weight.norm(dim=1).mean().item() - 1) < 0.05
    bound = (6 / (64 + 32)) ** 0.5
    assert 0.95 * bound < linear.weight.abs().max().item() <= bound
    assert_close(linear.bias, torch.zeros(32))
