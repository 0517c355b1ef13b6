"""BPE dropout cuts texts otherwise each time, and always into the same texts."""

import random

import pytest

from softlook.base.errors import DataError
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.tokens import dropout as module
from softlook.tokens.dropout import WAYS, Varied

TEXTS = ["she sells sea shells by the sea shore", "the shells she sells are sea shells", "Ünïcode 漢字 🙂 too"]


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return TextTokenizer(train_tokenizer(TEXTS * 5, vocab=340))


def test_with_nothing_left_out_it_is_the_tokenizer_itself(tokenizer: TextTokenizer) -> None:
    assert list(Varied(tokenizer, TEXTS, dropout=0.0, seed=0).epoch(3)) == tokenizer.encode(TEXTS)


def test_every_way_of_cutting_says_the_same(tokenizer: TextTokenizer) -> None:
    varied = Varied(tokenizer, TEXTS, dropout=0.3, seed=0)
    for epoch in range(5):
        assert [tokenizer.decode(ids) for ids in varied.epoch(epoch)] == TEXTS


def test_the_more_is_left_out_the_more_pieces_there_are(tokenizer: TextTokenizer) -> None:
    counts = [
        sum(map(len, Varied(tokenizer, TEXTS * 10, dropout=share, seed=0).epoch(0))) for share in (0.0, 0.1, 0.5, 0.99)
    ]
    assert counts == sorted(set(counts))


def test_pieces_depend_on_seed_and_epoch_alone(tokenizer: TextTokenizer) -> None:
    def cut(seed: int, epoch: int) -> list[list[int]]:
        return list(Varied(tokenizer, TEXTS, dropout=0.3, seed=seed).epoch(epoch))

    assert cut(0, 1) == cut(0, 1)
    assert cut(0, 1) != cut(0, 2)
    assert cut(0, 1) != cut(1, 1)


@pytest.mark.parametrize("kind", ["characters", "bytes", "words"])
def test_where_nothing_is_merged_nothing_can_be_left_out(kind: str) -> None:
    plain = TextTokenizer(train_tokenizer(TEXTS, kind=kind))  # pyright: ignore[reportArgumentType]
    with pytest.raises(DataError, match="this tokenizer has none: use kind 'bpe'"):
        Varied(plain, TEXTS, dropout=0.1, seed=0)


def test_dice_in_bulk_are_the_dice_of_one_roll_after_another(
    tokenizer: TextTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that goes on, on whatever machine, meets the pieces that it would have met."""
    monkeypatch.setattr(module, "PORTION", 5)
    varied = Varied(tokenizer, [*TEXTS, "", "sea"], dropout=0.3, seed=7)
    for epoch in (0, 4):
        roll = random.Random(f"7 {epoch}").random
        wanted = [
            [id for word in words for id in varied.ways[word * WAYS + int(roll() * WAYS)]]
            for words in (varied.words[a:b] for a, b in zip(varied.edges, varied.edges[1:], strict=False))
        ]
        assert list(varied.epoch(epoch)) == wanted
        assert varied.epoch(epoch).lengths().tolist() == [len(ids) for ids in wanted]
    assert list(Varied(tokenizer, [], dropout=0.3, seed=7).epoch(0).lengths()) == []
