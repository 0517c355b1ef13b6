"""BPE dropout cuts texts otherwise each time, and always into the same texts."""

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
    varied = BPEDropout(tokenizer, TEXTS, dropout=0.3, seed=0)
    for epoch in range(5):
        assert [tokenizer.decode(ids) for ids in varied.epoch(epoch)] == TEXTS


def test_more_dropout_gives_more_tokens(tokenizer: TextTokenizer) -> None:
    counts = [
        sum(map(len, BPEDropout(tokenizer, TEXTS * 10, dropout=share, seed=0).epoch(0)))
        for share in (0.0, 0.1, 0.5, 0.99)
    ]
    assert counts == sorted(set(counts))


def test_segmentation_depends_on_seed_and_epoch_alone(tokenizer: TextTokenizer) -> None:
    def cut(seed: int, epoch: int) -> list[list[int]]:
        return list(BPEDropout(tokenizer, TEXTS, dropout=0.3, seed=seed).epoch(epoch))

    assert cut(0, 1) == cut(0, 1)
    assert cut(0, 1) != cut(0, 2)
    assert cut(0, 1) != cut(1, 1)


@pytest.mark.parametrize("kind", ["characters", "bytes", "words"])
def test_a_tokenizer_without_merges_raises(kind: str) -> None:
    plain = TextTokenizer(train_tokenizer(TEXTS, model_type=kind))  # pyright: ignore[reportArgumentType]
    with pytest.raises(DataError, match="this tokenizer has none: use a BPE tokenizer"):
        BPEDropout(plain, TEXTS, dropout=0.1, seed=0)


def test_vectorized_draws_match_sequential_ones(tokenizer: TextTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes on, on whatever machine, meets the pieces that it would have met."""
    monkeypatch.setattr(module, "CHUNK", 5)
    varied = BPEDropout(tokenizer, [*TEXTS, "", "sea"], dropout=0.3, seed=7)
    for epoch in (0, 4):
        roll = random.Random(f"7 {epoch}").random
        wanted = [
            [id for word in words for id in varied.segmentations[word * SEGMENTATIONS + int(roll() * SEGMENTATIONS)]]
            for words in (varied.words[a:b] for a, b in zip(varied.offsets, varied.offsets[1:], strict=False))
        ]
        assert list(varied.epoch(epoch)) == wanted
        assert varied.epoch(epoch).lengths().tolist() == [len(ids) for ids in wanted]
    assert list(BPEDropout(tokenizer, [], dropout=0.3, seed=7).epoch(0).lengths()) == []
