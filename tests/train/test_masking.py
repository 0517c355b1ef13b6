"""Words are hidden as often as they should be, by dice that are handed in; neighbours are told from strangers."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.base.errors import ConfigError
from softlook.losses import NOTHING
from softlook.models import Bert, BertConfig
from softlook.train.batches import Rolled, Shuffled, chance
from softlook.train.examples import Ids
from softlook.train.masking import FOLLOWS, STRANGER, Hiding, coupled, gaps, hide, neighbours
from softlook.train.objectives import filling
from softlook.train.optimizer import make_optimizer
from softlook.train.step import Stepper
from softlook.train.tensors import parted
from tests.train.tiny import FAST, assert_same, assert_same_place, trained

HIDING = Hiding(mask=4, vocab=50, special=(0, 1, 2, 3, 4))
DOCUMENTS = [[[10 * i + j, 40 + j] for j in range(1, 5)] for i in range(1, 4)]


def joined(one: Ids, other: Ids) -> tuple[list[int], list[int]]:
    """`[CLS] a [SEP] b [SEP]`, with 1 and 2 for the special tokens."""
    behind = [*other, 2] if other else []
    return [1, *one, 2, *behind], [0] * (len(one) + 2) + [1] * len(behind)


def test_of_the_words_asked_for_eight_in_ten_are_hidden_one_exchanged_and_one_left() -> None:
    ids = torch.randint(5, 50, (200, 100))
    hidden, wanted = hide(ids, torch.ones_like(ids, dtype=torch.bool), HIDING, chance(0))
    asked = wanted != NOTHING
    assert asked.float().mean().item() == pytest.approx(0.15, abs=0.01)
    assert torch.equal(wanted[asked], ids[asked])
    assert torch.equal(hidden[~asked], ids[~asked])
    became, was = hidden[asked], ids[asked]
    assert (became == 4).float().mean().item() == pytest.approx(0.8, abs=0.02)
    assert (became == was).float().mean().item() == pytest.approx(0.1 + 0.1 / 45, abs=0.02)
    exchanged = became[(became != 4) & (became != was)]
    assert set(exchanged.tolist()) == set(range(5, 50)), "any word may take another's place, and nothing but words"


@given(st.integers(0, 10**6), st.sampled_from([0.01, 0.15, 1.0]))
def test_special_ids_and_padding_are_left_alone_and_every_row_has_a_question(seed: int, share: float) -> None:
    ids = torch.tensor([[1, 7, 8, 2, 0, 0], [1, 9, 3, 2, 11, 5], [1, 2, 3, 0, 0, 0]])
    hiding = Hiding(mask=4, vocab=50, special=(0, 1, 2, 3, 4), share=share)
    hidden, wanted = hide(ids, ids > 0, hiding, chance(seed))
    asked = wanted != NOTHING
    assert not asked[ids < 5].any()
    assert asked.any(1).tolist() == [True, True, False]
    assert torch.equal(hidden[~asked], ids[~asked])


def test_the_dice_alone_decide() -> None:
    ids = torch.randint(5, 50, (4, 30))
    torch.manual_seed(1)
    one = hide(ids, ids > 0, HIDING, chance(0, 1, 2))
    torch.manual_seed(2)
    other = hide(ids, ids > 0, HIDING, chance(0, 1, 2))
    third = hide(ids, ids > 0, HIDING, chance(0, 1, 3))
    assert torch.equal(one[0], other[0])
    assert not torch.equal(one[1], third[1])


@pytest.mark.parametrize("share", [0.0, 1.5])
def test_a_share_that_is_none_is_told(share: float) -> None:
    with pytest.raises(ConfigError, match=rf"share wants more than 0 and at most 1; {share} came"):
        Hiding(mask=4, vocab=50, special=(), share=share)


def test_half_of_the_second_sentences_follow_and_the_others_come_from_elsewhere() -> None:
    places = neighbours(DOCUMENTS) * 100
    couples = coupled(DOCUMENTS, places, chance(3))
    answers = [answer for *_, answer in couples]
    assert answers.count(FOLLOWS) / len(answers) == pytest.approx(0.5, abs=0.05)
    strangers = set()
    for (document, sentence), (one, other, answer) in zip(places, couples, strict=True):
        assert one == DOCUMENTS[document][sentence]
        if answer == FOLLOWS:
            assert other == DOCUMENTS[document][sentence + 1]
        else:
            assert answer == STRANGER
            assert other not in DOCUMENTS[document]
            strangers.add(tuple(other))
    assert len(strangers) == 12, "any sentence can be a stranger"


def test_one_document_alone_has_no_strangers() -> None:
    with pytest.raises(ConfigError, match=r"sentence pairs want at least two documents"):
        coupled([DOCUMENTS[0], []], [(0, 0)], chance(0))


def batches(seed: int) -> Rolled:
    def change(places: list[tuple[int, int]], dice: torch.Generator) -> object:
        return gaps(coupled(DOCUMENTS, places, dice), dice, hiding=HIDING, join=joined, room=9)

    return Rolled(Shuffled(neighbours(DOCUMENTS), lambda place: 4, list, most=16, seed=seed), change, seed=seed)


def bert(**more: object) -> Bert:
    torch.manual_seed(3)
    sizes = {"vocab": 50, "context": 12, "dim": 8, "depth": 1, "heads": 2, "head": "pretraining", **more}
    return Bert(BertConfig(**sizes))  # pyright: ignore[reportArgumentType]


def test_a_run_with_hidden_words_and_sentence_pairs_goes_on_exactly(tmp_path) -> None:
    whole, unbroken = trained(model=bert(), source=batches(0), objective=filling, steps=8)
    trained(tmp_path, model=bert(), source=batches(0), objective=filling, steps=8, stop_at=4)
    again, progress = trained(tmp_path, model=bert(), source=batches(0), objective=filling, steps=8)
    assert_same(again, whole)
    assert_same_place(progress, unbroken)


def test_both_questions_together_are_the_same_however_the_rows_are_parted() -> None:
    own = bert(dropout=0.0).double()
    batch = gaps(coupled(DOCUMENTS, neighbours(DOCUMENTS), chance(1)), chance(2), hiding=HIDING, join=joined, room=9)
    stepper = Stepper(own, filling, make_optimizer(own, FAST), clip=1e9)
    whole, pieces = stepper.step([batch], lr=0.0), stepper.step(parted(batch, 4), lr=0.0)
    assert whole.loss == pytest.approx(pieces.loss, rel=1e-12)
    assert whole.gradient == pytest.approx(pieces.gradient, rel=1e-9)
