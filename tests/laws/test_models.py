"""Invariants that hold for every model."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from softlook import masks, models
from softlook.ops.packing import pack
from tests.models.tiny import TINY, VOCAB, Inputs, Tiny, padding_mask

DECODERS = [tiny for tiny in TINY.values() if tiny.sequence is not None]
CACHED = [tiny for tiny in TINY.values() if tiny.make_cache is not None]
PADDED = [
    tiny
    for tiny in TINY.values()
    if (tiny.takes("padding_mask") or tiny.takes("source_padding_mask"))
    and getattr(tiny.config, "head", "") != "pretraining"
]
"""The pretraining head has two outputs, which the models with one head each cover."""
PACKED = [
    tiny
    for tiny in TINY.values()
    if tiny.takes("ids")
    and tiny.takes("positions")
    and tiny.takes("mask")
    and getattr(tiny.config, "head", "masked_lm") == "masked_lm"
]
"""Models with an output at every position."""
CLOSE: dict[str, Any] = {"atol": 1e-5, "rtol": 1e-4}


def every(tinies: list[Tiny]) -> Any:
    return pytest.mark.parametrize("tiny", tinies, ids=str)


@every(DECODERS)
def test_changing_the_future_does_not_change_the_past(tiny: Tiny) -> None:
    model, inputs = tiny.build(), tiny.inputs()
    output = tiny.ask(model, inputs)
    name = str(tiny.sequence)
    changed = {**inputs, name: inputs[name].clone()}
    changed[name][:, 4] = (changed[name][:, 4] + 1) % VOCAB
    again = tiny.ask(model, changed)
    assert_close(again[:, :4], output[:, :4], **CLOSE)
    assert (again[:, 4:] - output[:, 4:]).abs().max() > 1e-4


@every(CACHED)
def test_a_cache_does_not_change_the_output(tiny: Tiny) -> None:
    model, inputs, name = tiny.build(), tiny.inputs(), str(tiny.sequence)
    assert tiny.make_cache is not None
    cache = tiny.make_cache()
    with torch.no_grad():
        steps = [
            tiny.ask(model, {**inputs, name: part, "cache": cache}) for part in inputs[name].split([3, 1, 2, 1], 1)
        ]
        assert_close(torch.cat(steps, 1), tiny.ask(model, inputs), **CLOSE)


def padded(tiny: Tiny) -> Inputs:
    """Inputs of which some tokens are padding."""
    inputs = tiny.inputs()
    if tiny.takes("padding_mask") and "padding_mask" not in inputs:
        inputs["padding_mask"] = padding_mask(*inputs["ids"].shape)
    return inputs


@every(PADDED)
def test_the_ids_of_padding_tokens_do_not_matter(tiny: Tiny) -> None:
    model, inputs = tiny.build(), padded(tiny)
    ids, padding = ("ids", "padding_mask") if tiny.takes("padding_mask") else ("source", "source_padding_mask")
    assert not inputs[padding].all()
    other = {**inputs, ids: torch.where(inputs[padding], inputs[ids], (inputs[ids] + 1) % VOCAB)}
    one, two = tiny.ask(model, inputs), tiny.ask(model, other)
    if one.shape[:2] == inputs[padding].shape and padding == "padding_mask":  # compare the outputs of real tokens
        one, two = one[inputs[padding]], two[inputs[padding]]
    assert_close(one, two, **CLOSE)


@every(PADDED)
def test_a_padded_row_matches_the_row_alone(tiny: Tiny) -> None:
    model, inputs = tiny.build(), padded(tiny)
    ids, padding = ("ids", "padding_mask") if tiny.takes("padding_mask") else ("source", "source_padding_mask")
    whole = tiny.ask(model, inputs)
    for row, length in enumerate(inputs[padding].sum(1).tolist()):
        alone = {name: value[row : row + 1] for name, value in inputs.items()}
        for name in {ids, padding, "token_types"} & alone.keys():
            alone[name] = alone[name][:, :length]
        expected = tiny.ask(model, alone)[0]
        actual = whole[row]
        assert_close(actual[:length] if actual.shape != expected.shape else actual, expected, **CLOSE)


@every(PACKED)
def test_packed_sequences_match_single_ones(tiny: Tiny) -> None:
    model = tiny.build()
    rows = [tiny.inputs(1, length, seed=length)["ids"][0] for length in (5, 1, 7)]
    packed = pack(rows)
    rest = {"class_label": torch.tensor([2])} if tiny.takes("class_label") and model.config.num_class_labels else {}
    output = tiny.ask(model, {"ids": packed.ids, "mask": packed.mask, "positions": packed.positions, **rest})
    for row, actual in zip(rows, packed.unpack(output), strict=True):
        assert_close(actual, tiny.ask(model, {"ids": row[None], **rest})[0], **CLOSE)


@every(PACKED)
def test_left_padding_with_explicit_positions_changes_nothing(tiny: Tiny) -> None:
    model, ids = tiny.build(), tiny.inputs(1, 5)["ids"]
    padded_ids = torch.cat([torch.zeros(1, 3, dtype=torch.long), ids], 1)
    positions = (torch.arange(8) - 3).clamp(min=0)[None]
    rest = {"class_label": torch.tensor([2])} if tiny.takes("class_label") and model.config.num_class_labels else {}
    output = tiny.ask(
        model, {"ids": padded_ids, "mask": masks.padding([5], side="left", length=8), "positions": positions, **rest}
    )
    assert_close(output[:, 3:], tiny.ask(model, {"ids": ids, **rest}), **CLOSE)


@every(list(TINY.values()))
def test_rows_of_a_batch_are_independent(tiny: Tiny) -> None:
    model, inputs = tiny.build(), tiny.inputs(batch=3)
    order = torch.tensor([2, 0, 1])
    permuted = {name: value[order] if isinstance(value, Tensor) else value for name, value in inputs.items()}
    assert_close(tiny.ask(model, permuted), tiny.ask(model, inputs)[order], **CLOSE)


@every(list(TINY.values()))
def test_gradients_reach_every_parameter(tiny: Tiny) -> None:
    model = tiny.build()
    output = tiny.ask(model, tiny.inputs(batch=8, length=12 if tiny.any_length else 7))
    output.square().sum().backward()
    unused = {
        name
        for name, parameter in model.named_parameters()
        if parameter.numel() and (parameter.grad is None or not parameter.grad.any())
    }
    unused = {name for name in unused if not name.endswith("to_key.bias")}  # softmax is invariant to it
    assert unused == set(), f"no gradient reaches {sorted(unused)}"


def has_explicit_positions_only(tiny: Tiny) -> bool:
    """Whether positions enter through the embedding only, not through distances too."""
    return tiny.model is models.Bert and not tiny.config.buckets


@every([tiny for tiny in TINY.values() if has_explicit_positions_only(tiny)])
def test_an_encoder_without_positions_is_equivariant(tiny: Tiny) -> None:
    model, inputs = tiny.build(), tiny.inputs()
    order = torch.tensor([3, 1, 6, 0, 2, 5, 4])
    equal_positions = {**inputs, "padding_mask": None, "positions": torch.zeros(7, dtype=torch.long)}
    permuted = {**equal_positions, "ids": inputs["ids"][:, order]}
    if "token_types" in inputs:
        permuted["token_types"] = inputs["token_types"][:, order]
    one, two = tiny.ask(model, equal_positions), tiny.ask(model, permuted)
    if one.ndim == 3:
        assert_close(two, one[:, order], **CLOSE)
    elif model.config.pooling == "mean" and model.config.head == "classification":
        assert_close(two, one, **CLOSE)
    else:  # the first position is pooled, and now has another token
        assert (one - two).abs().max() > 1e-3


@every(list(TINY.values()))
def test_no_model_holds_an_empty_tensor(tiny: Tiny) -> None:
    assert [name for name, tensor in tiny.build().state_dict().items() if not tensor.numel()] == []
