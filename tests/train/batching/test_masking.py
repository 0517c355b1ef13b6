"""Words are hidden as often as they should be, by generator that are handed in; neighbours are told from strangers."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.base.errors import ConfigError
from softlook.losses import IGNORE_INDEX
from softlook.models import Bert, BertConfig
from softlook.train.batching.batches import LengthBucketedBatches, SeededTransform
from softlook.train.batching.collate import Ids, split_batch
from softlook.train.batching.masking import (
    IS_NEXT,
    NOT_NEXT,
    MaskingConfig,
    collate_masked_lm,
    mask_tokens,
    sample_sentence_pairs,
)
from softlook.train.objectives import masked_lm
from softlook.train.optimizer import build_optimizer
from softlook.train.rng import make_generator
from softlook.train.train_step import TrainStep
from tests.train.tiny import FAST, assert_same, assert_same_progress, run_training, sentence_pair_positions

HIDING = MaskingConfig(mask_id=4, vocab_size=50, special_ids=(0, 1, 2, 3, 4))
DOCUMENTS = [[[10 * i + j, 40 + j] for j in range(1, 5)] for i in range(1, 4)]


def joined(one: Ids, other: Ids) -> tuple[list[int], list[int]]:
    """`[CLS] a [SEP] b [SEP]`, with 1 and 2 for the special tokens."""
    behind = [*other, 2] if other else []
    return [1, *one, 2, *behind], [0] * (len(one) + 2) + [1] * len(behind)


def test_mask_tokens_follows_80_10_10() -> None:
    ids = torch.randint(5, 50, (200, 100))
    hidden, expected = mask_tokens(ids, torch.ones_like(ids, dtype=torch.bool), HIDING, make_generator(0))
    asked = expected != IGNORE_INDEX
    assert asked.float().mean().item() == pytest.approx(0.15, abs=0.01)
    assert torch.equal(expected[asked], ids[asked])
    assert torch.equal(hidden[~asked], ids[~asked])
    became, was = hidden[asked], ids[asked]
    assert (became == 4).float().mean().item() == pytest.approx(0.8, abs=0.02)
    assert (became == was).float().mean().item() == pytest.approx(0.1 + 0.1 / 45, abs=0.02)
    exchanged = became[(became != 4) & (became != was)]
    assert set(exchanged.tolist()) == set(range(5, 50)), "any word may take another's place, and nothing but words"


@given(st.integers(0, 10**6), st.sampled_from([0.01, 0.15, 1.0]))
def test_special_tokens_are_never_masked_and_every_row_has_a_label(seed: int, share: float) -> None:
    ids = torch.tensor([[1, 7, 8, 2, 0, 0], [1, 9, 3, 2, 11, 5], [1, 2, 3, 0, 0, 0]])
    hiding = MaskingConfig(mask_id=4, vocab_size=50, special_ids=(0, 1, 2, 3, 4), mask_prob=share)
    hidden, expected = mask_tokens(ids, ids > 0, hiding, make_generator(seed))
    asked = expected != IGNORE_INDEX
    assert not asked[ids < 5].any()
    assert asked.any(1).tolist() == [True, True, False]
    assert torch.equal(hidden[~asked], ids[~asked])


def test_masks_depend_on_the_generator_alone() -> None:
    ids = torch.randint(5, 50, (4, 30))
    torch.manual_seed(1)
    one = mask_tokens(ids, ids > 0, HIDING, make_generator(0, 1, 2))
    torch.manual_seed(2)
    other = mask_tokens(ids, ids > 0, HIDING, make_generator(0, 1, 2))
    third = mask_tokens(ids, ids > 0, HIDING, make_generator(0, 1, 3))
    assert torch.equal(one[0], other[0])
    assert not torch.equal(one[1], third[1])


@pytest.mark.parametrize("share", [0.0, 1.5])
def test_an_invalid_mask_prob_raises(share: float) -> None:
    with pytest.raises(ConfigError, match=rf"mask_prob: expected more than 0 and at most 1, got {share}"):
        MaskingConfig(mask_id=4, vocab_size=50, special_ids=(), mask_prob=share)


def test_half_of_the_sentence_pairs_are_consecutive() -> None:
    places = sentence_pair_positions(DOCUMENTS) * 100
    couples = sample_sentence_pairs(DOCUMENTS, places, make_generator(3))
    answers = [answer for *_, answer in couples]
    assert answers.count(IS_NEXT) / len(answers) == pytest.approx(0.5, abs=0.05)
    strangers = set()
    for (document, sentence), (one, other, answer) in zip(places, couples, strict=True):
        assert one == DOCUMENTS[document][sentence]
        if answer == IS_NEXT:
            assert other == DOCUMENTS[document][sentence + 1]
        else:
            assert answer == NOT_NEXT
            assert other not in DOCUMENTS[document]
            strangers.add(tuple(other))
    assert len(strangers) == 12, "any sentence can be a stranger"


def test_one_document_has_no_negative_pairs() -> None:
    with pytest.raises(ConfigError, match=r"next-sentence prediction needs at least two documents"):
        sample_sentence_pairs([DOCUMENTS[0], []], [(0, 0)], make_generator(0))


def batches(seed: int) -> SeededTransform:
    def change(places: list[tuple[int, int]], generator: torch.Generator) -> object:
        return collate_masked_lm(
            sample_sentence_pairs(DOCUMENTS, places, generator), generator, masking=HIDING, join=joined, max_length=9
        )

    return SeededTransform(
        LengthBucketedBatches(sentence_pair_positions(DOCUMENTS), lambda place: 4, list, max_tokens=16, seed=seed),
        change,
        seed=seed,
    )


def bert(**more: object) -> Bert:
    torch.manual_seed(3)
    sizes = {"vocab_size": 50, "context": 12, "dim": 8, "depth": 1, "heads": 2, "head": "pretraining", **more}
    return Bert(BertConfig(**sizes))  # pyright: ignore[reportArgumentType]


def test_a_masked_lm_run_resumes_exactly(tmp_path) -> None:
    whole, uninterrupted = run_training(model=bert(), source=batches(0), objective=masked_lm, max_steps=8)
    run_training(tmp_path, model=bert(), source=batches(0), objective=masked_lm, max_steps=8, stop_at=4)
    again, progress = run_training(tmp_path, model=bert(), source=batches(0), objective=masked_lm, max_steps=8)
    assert_same(again, whole)
    assert_same_progress(progress, uninterrupted)


def test_masked_lm_loss_does_not_depend_on_micro_batches() -> None:
    own = bert(dropout=0.0).double()
    batch = collate_masked_lm(
        sample_sentence_pairs(DOCUMENTS, sentence_pair_positions(DOCUMENTS), make_generator(1)),
        make_generator(2),
        masking=HIDING,
        join=joined,
        max_length=9,
    )
    make_train_step = TrainStep(own, masked_lm, build_optimizer(own, FAST), grad_clip=1e9)
    whole, pieces = make_train_step.step([batch], lr=0.0), make_train_step.step(split_batch(batch, 4), lr=0.0)
    assert whole.loss == pytest.approx(pieces.loss, rel=1e-12)
    assert whole.grad_norm == pytest.approx(pieces.grad_norm, rel=1e-9)
