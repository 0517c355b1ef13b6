"""The loss of a batch is the sum over its rows, and padding does not count."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from softlook.losses import IGNORE_INDEX
from softlook.models import Bert, BertConfig, Transformer, TransformerConfig
from softlook.train.batching.collate import (
    MaskedLMBatch,
    batch_size,
    collate_classification,
    collate_seq2seq,
    split_batch,
)
from softlook.train.objectives import (
    causal_lm,
    classification,
    cross_entropy_sum,
    make_loss_evaluator,
    mask_if_padded,
    masked_lm,
    multi_label_classification,
    regression,
    translation,
)
from softlook.train.train_step import Objective
from tests.train.tiny import CPU, NO_DROPOUT, join_pair, model, sentences
from tests.train.tiny import rows as packed


def bert(head: Any) -> Bert:
    sizes = BertConfig(vocab_size=31, context=16, dim=8, depth=1, heads=2, dropout=0.0, head=head, classes=3)
    return Bert(sizes).double().eval()


def transformer() -> Any:
    sizes = TransformerConfig(vocab_size=31, dim=8, depth=1, heads=2, dropout=0.0)
    return Transformer(sizes).double().eval()


BATCH = collate_classification(
    [([5, 6], [7, 9], 1), ([8], [12, 13, 14, 15], 0), ([20, 21, 22], [9], 1)], join=join_pair, max_length=6
)
LABELS = torch.where((BATCH.ids > 4) & (BATCH.ids % 3 == 0), BATCH.ids, IGNORE_INDEX)
CASES: dict[str, tuple[Any, Objective, Any]] = {
    "translation": (
        transformer,
        translation(),
        collate_seq2seq([([5, 6], [7]), ([8], [9, 10, 11]), ([12] * 5, [13])], bos_id=1, eos_id=2),
    ),
    "causal_lm": (lambda: model(NO_DROPOUT).double().eval(), causal_lm(0.1), packed(sentences()[:5])),
    "masked_lm": (
        lambda: bert("masked_lm"),
        masked_lm,
        MaskedLMBatch(BATCH.ids, BATCH.padding_mask, BATCH.token_types, LABELS, BATCH.labels),
    ),
    "pretraining": (
        lambda: bert("pretraining"),
        masked_lm,
        MaskedLMBatch(BATCH.ids, BATCH.padding_mask, BATCH.token_types, LABELS, BATCH.labels),
    ),
    "classification": (lambda: bert("classification"), classification(0.1), BATCH),
}


@pytest.mark.parametrize("name", CASES)
def test_the_loss_of_a_batch_is_the_sum_over_its_rows(name: str) -> None:
    make, objective, batch = CASES[name]
    network = make()
    total = objective(network, batch)
    row_losses = [objective(network, row) for row in split_batch(batch, batch_size(batch))]
    assert len(row_losses) == batch_size(batch) > 2
    assert int(total.count) == sum(int(loss.count) for loss in row_losses) > 0
    torch.testing.assert_close(
        total.total, torch.stack([loss.total for loss in row_losses]).sum(), rtol=1e-9, atol=1e-9
    )
    torch.testing.assert_close(
        make_loss_evaluator([batch], objective, CPU)(network)["loss"], (total.total / total.count).item()
    )


def test_rdrop_without_dropout_adds_nothing() -> None:
    make, once, batch = CASES["translation"]
    network = make()
    one, twice = once(network, batch), translation(rdrop_alpha=5.0)(network, batch)
    assert int(one.count) == int(twice.count)
    torch.testing.assert_close(one.total, twice.total)


def test_no_labels_give_zero_loss() -> None:
    loss = cross_entropy_sum(torch.randn(2, 3, 5), torch.full((2, 3), IGNORE_INDEX))
    assert (loss.total.item(), int(loss.count)) == (0.0, 0)


def test_half_precision_logits_are_summed_in_float32() -> None:
    logits = torch.randn(4000, 8).half()
    exact = cross_entropy_sum(logits.double(), torch.zeros(4000, dtype=torch.long)).total
    assert cross_entropy_sum(logits, torch.zeros(4000, dtype=torch.long)).total.item() == pytest.approx(
        exact.item(), rel=1e-5
    )


def test_leaving_out_a_full_padding_mask_changes_no_bit() -> None:
    equal_lengths, network = (
        collate_classification([([5, 6], [], 1), ([7, 8], [], 0)], join=join_pair, max_length=6),
        bert("classification"),
    )
    expected = cross_entropy_sum(
        network(equal_lengths.ids, padding_mask=equal_lengths.padding_mask, token_types=equal_lengths.token_types),
        equal_lengths.labels,
    )
    assert classification()(network, equal_lengths).total.equal(expected.total)
    pair, network = collate_seq2seq([([5, 6], [7]), ([8, 9], [10, 11])], bos_id=1, eos_id=2), transformer()
    expected = cross_entropy_sum(
        network(pair.source, pair.decoder_input, source_padding_mask=pair.source_mask), pair.labels
    )
    assert translation(0.0)(network, pair).total.equal(expected.total)


def test_mask_if_padded_keeps_a_mask_with_padding() -> None:
    assert mask_if_padded(BATCH.padding_mask) is BATCH.padding_mask and not BATCH.padding_mask.all()


@pytest.mark.parametrize("rdrop_alpha", [0.0, 5.0])
def test_the_reported_loss_has_neither_label_smoothing_nor_rdrop(rdrop_alpha: float) -> None:
    make, _, batch = CASES["translation"]
    network, plain = make(), translation(0.0)
    loss = translation(0.3, rdrop_alpha)(network, batch)
    assert loss.reported is not None and not loss.reported.requires_grad
    torch.testing.assert_close(loss.reported, plain(network, batch).total.detach())
    assert not torch.allclose(loss.reported, loss.total)


def test_infinite_logits_without_a_label_do_not_change_the_reported_loss() -> None:
    logits, labels = torch.randn(1, 3, 5), torch.tensor([[2, 4, IGNORE_INDEX]])
    logits[0, 2] = torch.inf
    reported = cross_entropy_sum(logits, labels, 0.1).reported
    torch.testing.assert_close(reported, cross_entropy_sum(logits, labels).total)


@pytest.mark.parametrize("objective", [multi_label_classification, regression])
def test_rdrop_without_dropout_changes_no_objective_of_several_targets(objective: Any) -> None:
    targets = replace(BATCH, labels=torch.rand(len(BATCH.labels), 3).double())
    encoder = bert("classification")
    plain, rdrop = objective()(encoder, targets), objective(rdrop_alpha=3.0)(encoder, targets)
    assert (plain.count, rdrop.count) == (targets.labels.numel(), targets.labels.numel())
    torch.testing.assert_close(rdrop.total, plain.total)
