"""BERT: invariants that hold for every head."""

from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from softlook import MaskError, ShapeError, masks
from softlook.base.errors import ConfigError
from softlook.models import Bert, BertConfig
from softlook.models.bert import BertHead

SMALL = BertConfig(vocab_size=13, context=16, dim=24, depth=2, heads=4, hidden=40, classes=3, dropout=0.2)
HEADS: tuple[BertHead, ...] = get_args(BertHead)
IDS = torch.tensor([[5, 3, 8, 1, 9, 2, 7], [4, 4, 6, 11, 1, 3, 2]])
PADDING_MASK = torch.arange(7) < torch.tensor([[7], [4]])


def small(head: BertHead, **changes: Any) -> Bert:
    """A BERT whose weights are large enough for differences to show."""
    torch.manual_seed(0)
    model = Bert(replace(SMALL, head=head, **changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def outputs_of(scores: Any) -> tuple[Tensor, ...]:
    return tuple(scores) if isinstance(scores, tuple) else (scores,)


SHAPES = {
    "hidden_states": [(2, 7, 24)],
    "pooled": [(2, 24)],
    "embedding": [(2, 24)],
    "masked_lm": [(2, 7, 13)],
    "next_sentence": [(2, 2)],
    "pretraining": [(2, 7, 13), (2, 2)],
    "replaced_token": [(2, 7)],
    "classification": [(2, 3)],
    "multiple_choice": [(2, 1)],
    "token_classification": [(2, 7, 3)],
    "question_answering": [(2, 7, 2)],
}


@pytest.mark.parametrize("head", HEADS)
def test_every_head_has_its_output_shape(head: BertHead) -> None:
    assert [tuple(scores.shape) for scores in outputs_of(small(head)(IDS))] == SHAPES[head]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_padding_does_not_change_outputs(head: BertHead, pooling: str) -> None:
    model = small(head, pooling=pooling)
    for padded, alone in zip(
        outputs_of(model(IDS, padding_mask=PADDING_MASK)), outputs_of(model(IDS[1:, :4])), strict=True
    ):
        torch.testing.assert_close(padded[1:, :4] if padded.shape[1] == 7 else padded[1:], alone)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_left_padding_with_explicit_positions_does_not_change_outputs(head: BertHead, pooling: str) -> None:
    model = small(head, pooling=pooling, position_offset=2)
    padding_mask = PADDING_MASK.flip(1)
    positions = (padding_mask.cumsum(1) - 1).clamp(min=0)
    padded = outputs_of(model(IDS, padding_mask=padding_mask, positions=positions))
    for one, alone in zip(padded, outputs_of(model(IDS[1:, 3:])), strict=True):
        torch.testing.assert_close(one[1:, 3:] if one.shape[1] == 7 else one[1:], alone)


@pytest.mark.parametrize("head", ["hidden_states", "masked_lm", "token_classification", "question_answering"])
def test_packed_documents_give_the_outputs_of_each_document_alone(head: BertHead) -> None:
    model = small(head)
    documents, positions = torch.tensor([[0, 0, 0, 1, 1, 1, 1]]), torch.tensor([0, 1, 2, 0, 1, 2, 3])
    packed = model(IDS[:1], mask=masks.documents(documents), positions=positions)
    torch.testing.assert_close(packed[:, :3], model(IDS[:1, :3]))
    torch.testing.assert_close(packed[:, 3:], model(IDS[:1, 3:]))


@pytest.mark.parametrize("head", HEADS)
def test_every_output_depends_on_every_token(head: BertHead) -> None:
    model, seen = small(head), []
    model.token_embedding.register_forward_hook(lambda module, args, output: seen.append(output))
    scores = outputs_of(model(IDS))[-1]
    (gradient,) = torch.autograd.grad((scores[:, 0] * torch.randn_like(scores[:, 0])).sum(), seen[0])
    assert (gradient.abs().sum(-1) > 0).all(), "attention is bidirectional"


@pytest.mark.parametrize("head", HEADS)
def test_every_parameter_gets_a_gradient(head: BertHead) -> None:
    model = small(head).train()
    scores = outputs_of(model(IDS, token_types=(IDS > 4).long(), padding_mask=PADDING_MASK))
    sum((one * torch.randn_like(one)).sum() for one in scores).backward()  # pyright: ignore
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().sum() > 0 or name.endswith("to_key.bias"), name  # softmax is invariant to it


def test_without_positions_and_with_mean_pooling_the_order_of_tokens_does_not_matter() -> None:
    model = small("classification", pooling="mean", pooler=None)
    torch.nn.init.zeros_(model.position_embedding.weight)
    torch.testing.assert_close(model(IDS[:, torch.randperm(7)]), model(IDS))


def test_the_embedding_is_the_pooled_vector_with_unit_norm() -> None:
    one, other = small("embedding", pooling="mean"), small("pooled", pooling="mean")
    pooled = other(IDS)
    torch.testing.assert_close(one(IDS), pooled / pooled.norm(dim=-1, keepdim=True))


def test_token_types_distinguish_the_two_sentences() -> None:
    model, pair = small("next_sentence"), torch.tensor([[0, 0, 0, 1, 1, 1, 1]]).expand(2, -1)
    torch.testing.assert_close(model(IDS), model(IDS, token_types=torch.zeros_like(pair)))
    assert not torch.allclose(model(IDS), model(IDS, token_types=pair))


def test_a_position_offset_skips_rows_of_the_position_embedding() -> None:
    model = small("hidden_states", position_offset=2)
    before = model(IDS)
    torch.nn.init.ones_(model.position_embedding.weight[:2])
    assert torch.equal(model(IDS), before)
    assert model.position_embedding.weight.shape == (18, 24)


def test_the_masked_lm_head_is_tied_to_the_embedding() -> None:
    model: Any = small("masked_lm")
    assert model.head.to_logits.weight is model.token_embedding.weight


def test_an_unknown_head_raises_an_error_that_lists_the_known_ones() -> None:
    wrong = replace(SMALL)
    object.__setattr__(wrong, "head", "wrods")  # bypasses the type checks of the test run
    with pytest.raises(ConfigError, match=r"expected a head of BERT \(hidden_states, pooled, embedding, masked_lm,"):
        Bert(wrong)


def test_a_sequence_longer_than_the_context_raises_an_error() -> None:
    with pytest.raises(
        ShapeError, match=r"positions must be from 0 to 15, got 0 to 16\. The sequence is longer than the"
    ):
        small("hidden_states")(torch.zeros(1, 17, dtype=torch.long))


def test_a_mask_of_another_length_than_the_padding_mask_raises_an_error() -> None:
    with pytest.raises(MaskError, match="7 keys"):
        small("hidden_states")(IDS, padding_mask=PADDING_MASK, mask=torch.ones(3, 3, dtype=torch.bool))
