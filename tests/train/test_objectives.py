"""Objectives add up: the sum over a batch is the sum over its rows, and padding counts for nothing."""

from typing import Any

import pytest
import torch

from softlook.losses import NOTHING
from softlook.models import Bert, BertConfig, Transformer, TransformerConfig
from softlook.train.examples import Gaps, labelled, pairs
from softlook.train.objectives import classification, filling, held_out, language, surprise, translation, unless_all
from softlook.train.step import Objective
from softlook.train.tensors import parted, rows
from tests.train.tiny import CALM, CPU, framed, model, sentences
from tests.train.tiny import rows as packed


def bert(head: Any) -> Bert:
    sizes = BertConfig(vocab=31, context=16, dim=8, depth=1, heads=2, dropout=0.0, head=head, classes=3)
    return Bert(sizes).double().eval()


def text() -> Any:
    sizes = TransformerConfig(vocab=31, dim=8, depth=1, heads=2, dropout=0.0)
    return Transformer(sizes).double().eval()


GAPS = labelled([([5, 6], [7, 9], 1), ([8], [12, 13, 14, 15], 0), ([20, 21, 22], [9], 1)], join=framed, room=6)
ASKED = torch.where((GAPS.ids > 4) & (GAPS.ids % 3 == 0), GAPS.ids, NOTHING)
CASES: dict[str, tuple[Any, Objective, Any]] = {
    "translation": (text, translation(), pairs([([5, 6], [7]), ([8], [9, 10, 11]), ([12] * 5, [13])], begin=1, end=2)),
    "language": (lambda: model(CALM).double().eval(), language(0.1), packed(sentences()[:5])),
    "filling": (lambda: bert("words"), filling, Gaps(GAPS.ids, GAPS.present, GAPS.segments, ASKED, GAPS.wanted)),
    "both": (lambda: bert("pretraining"), filling, Gaps(GAPS.ids, GAPS.present, GAPS.segments, ASKED, GAPS.wanted)),
    "classification": (lambda: bert("classes"), classification(0.1), GAPS),
}


@pytest.mark.parametrize("name", CASES)
def test_the_sum_over_a_batch_is_the_sum_over_its_rows(name: str) -> None:
    make, objective, batch = CASES[name]
    own = make()
    whole = objective(own, batch)
    each = [objective(own, row) for row in parted(batch, rows(batch))]
    assert len(each) == rows(batch) > 2
    assert int(whole.count) == sum(int(loss.count) for loss in each) > 0
    torch.testing.assert_close(whole.total, torch.stack([loss.total for loss in each]).sum(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(held_out([batch], objective, CPU)(own)["loss"], (whole.total / whole.count).item())


def test_two_readings_with_nothing_dropped_agree_and_cost_what_one_costs() -> None:
    make, once, batch = CASES["translation"]
    own = make()
    one, twice = once(own, batch), translation(agree=5.0)(own, batch)
    assert int(one.count) == int(twice.count)
    torch.testing.assert_close(one.total, twice.total)


def test_where_nothing_is_asked_nothing_is_lost() -> None:
    loss = surprise(torch.randn(2, 3, 5), torch.full((2, 3), NOTHING))
    assert (loss.total.item(), int(loss.count)) == (0.0, 0)


def test_half_precision_is_added_up_in_single() -> None:
    scores = torch.randn(4000, 8).half()
    exact = surprise(scores.double(), torch.zeros(4000, dtype=torch.long)).total
    assert surprise(scores, torch.zeros(4000, dtype=torch.long)).total.item() == pytest.approx(exact.item(), rel=1e-5)


def test_texts_of_one_length_give_the_same_bits_as_when_their_presence_is_told() -> None:
    even, own = labelled([([5, 6], [], 1), ([7, 8], [], 0)], join=framed, room=6), bert("classes")
    told = surprise(own(even.ids, present=even.present, segments=even.segments), even.wanted)
    assert classification()(own, even).total.equal(told.total)
    pair, own = pairs([([5, 6], [7]), ([8, 9], [10, 11])], begin=1, end=2), text()
    told = surprise(own(pair.source, pair.said, source_present=pair.source_present), pair.wanted)
    assert translation(0.0)(own, pair).total.equal(told.total)


def test_padding_is_never_taken_for_a_token() -> None:
    assert unless_all(GAPS.present) is GAPS.present and not GAPS.present.all()
