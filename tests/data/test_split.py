"""The held-out part depends on what examples say and on nothing else, and nothing is on both sides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softlook.data import Labelled, Pair, Text, make_split

TEXTS = st.lists(st.text(max_size=5), max_size=60).map(lambda texts: [Text(text) for text in texts])


def numbers(count: int) -> list[Text]:
    return [Text(f"text {number}") for number in range(count)]


@given(TEXTS, st.randoms())
def test_order_makes_no_difference(texts: list[Text], dice) -> None:
    mixed = dice.sample(texts, len(texts))
    assert make_split(texts) == make_split(mixed)


@given(TEXTS, st.floats(0, 1), st.integers(0, 5), st.integers(1, 9))
def test_every_example_is_on_one_side_only_and_one_is_left_to_learn(
    texts: list[Text], share: float, least: int, most: int
) -> None:
    split = make_split(texts, share=share, least=least, most=most)
    train, held = list(split.train(texts)), list(split.validation(texts))
    assert not {_said(text) for text in train} & {_said(text) for text in held}
    assert {_said(text) for text in train} | {_said(text) for text in held} == {_said(text) for text in texts}
    assert len(held) == split.held_out <= most
    assert train or not texts


def _said(text: Text) -> str:
    return " ".join(text.text.casefold().split())


@pytest.mark.parametrize(("count", "low", "high"), [(0, 0, 0), (1, 0, 0), (2, 1, 1), (30, 1, 4), (5000, 70, 130)])
def test_about_two_in_a_hundred_are_held_out_and_one_at_least(count: int, low: int, high: int) -> None:
    assert low <= make_split(numbers(count)).held_out <= high


def test_no_more_than_the_most_are_held_out() -> None:
    assert make_split(numbers(5000), most=20).held_out == 20


def test_more_data_move_no_example_while_the_share_decides() -> None:
    few, many = numbers(2000), numbers(6000)
    before, after = make_split(few), make_split(many)
    assert [text for text in few if before.holds_out(text)] == [text for text in few if after.holds_out(text)]


def test_the_same_question_is_never_on_both_sides_whatever_its_answer() -> None:
    pairs = [Pair(f"source {n % 500}", f"target {n}") for n in range(2000)]
    split = make_split(pairs)
    train, held = list(split.train(pairs)), list(split.validation(pairs))
    assert not {pair.source for pair in train} & {pair.source for pair in held}
    assert len({pair.source for pair in held}) == len(held) == split.held_out > 0
    labelled = [Labelled(f"text {n % 500}", None, str(n % 2)) for n in range(1000)]
    assert make_split(labelled).held_out == len(list(make_split(labelled).validation(labelled)))


def test_case_and_spaces_do_not_make_an_example_new() -> None:
    split = make_split(numbers(500))
    [first, *_] = split.validation(numbers(500))
    assert split.holds_out(Text(f"  {first.text.upper()}  "))
