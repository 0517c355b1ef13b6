"""BPE dropout segments a text differently in each epoch, and every segmentation decodes to the text."""

import random

import pytest

from softlook.base.errors import DataError
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.tokens import bpe_dropout as module
from softlook.tokens.bpe_dropout import SEGMENTATIONS, BPEDropout

TEXTS = ["she sells sea shells by the sea shore", "the shells she sells are sea shells", "Ünïcode 漢字 🙂 too"]


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return TextTokenizer(train_tokenizer(TEXTS * 5, vocab_size=340))


def test_zero_dropout_equals_the_tokenizer(tokenizer: TextTokenizer) -> None:
    assert list(BPEDropout(tokenizer, TEXTS, dropout=0.0, seed=0).epoch(3)) == tokenizer.encode(TEXTS)


def test_every_segmentation_decodes_to_the_text(tokenizer: TextTokenizer) -> None:
    bpe_dropout = BPEDropout(tokenizer, TEXTS, dropout=0.3, seed=0)
    for epoch in range(5):
        assert [tokenizer.decode(ids) for ids in bpe_dropout.epoch(epoch)] == TEXTS


def test_more_dropout_gives_more_tokens(tokenizer: TextTokenizer) -> None:
    counts = [
        sum(map(len, BPEDropout(tokenizer, TEXTS * 10, dropout=dropout, seed=0).epoch(0)))
        for dropout in (0.0, 0.1, 0.5, 0.99)
    ]
    assert counts == sorted(set(counts))


def test_segmentation_depends_on_seed_and_epoch_alone(tokenizer: TextTokenizer) -> None:
    def segmentations(seed: int, epoch: int) -> list[list[int]]:
        return list(BPEDropout(tokenizer, TEXTS, dropout=0.3, seed=seed).epoch(epoch))

    assert segmentations(0, 1) == segmentations(0, 1)
    assert segmentations(0, 1) != segmentations(0, 2)
    assert segmentations(0, 1) != segmentations(1, 1)


@pytest.mark.parametrize("kind", ["characters", "bytes", "words"])
def test_a_tokenizer_without_merges_raises(kind: str) -> None:
    plain = TextTokenizer(train_tokenizer(TEXTS, model_type=kind))  # pyright: ignore[reportArgumentType]
    with pytest.raises(DataError, match="this tokenizer has none: use a BPE tokenizer"):
        BPEDropout(plain, TEXTS, dropout=0.1, seed=0)


def test_vectorized_draws_match_sequential_ones(tokenizer: TextTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed run gets the segmentations that it would have got without the interruption, on any machine."""
    monkeypatch.setattr(module, "CHUNK", 5)
    bpe_dropout = BPEDropout(tokenizer, [*TEXTS, "", "sea"], dropout=0.3, seed=7)
    for epoch in (0, 4):
        uniform = random.Random(f"7 {epoch}").random
        expected = [
            [
                id
                for word in words
                for id in bpe_dropout.segmentations[word * SEGMENTATIONS + int(uniform() * SEGMENTATIONS)]
            ]
            for words in (
                bpe_dropout.words[a:b] for a, b in zip(bpe_dropout.offsets, bpe_dropout.offsets[1:], strict=False)
            )
        ]
        assert list(bpe_dropout.epoch(epoch)) == expected
        assert bpe_dropout.epoch(epoch).lengths().tolist() == [len(ids) for ids in expected]
    assert list(BPEDropout(tokenizer, [], dropout=0.3, seed=7).epoch(0).lengths()) == []
