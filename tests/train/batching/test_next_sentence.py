"""A document store returns the documents that were written, and the sentence pairs in them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.train.batching.masking import DocumentStore, SentencePairIndex, sample_sentence_pairs
from softlook.train.batching.token_store import store_in_memory
from softlook.train.rng import make_generator
from tests.train.tiny import sentence_pair_positions

corpora = st.lists(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=1, max_size=4), min_size=1, max_size=8
)


def make_store(lists: list[list[list[int]]]) -> DocumentStore:
    rows = ((row, [] if number else [1]) for document in lists for number, row in enumerate(document))
    return DocumentStore(store_in_memory(rows, vocab_size=10, rows=2))


@given(corpora)
def test_document_store_matches_lists(lists: list[list[list[int]]]) -> None:
    documents = make_store(lists)
    assert [list(document) for document in documents] == lists
    positions = SentencePairIndex(documents)
    assert list(positions) == sentence_pair_positions(lists) == positions[:]
    assert positions.lengths().tolist() == [len(lists[i][j]) + len(lists[i][j + 1]) for i, j in positions]
    with pytest.raises(IndexError):
        positions[len(positions)]


@given(corpora.filter(lambda lists: len(lists) > 1), st.integers(0, 99))
def test_sampled_pairs_match_those_of_lists(lists: list[list[list[int]]], seed: int) -> None:
    documents, positions = make_store(lists), sentence_pair_positions(lists)
    found = sample_sentence_pairs(documents, positions, make_generator(seed), candidates=range(len(documents)))
    assert found == sample_sentence_pairs(lists, positions, make_generator(seed))


def test_an_empty_store_has_no_documents() -> None:
    documents = make_store([])
    assert (len(documents), len(SentencePairIndex(documents))) == (0, 0)
    assert torch.equal(SentencePairIndex(documents).lengths(), torch.empty(0, dtype=torch.int32))
