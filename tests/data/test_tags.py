"""Entities are found by the rules of conlleval, in every tag scheme."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softlook.data.tags import find_entities, split_tag

TAGS = st.lists(st.sampled_from(["O", *(f"{prefix}-{label}" for prefix in "BIESLU" for label in ("A", "B"))]))
CASES = {
    "O O": [],
    "B-A I-A O": [("A", 0, 2)],
    "B-A B-A": [("A", 0, 1), ("A", 1, 2)],
    "B-A I-B": [("A", 0, 1), ("B", 1, 2)],
    "O I-A I-A O": [("A", 1, 3)],  # IOB1, or a beginning that the model missed
    "I-A B-A I-A": [("A", 0, 1), ("A", 1, 3)],
    "B-A I-A E-A S-B O": [("A", 0, 3), ("B", 3, 4)],  # BIOES
    "B-A L-A U-B": [("A", 0, 2), ("B", 2, 3)],  # BILOU
    "E-A I-A": [("A", 0, 1), ("A", 1, 2)],
    "S-A I-A": [("A", 0, 1), ("A", 1, 2)],
    "DET NOUN NOUN O": [("DET", 0, 1), ("NOUN", 1, 2), ("NOUN", 2, 3)],  # parts of speech
    "B-A-B I-A-B": [("A-B", 0, 2)],
    "X-A X-A": [("X-A", 0, 1), ("X-A", 1, 2)],
    "B- O": [("B-", 0, 1)],
}


@pytest.mark.parametrize("tags", CASES)
def test_the_entities_of_each_scheme(tags: str) -> None:
    assert [tuple(entity) for entity in find_entities(tags.split())] == CASES[tags]


@given(TAGS)
def test_entities_cover_all_tokens_but_those_outside_without_overlap(tags: list[str]) -> None:
    covered = [index for _, start, end in find_entities(tags) for index in range(start, end)]
    assert covered == [index for index, tag in enumerate(tags) if tag != "O"]


@given(TAGS)
def test_all_tokens_of_an_entity_have_its_label(tags: list[str]) -> None:
    for label, start, end in find_entities(tags):
        assert {split_tag(tag)[1] for tag in tags[start:end]} == {label}


@given(TAGS)
def test_entities_written_as_bio_are_found_again(tags: list[str]) -> None:
    entities = find_entities(tags)
    written = ["O"] * len(tags)
    for label, start, end in entities:
        written[start:end] = [f"{'I' if index else 'B'}-{label}" for index in range(end - start)]
    assert find_entities(written) == entities
