"""Documents in a store are the documents that were written, and so are the neighbours in them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.train.batching.masking import DocumentStore, SentencePairIndex, sample_sentence_pairs
from softlook.train.batching.token_store import store_in_memory
from softlook.train.rng import make_generator
from tests.train.tiny import sentence_pair_positions

written = st.lists(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=1, max_size=4), min_size=1, max_size=8
)


def kept(lists: list[list[list[int]]]) -> DocumentStore:
    marked = ((row, [] if number else [1]) for document in lists for number, row in enumerate(document))
    return DocumentStore(store_in_memory(marked, vocab_size=10, rows=2))


@given(written)
def test_document_store_matches_lists(lists: list[list[list[int]]]) -> None:
    documents = kept(lists)
    assert [list(document) for document in documents] == lists
    places = SentencePairIndex(documents)
    assert list(places) == sentence_pair_positions(lists) == places[:]
    assert places.lengths().tolist() == [len(lists[i][j]) + len(lists[i][j + 1]) for i, j in places]
    with pytest.raises(IndexError):
        places[len(places)]


@given(written.filter(lambda lists: len(lists) > 1), st.integers(0, 99))
def test_sampled_pairs_match_those_of_lists(lists: list[list[list[int]]], seed: int) -> None:
    documents, places = kept(lists), sentence_pair_positions(lists)
    found = sample_sentence_pairs(documents, places, make_generator(seed), candidates=range(len(documents)))
    assert found == sample_sentence_pairs(lists, places, make_generator(seed))


def test_an_empty_store_has_no_documents() -> None:
    documents = kept([])
    assert (len(documents), len(SentencePairIndex(documents))) == (0, 0)
    assert torch.equal(SentencePairIndex(documents).lengths(), torch.empty(0, dtype=torch.int32))
