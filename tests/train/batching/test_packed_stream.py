"""Packed documents: every token once per epoch, no attention across documents, and exact resuming."""

from itertools import islice
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.base.errors import TrainingError
from softlook.losses import IGNORE_INDEX
from softlook.models import GPT, GPTConfig
from softlook.train.batching.batches import Batches, DataCursor
from softlook.train.batching.collate import PackedBatch
from softlook.train.batching.packed_stream import EVALUATION_OVERLAP, PackedStream, TokenizedDocuments
from softlook.train.batching.token_store import TokenStore, write_store
from softlook.train.objectives import causal_lm
from tests.train.tiny import assert_same, assert_same_progress, run_training

documents = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=13), min_size=1, max_size=9)


def tokens(written: list[list[int]]) -> TokenizedDocuments:
    lengths = torch.tensor([0, *map(len, written[:-1])])
    return TokenizedDocuments(torch.tensor([id for document in written for id in document]), lengths.cumsum(0))


def token_triples(batches: list[PackedBatch]) -> list[tuple[int, int, int]]:
    """(document, id, label) of every position with a token."""
    return [
        (document, id, label)
        for rows in batches
        for position in zip(rows.document_ids.flatten(), rows.ids.flatten(), rows.labels.flatten(), strict=True)
        for document, id, label in [[int(number) for number in position]]
        if document >= 0
    ]


@given(documents, st.integers(1, 8), st.integers(1, 4), st.integers(0, 5))
def test_every_token_is_an_input_and_a_label_once_per_epoch(
    written: list[list[int]], context: int, count: int, epoch: int
) -> None:
    stream = PackedStream(tokens(written), context=context, batch_size=count, seed=7)
    number = len(stream.epoch(epoch))
    batches = [batch for _, batch in islice(stream.iter_from(DataCursor(epoch, 0)), number)]
    expected_triples = [
        (number, id, document[i + 1] if i + 1 < len(document) else IGNORE_INDEX)
        for number, document in enumerate(written)
        for i, id in enumerate(document)
    ]
    assert sorted(token_triples(batches)) == sorted(expected_triples)
    assert all(batch.ids.shape[1] == context and len(batch.ids) <= count for batch in batches)


@given(documents, st.integers(1, 20), st.integers(1, 4))
def test_every_token_is_a_label_once_in_order_and_rows_overlap(
    written: list[list[int]], context: int, count: int
) -> None:
    batches = list(PackedStream(tokens(written), context=context, batch_size=count, seed=7).iter_in_order())
    labels = [label for batch in batches for label in batch.labels.flatten().tolist() if label != IGNORE_INDEX]
    assert labels == [id for document in written for id in document[1:]]
    rows = torch.cat([batch.ids for batch in batches])
    overlap = context // EVALUATION_OVERLAP
    assert torch.equal(rows[1:, :overlap], rows[:-1, context - overlap :])


@given(documents, st.integers(1, 8))
def test_positions_count_from_the_start_of_a_document_or_row(written: list[list[int]], context: int) -> None:
    for rows in PackedStream(tokens(written), context=context, batch_size=2, seed=0).iter_in_order():
        for documents_T, positions_T in zip(rows.document_ids.tolist(), rows.positions.tolist(), strict=True):
            for i, document in enumerate(documents_T):
                first = documents_T.index(document)
                assert positions_T[i] == (0 if document < 0 else i - first)


def test_written_documents_are_read_back(tmp_path: Path) -> None:
    written = [[5, 6, 7], [], [65_535, 0], [9]]
    for vocab, width in ((65_536, 2), (65_537, 4)):
        folder = write_store(([document] for document in written if document), tmp_path / str(vocab), vocab_size=vocab)
        assert (folder / "ids.bin").stat().st_size == 6 * width
        loaded = TokenizedDocuments.from_store(TokenStore.open(folder))
        assert loaded.ids.long().tolist() == [5, 6, 7, 65_535, 0, 9]
        assert loaded.starts.tolist() == [0, 3, 5]


def test_a_damaged_token_file_raises(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"expected ids from 0 to 9, got 3 to 10"):
        write_store([[[3, 10]]], tmp_path / "a", vocab_size=10)
    with pytest.raises(TrainingError, match=r"got no examples"):
        write_store([[[]]], tmp_path / "a", vocab_size=10)
    assert not (tmp_path / "a").exists()
    folder = write_store([[[1, 2, 3]]], tmp_path / "a", vocab_size=10)
    (folder / "ids.bin").write_bytes(b"1234")
    with pytest.raises(
        TrainingError, match=r"ids.bin is not what was saved: it was truncated. Expected 6 bytes, got 4"
    ):
        TokenizedDocuments.from_store(TokenStore.open(folder))


def test_documents_in_one_row_do_not_attend_to_each_other() -> None:
    model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=2)).eval()
    packed = tokens([[1, 2, 3], [4, 5, 6, 7]]).pack([0], 7)
    unpacked = [tokens([document]).pack([0], len(document)) for document in ([1, 2, 3], [4, 5, 6, 7])]
    packed_loss, *unpacked_losses = (causal_lm()(model, rows) for rows in (packed, *unpacked))
    assert packed_loss.count == sum(int(loss.count) for loss in unpacked_losses) == 5
    torch.testing.assert_close(packed_loss.total, unpacked_losses[0].total + unpacked_losses[1].total)


def test_a_run_over_a_packed_stream_resumes_exactly(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    written = [torch.randint(0, 11, (3 + i,), generator=generator).tolist() for i in range(20)]
    folder = write_store(([document] for document in written), tmp_path / "tokens", vocab_size=11)
    documents = TokenizedDocuments.from_store(TokenStore.open(folder))
    stream = PackedStream(documents, context=12, batch_size=4, seed=1)
    assert isinstance(stream, Batches)
    expected, expected_progress = run_training(source=stream, max_steps=14)
    for stop in (4, len(stream.epoch(0)), 11):
        run_training(tmp_path / str(stop), source=stream, max_steps=14, stop_at=stop)
        resumed, progress = run_training(tmp_path / str(stop), source=stream, max_steps=14)
        assert_same(resumed, expected)
        assert_same_progress(progress, expected_progress)


def test_row_boundaries_and_order_change_per_epoch() -> None:
    stream = PackedStream(tokens([list(range(10)) * 5]), context=8, batch_size=1, seed=3)
    firsts = [
        [int(batch.ids[0, -1]) for _, batch in islice(stream.iter_from(DataCursor(epoch, 0)), 6)] for epoch in range(4)
    ]
    assert len({tuple(first) for first in firsts}) == 4
    assert len({stream.epoch(epoch).shift for epoch in range(4)}) > 1
