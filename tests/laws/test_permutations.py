"""Permutations: only masks and biases depend on the order of queries and keys, and heads are interchangeable."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from softlook import masks, positions
from softlook.blocks import FeedForward, PreNormBlock, SelfAttention
from softlook.embed import TokenEmbedding
from softlook.heads.pooling import MeanPool
from softlook.ops.permutation import invariance_gap
from tests.ops_cases import Case, cases, close


def permute(option: Tensor | None, rows: Tensor | None = None, columns: Tensor | None = None) -> Tensor | None:
    """A mask or bias (B, H, T, S) with permuted queries and keys."""
    if option is None:
        return None
    option = option if rows is None else option[:, :, rows]
    return option if columns is None else option[..., columns]


@given(cases(lengths="square"))
def test_permuting_a_sequence_permutes_the_output(case: Case) -> None:
    dense = case.materialize()
    order = case.rng.permutation(case.sizes[3])
    mask, bias = (permute(dense.options.get(name), order, order) for name in ("mask", "bias"))
    shuffled = case.replace(
        query=case.query[:, :, order], key=case.key[:, :, order], value=case.value[:, :, order], mask=mask, bias=bias
    )
    close(shuffled.attend(), case.attend()[:, :, order])


@given(cases())
def test_the_order_of_keys_does_not_matter(case: Case) -> None:
    dense = case.materialize()
    order = case.rng.permutation(case.sizes[3])
    mask, bias = (permute(dense.options.get(name), columns=order) for name in ("mask", "bias"))
    shuffled = case.replace(key=case.key[:, :, order], value=case.value[:, :, order], mask=mask, bias=bias)
    close(shuffled.attend(), case.attend())


@given(cases())
def test_a_symbolic_mask_or_bias_equals_its_dense_form(case: Case) -> None:
    close(case.attend(), case.materialize().attend())


@given(cases())
def test_grouped_key_heads_equal_repeated_key_heads(case: Case) -> None:
    group_size = case.query.shape[1] // case.key.shape[1]
    repeated = case.replace(
        key=case.key.repeat_interleave(group_size, 1), value=case.value.repeat_interleave(group_size, 1)
    )
    close(case.attend(), repeated.attend())


def permuted_heads(case: Case) -> Tensor:
    """A permutation of the groups, and of the heads within each group."""
    G = case.key.shape[1]
    R = case.query.shape[1] // G
    groups = case.rng.permutation(G)
    members = torch.stack([case.rng.permutation(R) for _ in range(G)])
    return (groups[:, None] * R + members).flatten()


@given(cases(without=("score",)))
def test_the_order_of_heads_and_groups_does_not_matter(case: Case) -> None:
    case, heads = case.materialize(), permuted_heads(case)
    R = case.query.shape[1] // case.key.shape[1]
    groups = heads[::R] // R
    options = dict(case.options)
    for name in {"mask", "bias"} & options.keys():
        options[name] = options[name][:, heads]
    if isinstance(options.get("sink"), Tensor):
        options["sink"] = options["sink"][heads]
    permuted = case.replace(query=case.query[:, heads], key=case.key[:, groups], value=case.value[:, groups], **options)
    close(permuted.attend(), case.attend()[:, heads])
    close(permuted.weights(), case.weights()[:, heads])


@settings(max_examples=10)
@given(st.permutations(range(5)))
def test_a_mean_pooled_model_ignores_the_order_of_its_tokens_but_not_their_positions(order: list[int]) -> None:
    torch.manual_seed(0)
    ids = torch.tensor([[3, 1, 4, 2, 6, 0, 0]])
    is_token, table = ids > 0, positions.sinusoidal(7, 16)
    embedding, attn = TokenEmbedding(8, 16), SelfAttention(16, heads=2)
    block = PreNormBlock(attn, FeedForward(16), lambda: nn.LayerNorm(16))

    def model(ids: Tensor, positions: Tensor) -> Tensor:
        states = block(embedding(ids) + positions, mask=masks.dense(is_token[:, None, None]))
        return MeanPool()(states, is_token)

    rows = torch.tensor([*order, 5, 6])
    assert invariance_gap(lambda ids: model(ids, torch.zeros_like(table)), ids, rows) < 1e-5
    if order != sorted(order):
        assert invariance_gap(lambda ids: model(ids, table), ids, rows) > 1e-5
