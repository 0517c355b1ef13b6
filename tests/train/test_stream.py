"""Documents from a file: every id once each time through, documents that do not meet, any place entered."""

from itertools import islice
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.base.errors import TrainingError
from softlook.losses import NOTHING
from softlook.models import GPT, GPTConfig
from softlook.train.batches import Batches, Place
from softlook.train.examples import Rows
from softlook.train.objectives import language
from softlook.train.stream import Stream, Tokens, write_tokens
from tests.train.tiny import assert_same, assert_same_place, trained

documents = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=13), min_size=1, max_size=9)


def tokens(written: list[list[int]]) -> Tokens:
    lengths = torch.tensor([0, *map(len, written[:-1])])
    return Tokens(torch.tensor([id for document in written for id in document]), lengths.cumsum(0))


def said(batches: list[Rows]) -> list[tuple[int, int, int]]:
    """(document, id, what follows) for every place with a token."""
    return [
        (document, id, wanted)
        for rows in batches
        for place in zip(rows.documents.flatten(), rows.ids.flatten(), rows.wanted.flatten(), strict=True)
        for document, id, wanted in [[int(number) for number in place]]
        if document >= 0
    ]


@given(documents, st.integers(1, 8), st.integers(1, 4), st.integers(0, 5))
def test_every_id_is_read_and_every_next_id_asked_for_once_in_each_epoch(
    written: list[list[int]], context: int, count: int, epoch: int
) -> None:
    stream = Stream(tokens(written), context=context, rows=count, seed=7)
    number = len(stream.epoch(epoch))
    batches = [batch for _, batch in islice(stream.start(Place(epoch, 0)), number)]
    wanted = [
        (number, id, document[i + 1] if i + 1 < len(document) else NOTHING)
        for number, document in enumerate(written)
        for i, id in enumerate(document)
    ]
    assert sorted(said(batches)) == sorted(wanted) == sorted(said(list(stream.in_order())))
    assert all(batch.ids.shape[1] == context and len(batch.ids) <= count for batch in batches)


@given(documents, st.integers(1, 8))
def test_positions_count_from_the_start_of_a_document_or_of_a_row(written: list[list[int]], context: int) -> None:
    for rows in Stream(tokens(written), context=context, rows=2, seed=0).in_order():
        for documents_T, positions_T in zip(rows.documents.tolist(), rows.positions.tolist(), strict=True):
            for i, document in enumerate(documents_T):
                first = documents_T.index(document)
                assert positions_T[i] == (0 if document < 0 else i - first)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    written = [[5, 6, 7], [], [65_535, 0], [9]]
    for vocab, width in ((65_536, 2), (65_537, 4)):
        folder = write_tokens(iter(written), tmp_path / str(vocab), vocab=vocab)
        assert (folder / "ids.bin").stat().st_size == 6 * width
        opened = Tokens.open(folder)
        assert opened.ids.long().tolist() == [5, 6, 7, 65_535, 0, 9]
        assert opened.starts.tolist() == [0, 3, 5]


def test_faults_in_a_token_file_are_told(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"ids go from 0 to 9; 3 to 10 came"):
        write_tokens([[3, 10]], tmp_path / "a", vocab=10)
    with pytest.raises(TrainingError, match=r"no examples came"):
        write_tokens([[]], tmp_path / "a", vocab=10)
    assert not (tmp_path / "a").exists()
    folder = write_tokens([[1, 2, 3]], tmp_path / "a", vocab=10)
    (folder / "ids.bin").write_bytes(b"1234")
    with pytest.raises(TrainingError, match=r"ids.bin is not what was written: it should have 6 bytes"):
        Tokens.open(folder)


def test_documents_in_one_row_do_not_meet() -> None:
    model = GPT(GPTConfig(vocab=10, context=8, dim=16, depth=2, heads=2)).eval()
    packed = tokens([[1, 2, 3], [4, 5, 6, 7]]).rows([0], 7)
    alone = [tokens([document]).rows([0], len(document)) for document in ([1, 2, 3], [4, 5, 6, 7])]
    together, *apart = (language()(model, rows) for rows in (packed, *alone))
    assert together.count == sum(int(loss.count) for loss in apart) == 5
    torch.testing.assert_close(together.total, apart[0].total + apart[1].total)


def test_a_run_over_a_stream_goes_on_exactly(tmp_path: Path) -> None:
    dice = torch.Generator().manual_seed(0)
    written = [torch.randint(0, 11, (3 + i,), generator=dice).tolist() for i in range(20)]
    stream = Stream(Tokens.open(write_tokens(written, tmp_path / "tokens", vocab=11)), context=12, rows=4, seed=1)
    assert isinstance(stream, Batches)
    whole, unbroken = trained(source=stream, steps=14)
    for stop in (4, len(stream.epoch(0)), 11):
        trained(tmp_path / str(stop), source=stream, steps=14, stop_at=stop)
        again, progress = trained(tmp_path / str(stop), source=stream, steps=14)
        assert_same(again, whole)
        assert_same_place(progress, unbroken)


def test_rows_are_cut_elsewhere_and_come_in_another_order_each_time() -> None:
    stream = Stream(tokens([list(range(10)) * 5]), context=8, rows=1, seed=3)
    firsts = [[int(batch.ids[0, -1]) for _, batch in islice(stream.start(Place(epoch, 0)), 6)] for epoch in range(4)]
    assert len({tuple(first) for first in firsts}) == 4
    assert len({stream.epoch(epoch).shift for epoch in range(4)}) > 1
