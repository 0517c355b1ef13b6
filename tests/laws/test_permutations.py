"""Attention sees a set: order comes in by masks and biases only, and heads are numbered for convenience."""

import torch
from hypothesis import given
from torch import Tensor

from tests.ops_cases import Case, cases, close


def rearranged(option: Tensor | None, rows: Tensor | None = None, columns: Tensor | None = None) -> Tensor | None:
    """A mask or bias (B, H, T, S) whose queries and keys have changed places."""
    if option is None:
        return None
    option = option if rows is None else option[:, :, rows]
    return option if columns is None else option[..., columns]


@given(cases(lengths="square"))
def test_shuffling_a_sequence_shuffles_the_output_and_nothing_else(case: Case) -> None:
    written = case.written_out()
    order = case.made.order(case.sizes[3])
    mask, bias = (rearranged(written.options.get(name), order, order) for name in ("mask", "bias"))
    shuffled = case.but(
        query=case.query[:, :, order], key=case.key[:, :, order], value=case.value[:, :, order], mask=mask, bias=bias
    )
    close(shuffled.attend(), case.attend()[:, :, order])


@given(cases())
def test_the_order_in_which_keys_are_kept_does_not_matter(case: Case) -> None:
    written = case.written_out()
    order = case.made.order(case.sizes[3])
    mask, bias = (rearranged(written.options.get(name), columns=order) for name in ("mask", "bias"))
    shuffled = case.but(key=case.key[:, :, order], value=case.value[:, :, order], mask=mask, bias=bias)
    close(shuffled.attend(), case.attend())


@given(cases())
def test_a_mask_or_bias_in_symbols_means_the_same_written_out(case: Case) -> None:
    close(case.attend(), case.written_out().attend())


@given(cases())
def test_heads_that_share_keys_act_as_if_each_had_a_copy(case: Case) -> None:
    repeats = case.query.shape[1] // case.key.shape[1]
    copied = case.but(key=case.key.repeat_interleave(repeats, 1), value=case.value.repeat_interleave(repeats, 1))
    close(case.attend(), copied.attend())


def groups_reordered(case: Case) -> Tensor:
    """The heads in an order that keeps those of one group side by side but shuffles groups, and members within them."""
    G = case.key.shape[1]
    R = case.query.shape[1] // G
    groups = case.made.order(G)
    members = torch.stack([case.made.order(R) for _ in range(G)])
    return (groups[:, None] * R + members).flatten()


@given(cases(without=("score",)))
def test_the_numbering_of_heads_and_groups_does_not_matter(case: Case) -> None:
    case, heads = case.written_out(), groups_reordered(case)
    R = case.query.shape[1] // case.key.shape[1]
    groups = heads[::R] // R
    options = dict(case.options)
    for name in {"mask", "bias"} & options.keys():
        options[name] = options[name][:, heads]
    if isinstance(options.get("sink"), Tensor):
        options["sink"] = options["sink"][heads]
    renamed = case.but(query=case.query[:, heads], key=case.key[:, groups], value=case.value[:, groups], **options)
    close(renamed.attend(), case.attend()[:, heads])
    close(renamed.weights(), case.weights()[:, heads])
