"""Objectives add up: the sum over a batch is the sum over its rows, and padding counts for nothing."""

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
    translation,
)
from softlook.train.train_step import Objective
from tests.train.tiny import CPU, NO_DROPOUT, join_pair, model, sentences
from tests.train.tiny import rows as packed


def bert(head: Any) -> Bert:
    sizes = BertConfig(vocab_size=31, context=16, dim=8, depth=1, heads=2, dropout=0.0, head=head, classes=3)
    return Bert(sizes).double().eval()


def text() -> Any:
    sizes = TransformerConfig(vocab_size=31, dim=8, depth=1, heads=2, dropout=0.0)
    return Transformer(sizes).double().eval()


GAPS = collate_classification(
    [([5, 6], [7, 9], 1), ([8], [12, 13, 14, 15], 0), ([20, 21, 22], [9], 1)], join=join_pair, max_length=6
)
ASKED = torch.where((GAPS.ids > 4) & (GAPS.ids % 3 == 0), GAPS.ids, IGNORE_INDEX)
CASES: dict[str, tuple[Any, Objective, Any]] = {
    "translation": (
        text,
        translation(),
        collate_seq2seq([([5, 6], [7]), ([8], [9, 10, 11]), ([12] * 5, [13])], bos_id=1, eos_id=2),
    ),
    "language": (lambda: model(NO_DROPOUT).double().eval(), causal_lm(0.1), packed(sentences()[:5])),
    "filling": (
        lambda: bert("masked_lm"),
        masked_lm,
        MaskedLMBatch(GAPS.ids, GAPS.padding_mask, GAPS.token_types, ASKED, GAPS.labels),
    ),
    "both": (
        lambda: bert("pretraining"),
        masked_lm,
        MaskedLMBatch(GAPS.ids, GAPS.padding_mask, GAPS.token_types, ASKED, GAPS.labels),
    ),
    "classification": (lambda: bert("classification"), classification(0.1), GAPS),
}


@pytest.mark.parametrize("name", CASES)
def test_the_loss_of_a_batch_is_the_sum_over_its_rows(name: str) -> None:
    make, objective, batch = CASES[name]
    own = make()
    whole = objective(own, batch)
    each = [objective(own, row) for row in split_batch(batch, batch_size(batch))]
    assert len(each) == batch_size(batch) > 2
    assert int(whole.count) == sum(int(loss.count) for loss in each) > 0
    torch.testing.assert_close(whole.total, torch.stack([loss.total for loss in each]).sum(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        make_loss_evaluator([batch], objective, CPU)(own)["loss"], (whole.total / whole.count).item()
    )


def test_rdrop_without_dropout_adds_nothing() -> None:
    make, once, batch = CASES["translation"]
    own = make()
    one, twice = once(own, batch), translation(rdrop_alpha=5.0)(own, batch)
    assert int(one.count) == int(twice.count)
    torch.testing.assert_close(one.total, twice.total)


def test_no_labels_give_zero_loss() -> None:
    loss = cross_entropy_sum(torch.randn(2, 3, 5), torch.full((2, 3), IGNORE_INDEX))
    assert (loss.total.item(), int(loss.count)) == (0.0, 0)


def test_half_precision_logits_are_summed_in_float32() -> None:
    scores = torch.randn(4000, 8).half()
    exact = cross_entropy_sum(scores.double(), torch.zeros(4000, dtype=torch.long)).total
    assert cross_entropy_sum(scores, torch.zeros(4000, dtype=torch.long)).total.item() == pytest.approx(
        exact.item(), rel=1e-5
    )


def test_leaving_out_a_full_padding_mask_changes_no_bit() -> None:
    even, own = (
        collate_classification([([5, 6], [], 1), ([7, 8], [], 0)], join=join_pair, max_length=6),
        bert("classification"),
    )
    told = cross_entropy_sum(own(even.ids, padding_mask=even.padding_mask, token_types=even.token_types), even.labels)
    assert classification()(own, even).total.equal(told.total)
    pair, own = collate_seq2seq([([5, 6], [7]), ([8, 9], [10, 11])], bos_id=1, eos_id=2), text()
    told = cross_entropy_sum(own(pair.source, pair.decoder_input, source_padding_mask=pair.source_mask), pair.labels)
    assert translation(0.0)(own, pair).total.equal(told.total)


def test_mask_if_padded_keeps_a_mask_with_padding() -> None:
    assert mask_if_padded(GAPS.padding_mask) is GAPS.padding_mask and not GAPS.padding_mask.all()
