"""The validation split is stratified by class, large enough to measure on, and depends on content only."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softlook.data import LabeledText, TextExample, TextPair, make_validation_split, split
from softlook.data.split import Split, allocate, content_digest, validation_size

LABELED = st.lists(st.tuples(st.text("ab ", max_size=6), st.sampled_from("xyz")), max_size=80).map(
    lambda rows: [LabeledText(text, None, label) for text, label in rows]
)


def labeled(sizes: dict[str, int]) -> list[LabeledText]:
    return [LabeledText(f"{label} {n}", None, label) for label, size in sizes.items() for n in range(size)]


def held_out(examples: list[LabeledText]) -> Counter[str]:
    return Counter(example.label for example in make_validation_split(examples).validation(examples))


def test_the_size_is_a_tenth_but_at_least_500_where_the_data_allow_it() -> None:
    sizes = {1: 0, 2: 1, 9: 1, 100: 20, 1000: 200, 2500: 500, 5000: 500, 30_000: 3000, 50_000: 5000, 10**7: 5000}
    assert {count: validation_size(count) for count in sizes} == sizes
    assert all(validation_size(a) <= validation_size(b) for a, b in pairwise(range(0, 60_000, 7)))


def test_at_most_a_tenth_of_plain_text_is_held_out() -> None:
    assert [validation_size(count, is_plain_text=True) for count in (2, 16, 1000, 10**6)] == [1, 1, 100, 5000]
    texts = [TextExample(f"line {n}") for n in range(1000)]
    assert make_validation_split(texts).held_out == 100
    assert make_validation_split([TextPair(text.text, "x") for text in texts]).held_out == 200


def test_long_documents_are_held_out_by_characters() -> None:
    documents = [TextExample(f"{n} ".ljust(10_000, "x")) for n in range(6000)]
    assert make_validation_split(documents).held_out == 500
    assert validation_size(1000, 1e9) == 1


@given(LABELED, st.randoms())
def test_the_split_depends_on_content_only(examples: list[LabeledText], rng) -> None:
    assert make_validation_split(examples) == make_validation_split(rng.sample(examples, len(examples)))


@given(LABELED)
def test_duplicates_are_on_one_side_and_every_class_keeps_an_example(examples: list[LabeledText]) -> None:
    found = make_validation_split(examples)
    train, valid = list(found.train(examples)), list(found.validation(examples))
    assert not {content_digest(e.key) for e in train} & {content_digest(e.key) for e in valid}
    assert len(valid) == found.held_out
    distinct = {content_digest(example.key): "z" for example in examples}
    assert (found.held_out > 0) == (len(distinct) > 1)
    for example in examples:
        digest = content_digest(example.key)
        distinct[digest] = min(distinct[digest], example.label)
    for label, size in Counter(distinct.values()).items():
        assert size < 2 or any(distinct[content_digest(example.key)] == label for example in train)


@given(st.dictionaries(st.text(max_size=2), st.integers(1, 3000), min_size=1, max_size=8))
def test_every_class_keeps_its_share_within_one(sizes: dict[str, int]) -> None:
    total = sum(sizes.values())
    count = validation_size(total)
    quotas = allocate(count, sizes)
    for label, size in sizes.items():
        assert abs(quotas[label] - count * size / total) <= 1
        assert 0 <= quotas[label] <= size - 1
    assert sum(quotas.values()) <= count
    assert min(sizes.values()) == 1 or sum(quotas.values()) == count


def test_a_rare_class_is_in_both_sides() -> None:
    sizes = {"common": 5000, "rare": 20, "single": 1}
    assert held_out(labeled(sizes)) == Counter({"common": 500, "rare": 2})


def test_one_of_two_examples_is_held_out_whatever_their_classes() -> None:
    assert held_out(labeled({"a": 1, "b": 1})).total() == 1
    assert held_out(labeled({"a": 1})).total() == 0


def test_more_data_move_few_examples() -> None:
    few, many = labeled({"a": 3000, "b": 3000}), labeled({"a": 3300, "b": 3300})
    before, after = make_validation_split(few), make_validation_split(many)
    moved = sum(before.holds_out(example) != after.holds_out(example) for example in few)
    assert moved < 60


def test_very_many_examples_are_sampled_by_content(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "MAX_TRACKED_DIGESTS", 300)
    monkeypatch.setattr(split, "MAX_VALIDATION", 40)
    examples = labeled({"a": 3000, "b": 1000})
    found = make_validation_split(examples)
    assert found == make_validation_split(examples[::-1])
    counts = Counter(example.label for example in found.validation(examples))
    assert counts.total() == 40 and 25 <= counts["a"] <= 35


def test_the_split_is_stable_across_releases() -> None:
    # A run that resumes reads the same data again: if this changes, raise SPLIT_VERSION.
    found = make_validation_split(labeled({"a": 7, "b": 8}))
    assert split.SPLIT_VERSION == 2
    assert found == Split(frozenset(content_digest(text) for text in EXPECTED))


EXPECTED = ("a 5", "b 1", "b 7")
