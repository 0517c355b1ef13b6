"""Recurrent encoders and decoders, against the papers' formulas in a plain loop."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.testing import assert_close

from softlook.base.errors import ShapeError
from softlook.blocks import (
    BahdanauDecoder,
    EncodedSource,
    GlobalWindow,
    LocalMonotonic,
    LocalPredictive,
    LuongDecoder,
    RecurrentCache,
    RecurrentEncoder,
    concat_alignment,
    general_alignment,
)
from softlook.blocks.recurrent import DecoderState, make_source, reverse_rows, row_lengths

LENGTHS = torch.tensor([4, 6, 1])


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def gru(weights: nn.Module, x: Tensor, state: Tensor, suffix: str = "") -> Tensor:
    """One step of a gated recurrent unit for one vector, gate by gate."""
    get = weights.get_parameter
    reset_in, update_in, new_in = (get(f"weight_ih{suffix}") @ x + get(f"bias_ih{suffix}")).chunk(3)
    reset_old, update_old, new_old = (get(f"weight_hh{suffix}") @ state + get(f"bias_hh{suffix}")).chunk(3)
    reset, update = (reset_in + reset_old).sigmoid(), (update_in + update_old).sigmoid()
    return (1 - update) * (new_in + reset * new_old).tanh() + update * state


def linear(layer: nn.Module, x: Tensor) -> Tensor:
    return layer.get_parameter("weight") @ x + layer.get_parameter("bias")


def source(align: Any, lengths: Tensor = LENGTHS, width: int = 6, last: int = 3) -> EncodedSource:
    B, S = len(lengths), int(lengths.max())
    return make_source(normal(B, S, width), normal(B, last), lengths, align, padded=True)


def test_each_word_is_read_from_both_sides_and_no_filling_is_ever_read() -> None:
    encoder, x = RecurrentEncoder(2, 3).double(), normal(3, 6, 2)
    read, last = encoder(x, LENGTHS)
    assert encoder.backward_gru is not None
    for row, length in enumerate(LENGTHS.tolist()):
        state = torch.zeros(3, dtype=torch.float64)
        for t in range(length):
            state = gru(encoder.forward_gru, x[row, t], state, "_l0")
            assert_close(read[row, t, :3], state)
        state = torch.zeros(3, dtype=torch.float64)
        for t in reversed(range(length)):
            state = gru(encoder.backward_gru, x[row, t], state, "_l0")
            assert_close(read[row, t, 3:], state)
        assert_close(last[row], state)


def test_reading_is_that_of_torch_on_packed_rows() -> None:
    encoder, x = RecurrentEncoder(2, 3).double(), normal(3, 6, 2)
    assert encoder.backward_gru is not None
    theirs = nn.GRU(2, 3, batch_first=True, bidirectional=True, dtype=torch.float64)
    back = {f"{name}_reverse": weight for name, weight in encoder.backward_gru.state_dict().items()}
    theirs.load_state_dict({**encoder.forward_gru.state_dict(), **back})
    packed, finals = theirs(pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False))
    wanted, _ = pad_packed_sequence(packed, batch_first=True)
    read, last = encoder(x, LENGTHS)
    present = torch.arange(6) < LENGTHS[:, None]
    assert_close(read[present], wanted[present])
    assert_close(last, finals[1])


def test_reading_in_one_direction_ends_at_the_last_word() -> None:
    encoder, x = RecurrentEncoder(2, 3, bidirectional=False).double(), normal(3, 6, 2)
    read, last = encoder(x, LENGTHS)
    assert read.shape == (3, 6, 3)
    for row, length in enumerate(LENGTHS.tolist()):
        assert torch.equal(last[row], read[row, length - 1])


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_a_gradient_goes_back_through_a_model_that_only_answers(device: str) -> None:
    encoder, x = RecurrentEncoder(2, 3).to(device).eval(), torch.randn(3, 6, 2, device=device, requires_grad=True)
    read, _ = encoder(x, LENGTHS.to(device))
    read.sum().backward()
    assert x.grad is not None and x.grad.abs().max() > 0
    assert encoder.forward_gru.training and not encoder.training  # or cuDNN would refuse


def test_rows_are_turned_within_their_own_length() -> None:
    x = normal(3, 6, 2)
    turned = reverse_rows(x, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        assert torch.equal(turned[row, :length], x[row, :length].flip(0))
        assert torch.equal(turned[row, length:], x[row, length:])


def test_filling_anywhere_but_on_the_right_is_refused() -> None:
    present = torch.tensor([[True, True, True], [False, True, True]])
    with pytest.raises(ShapeError, match="a recurrent encoder requires rows that are padded on the right only"):
        row_lengths(present, torch.zeros(2, 3, dtype=torch.long))


def test_a_source_without_a_word_is_refused() -> None:
    present = torch.tensor([[True, True, True], [False, False, False]])
    with pytest.raises(ShapeError, match="row 1 of the source has no token"):
        row_lengths(present, torch.zeros(2, 3, dtype=torch.long))


def test_bahdanaus_decoder_is_the_published_one() -> None:
    align = concat_alignment(4, 6, GlobalWindow())
    decoder, x = BahdanauDecoder(5, 4, align, encoder_dim=6, last_dim=3, readout=2).double(), normal(3, 3, 5)
    read = source(align)
    said, carried = decoder(x, read, decoder.initial_state(read))
    query, key = align.get_parameter("to_query.weight"), align.get_parameter("to_key.weight")
    vector = align.get_parameter("core.score.vector")
    for row, length in enumerate(LENGTHS.tolist()):
        words = read.value[row, 0, :length]
        state = linear(decoder.to_initial, read.last[row]).tanh()
        for t in range(3):
            energies = torch.stack([vector @ (query @ state + key @ word).tanh() for word in words])
            context = energies.softmax(0) @ words
            state = gru(decoder.cell, torch.cat([x[row, t], context]), state)
            pieces = linear(decoder.to_out, torch.cat([state, x[row, t], context]))
            assert_close(said[row, t], torch.stack([pieces[:2].max(), pieces[2:].max()]))
        assert_close(carried.state[row], state)


@pytest.mark.parametrize("feeding", [False, True])
def test_luongs_decoder_is_the_published_one(feeding: bool) -> None:
    align = general_alignment(4, 6, GlobalWindow())
    decoder = LuongDecoder(5, 4, align, encoder_dim=6, last_dim=3, readout=2, input_feeding=feeding).double()
    x, read = normal(3, 3, 5), source(align)
    said, carried = decoder(x, read, decoder.initial_state(read))
    weight = align.get_parameter("to_query.weight")
    for row, length in enumerate(LENGTHS.tolist()):
        words = read.value[row, 0, :length]
        state = linear(decoder.to_initial, read.last[row]).tanh()
        attentional = torch.zeros(2, dtype=torch.float64)
        for t in range(3):
            state = gru(decoder.cell, torch.cat([x[row, t], attentional]) if feeding else x[row, t], state)
            context = (words @ weight @ state).softmax(0) @ words
            attentional = linear(decoder.to_out, torch.cat([context, state])).tanh()
            assert_close(said[row, t], attentional)
        assert_close(carried.state[row], state)


@pytest.mark.parametrize(
    "span", [GlobalWindow(), LocalMonotonic(1), LocalPredictive(4, 1)], ids=lambda span: type(span).__name__
)
@pytest.mark.parametrize("kind", ["bahdanau", "luong", "luong, feeding"])
def test_a_few_words_at_a_time_are_all_words_at_once(kind: str, span: nn.Module) -> None:
    align, sizes = concat_alignment(4, 6, span), {"encoder_dim": 6, "last_dim": 3, "readout": 2}
    decoder = (
        BahdanauDecoder(5, 4, align, **sizes)
        if kind == "bahdanau"
        else LuongDecoder(5, 4, align, **sizes, input_feeding=kind != "luong")
    ).double()
    x, read = normal(3, 5, 5), source(align)
    wanted, end = decoder(x, read, decoder.initial_state(read))
    carried: DecoderState = decoder.initial_state(read)
    said = []
    for start, stop in ((0, 1), (1, 4), (4, 5)):
        part, carried = decoder(x[:, start:stop], read, carried)
        said.append(part)
    assert_close(torch.cat(said, 1), wanted)
    assert_close(carried.state, end.state)
    assert carried.step == end.step == 5


def test_a_memory_starts_empty_and_reads_the_source_once() -> None:
    memory, made = RecurrentCache(), []

    def make() -> EncodedSource:
        made.append(source(concat_alignment(4, 6, GlobalWindow()).double()))
        return made[-1]

    assert memory.length == 0
    memory.reorder(torch.tensor([0]))  # there is nothing to choose from yet
    assert memory.encoded(make) is memory.encoded(make)
    assert len(made) == 1
    memory.state = DecoderState(normal(1, 4), step=3)
    assert memory.length == 3
