"""Masked-language-model masking follows its probabilities and its generator; sentence pairs are sampled for NSP."""

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

MASKING = MaskingConfig(mask_id=4, vocab_size=50, special_ids=(0, 1, 2, 3, 4))
DOCUMENTS = [[[10 * i + j, 40 + j] for j in range(1, 5)] for i in range(1, 4)]


def joined(one: Ids, other: Ids) -> tuple[list[int], list[int]]:
    """`[CLS] a [SEP] b [SEP]`, with 1 and 2 for the special tokens."""
    second = [*other, 2] if other else []
    return [1, *one, 2, *second], [0] * (len(one) + 2) + [1] * len(second)


def test_mask_tokens_follows_80_10_10() -> None:
    ids = torch.randint(5, 50, (200, 100))
    masked, labels = mask_tokens(ids, torch.ones_like(ids, dtype=torch.bool), MASKING, make_generator(0))
    has_label = labels != IGNORE_INDEX
    assert has_label.float().mean().item() == pytest.approx(0.15, abs=0.01)
    assert torch.equal(labels[has_label], ids[has_label])
    assert torch.equal(masked[~has_label], ids[~has_label])
    after, before = masked[has_label], ids[has_label]
    assert (after == 4).float().mean().item() == pytest.approx(0.8, abs=0.02)
    assert (after == before).float().mean().item() == pytest.approx(0.1 + 0.1 / 45, abs=0.02)
    replaced = after[(after != 4) & (after != before)]
    assert set(replaced.tolist()) == set(range(5, 50)), "a random token may be any token but a special one"


@given(st.integers(0, 10**6), st.sampled_from([0.01, 0.15, 1.0]))
def test_special_tokens_are_never_masked_and_every_row_has_a_label(seed: int, mask_prob: float) -> None:
    ids = torch.tensor([[1, 7, 8, 2, 0, 0], [1, 9, 3, 2, 11, 5], [1, 2, 3, 0, 0, 0]])
    masking = MaskingConfig(mask_id=4, vocab_size=50, special_ids=(0, 1, 2, 3, 4), mask_prob=mask_prob)
    masked, labels = mask_tokens(ids, ids > 0, masking, make_generator(seed))
    has_label = labels != IGNORE_INDEX
    assert not has_label[ids < 5].any()
    assert has_label.any(1).tolist() == [True, True, False]
    assert torch.equal(masked[~has_label], ids[~has_label])


def test_masks_depend_on_the_generator_alone() -> None:
    ids = torch.randint(5, 50, (4, 30))
    torch.manual_seed(1)
    one = mask_tokens(ids, ids > 0, MASKING, make_generator(0, 1, 2))
    torch.manual_seed(2)
    other = mask_tokens(ids, ids > 0, MASKING, make_generator(0, 1, 2))
    third = mask_tokens(ids, ids > 0, MASKING, make_generator(0, 1, 3))
    assert torch.equal(one[0], other[0])
    assert not torch.equal(one[1], third[1])


@pytest.mark.parametrize("mask_prob", [0.0, 1.5])
def test_an_invalid_mask_prob_raises(mask_prob: float) -> None:
    with pytest.raises(ConfigError, match=rf"mask_prob: expected more than 0 and at most 1, got {mask_prob}"):
        MaskingConfig(mask_id=4, vocab_size=50, special_ids=(), mask_prob=mask_prob)


def test_half_of_the_sentence_pairs_are_consecutive() -> None:
    positions = sentence_pair_positions(DOCUMENTS) * 100
    pairs = sample_sentence_pairs(DOCUMENTS, positions, make_generator(3))
    labels = [label for *_, label in pairs]
    assert labels.count(IS_NEXT) / len(labels) == pytest.approx(0.5, abs=0.05)
    negatives = set()
    for (document, sentence), (one, other, label) in zip(positions, pairs, strict=True):
        assert one == DOCUMENTS[document][sentence]
        if label == IS_NEXT:
            assert other == DOCUMENTS[document][sentence + 1]
        else:
            assert label == NOT_NEXT
            assert other not in DOCUMENTS[document]
            negatives.add(tuple(other))
    assert len(negatives) == 12, "any sentence of another document can be a negative"


def test_one_document_has_no_negative_pairs() -> None:
    with pytest.raises(ConfigError, match=r"next-sentence prediction needs at least two documents"):
        sample_sentence_pairs([DOCUMENTS[0], []], [(0, 0)], make_generator(0))


def batches(seed: int) -> SeededTransform:
    def collate(positions: list[tuple[int, int]], generator: torch.Generator) -> object:
        return collate_masked_lm(
            sample_sentence_pairs(DOCUMENTS, positions, generator),
            generator,
            masking=MASKING,
            join=joined,
            max_length=9,
        )

    return SeededTransform(
        LengthBucketedBatches(sentence_pair_positions(DOCUMENTS), lambda position: 4, list, max_tokens=16, seed=seed),
        collate,
        seed=seed,
    )


def bert(**more: object) -> Bert:
    torch.manual_seed(3)
    sizes = {"vocab_size": 50, "context": 12, "dim": 8, "depth": 1, "heads": 2, "head": "pretraining", **more}
    return Bert(BertConfig(**sizes))  # pyright: ignore[reportArgumentType]


def test_a_masked_lm_run_resumes_exactly(tmp_path) -> None:
    full, expected_progress = run_training(model=bert(), source=batches(0), objective=masked_lm, max_steps=8)
    run_training(tmp_path, model=bert(), source=batches(0), objective=masked_lm, max_steps=8, stop_at=4)
    resumed, progress = run_training(tmp_path, model=bert(), source=batches(0), objective=masked_lm, max_steps=8)
    assert_same(resumed, full)
    assert_same_progress(progress, expected_progress)


def test_masked_lm_loss_does_not_depend_on_micro_batches() -> None:
    network = bert(dropout=0.0).double()
    batch = collate_masked_lm(
        sample_sentence_pairs(DOCUMENTS, sentence_pair_positions(DOCUMENTS), make_generator(1)),
        make_generator(2),
        masking=MASKING,
        join=joined,
        max_length=9,
    )
    train_step = TrainStep(network, masked_lm, build_optimizer(network, FAST), grad_clip=1e9)
    full, split = train_step.step([batch], lr=0.0), train_step.step(split_batch(batch, 4), lr=0.0)
    assert full.loss == pytest.approx(split.loss, rel=1e-12)
    assert full.grad_norm == pytest.approx(split.grad_norm, rel=1e-9)
