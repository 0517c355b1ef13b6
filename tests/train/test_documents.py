"""Documents in a store are the documents that were written, and so are the neighbours in them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.train.batches import chance
from softlook.train.documents import Documents, Neighbours
from softlook.train.masking import coupled, neighbours
from softlook.train.store import gathered

written = st.lists(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=1, max_size=4), min_size=1, max_size=8
)


def kept(lists: list[list[list[int]]]) -> Documents:
    marked = ((row, [] if number else [1]) for document in lists for number, row in enumerate(document))
    return Documents(gathered(marked, vocab=10, rows=2))


@given(written)
def test_documents_and_neighbours_are_those_of_lists(lists: list[list[list[int]]]) -> None:
    documents = kept(lists)
    assert [list(document) for document in documents] == lists
    places = Neighbours(documents)
    assert list(places) == neighbours(lists) == places[:]
    assert places.lengths().tolist() == [len(lists[i][j]) + len(lists[i][j + 1]) for i, j in places]
    with pytest.raises(IndexError):
        places[len(places)]


@given(written.filter(lambda lists: len(lists) > 1), st.integers(0, 99))
def test_couples_are_those_of_lists(lists: list[list[list[int]]], seed: int) -> None:
    documents, places = kept(lists), neighbours(lists)
    found = coupled(documents, places, chance(seed), others=range(len(documents)))
    assert found == coupled(lists, places, chance(seed))


def test_nothing_is_no_document() -> None:
    documents = kept([])
    assert (len(documents), len(Neighbours(documents))) == (0, 0)
    assert torch.equal(Neighbours(documents).lengths(), torch.empty(0, dtype=torch.int32))
