"""Digests are stable across machines and releases; the split depends only on the content of the examples."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softlook.base.errors import DataError
from softlook.data import LabeledText, TextExample, TextPair, data_digest, file_digests, make_split
from softlook.data.split import content_digest, exact_digest

TEXTS = st.lists(st.text(max_size=5), max_size=60).map(lambda texts: [TextExample(text) for text in texts])

EXPECTED = 9765549648086544720


def numbers(count: int) -> list[TextExample]:
    return [TextExample(f"text {number}") for number in range(count)]


@given(TEXTS, st.randoms())
def test_the_split_does_not_depend_on_the_order(texts: list[TextExample], rng) -> None:
    mixed = rng.sample(texts, len(texts))
    assert make_split(texts) == make_split(mixed)


@given(TEXTS, st.floats(0, 1), st.integers(0, 5), st.integers(1, 9))
def test_every_example_is_on_one_side_and_one_is_left_to_train_on(
    texts: list[TextExample], fraction: float, min_held_out: int, max_held_out: int
) -> None:
    split = make_split(texts, fraction=fraction, min_held_out=min_held_out, max_held_out=max_held_out)
    train, held = list(split.train(texts)), list(split.validation(texts))
    assert not {_normalized(text) for text in train} & {_normalized(text) for text in held}
    assert {_normalized(text) for text in train} | {_normalized(text) for text in held} == {
        _normalized(text) for text in texts
    }
    assert len(held) == split.held_out <= max_held_out
    assert train or not texts


def _normalized(text: TextExample) -> str:
    return " ".join(text.text.casefold().split())


@pytest.mark.parametrize(("count", "low", "high"), [(0, 0, 0), (1, 0, 0), (2, 1, 1), (30, 1, 4), (5000, 70, 130)])
def test_about_two_percent_are_held_out(count: int, low: int, high: int) -> None:
    assert low <= make_split(numbers(count)).held_out <= high


def test_max_held_out_is_respected() -> None:
    assert make_split(numbers(5000), max_held_out=20).held_out == 20


def test_more_data_move_no_example_at_a_fixed_fraction() -> None:
    few, many = numbers(2000), numbers(6000)
    before, after = make_split(few), make_split(many)
    assert [text for text in few if before.holds_out(text)] == [text for text in few if after.holds_out(text)]


def test_equal_inputs_are_on_the_same_side() -> None:
    pairs = [TextPair(f"source {n % 500}", f"target {n}") for n in range(2000)]
    split = make_split(pairs)
    train, held = list(split.train(pairs)), list(split.validation(pairs))
    assert not {pair.source for pair in train} & {pair.source for pair in held}
    assert len({pair.source for pair in held}) == len(held) == split.held_out > 0
    labeled = [LabeledText(f"text {n % 500}", None, str(n % 2)) for n in range(1000)]
    assert make_split(labeled).held_out == len(list(make_split(labeled).validation(labeled)))


def test_case_and_whitespace_are_ignored() -> None:
    split = make_split(numbers(500))
    [first, *_] = split.validation(numbers(500))
    assert split.holds_out(TextExample(f"  {first.text.upper()}  "))


def test_digests_are_stable_across_releases() -> None:
    # The split depends on these digests: if they changed, held-out examples would be trained on.
    assert content_digest("Hello  World") == content_digest("hello world") == EXPECTED
    assert exact_digest("hello world") == EXPECTED != exact_digest("Hello world")


def test_the_digest_depends_on_content_not_on_names(tmp_path: Path) -> None:
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_bytes(b"words\n")
    second.write_bytes(b"words\n")
    same = data_digest([first])
    assert data_digest([second]) == same
    second.write_bytes(b"Words\n")
    assert data_digest([second]) != same


def test_the_data_digest_depends_on_the_order(tmp_path: Path) -> None:
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_bytes(b"1")
    second.write_bytes(b"2")
    assert data_digest([first, second]) != data_digest([second, first])
    assert list(file_digests([first, second])) == [str(first), str(second)]


def test_a_missing_file_raises_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        file_digests([tmp_path / "a.txt"])
