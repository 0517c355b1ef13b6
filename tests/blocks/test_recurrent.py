"""Recurrent encoders and decoders, compared with the papers' formulas in a plain loop."""

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


def test_a_bidirectional_encoder_reads_every_row_in_both_directions_without_padding() -> None:
    encoder, x = RecurrentEncoder(2, 3).double(), normal(3, 6, 2)
    encoded, last = encoder(x, LENGTHS)
    assert encoder.backward_gru is not None
    for row, length in enumerate(LENGTHS.tolist()):
        state = torch.zeros(3, dtype=torch.float64)
        for t in range(length):
            state = gru(encoder.forward_gru, x[row, t], state, "_l0")
            assert_close(encoded[row, t, :3], state)
        state = torch.zeros(3, dtype=torch.float64)
        for t in reversed(range(length)):
            state = gru(encoder.backward_gru, x[row, t], state, "_l0")
            assert_close(encoded[row, t, 3:], state)
        assert_close(last[row], state)


def test_the_encoder_matches_torch_on_packed_sequences() -> None:
    encoder, x = RecurrentEncoder(2, 3).double(), normal(3, 6, 2)
    assert encoder.backward_gru is not None
    torch_gru = nn.GRU(2, 3, batch_first=True, bidirectional=True, dtype=torch.float64)
    backward = {f"{name}_reverse": weight for name, weight in encoder.backward_gru.state_dict().items()}
    torch_gru.load_state_dict({**encoder.forward_gru.state_dict(), **backward})
    packed, finals = torch_gru(pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False))
    expected, _ = pad_packed_sequence(packed, batch_first=True)
    encoded, last = encoder(x, LENGTHS)
    padding_mask = torch.arange(6) < LENGTHS[:, None]
    assert_close(encoded[padding_mask], expected[padding_mask])
    assert_close(last, finals[1])


def test_the_final_state_of_a_unidirectional_encoder_is_that_of_the_last_token() -> None:
    encoder, x = RecurrentEncoder(2, 3, bidirectional=False).double(), normal(3, 6, 2)
    encoded, last = encoder(x, LENGTHS)
    assert encoded.shape == (3, 6, 3)
    for row, length in enumerate(LENGTHS.tolist()):
        assert torch.equal(last[row], encoded[row, length - 1])


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_gradients_flow_through_an_encoder_in_evaluation_mode(device: str) -> None:
    encoder, x = RecurrentEncoder(2, 3).to(device).eval(), torch.randn(3, 6, 2, device=device, requires_grad=True)
    encoded, _ = encoder(x, LENGTHS.to(device))
    encoded.sum().backward()
    assert x.grad is not None and x.grad.abs().max() > 0
    assert encoder.forward_gru.training and not encoder.training  # cuDNN has no backward pass in evaluation mode


def test_rows_are_reversed_within_their_length() -> None:
    x = normal(3, 6, 2)
    reversed_x = reverse_rows(x, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        assert torch.equal(reversed_x[row, :length], x[row, :length].flip(0))
        assert torch.equal(reversed_x[row, length:], x[row, length:])


def test_left_padding_raises_an_error() -> None:
    padding_mask = torch.tensor([[True, True, True], [False, True, True]])
    with pytest.raises(ShapeError, match="a recurrent encoder requires rows that are padded on the right only"):
        row_lengths(padding_mask, torch.zeros(2, 3, dtype=torch.long))


def test_an_empty_source_raises_an_error() -> None:
    padding_mask = torch.tensor([[True, True, True], [False, False, False]])
    with pytest.raises(ShapeError, match="row 1 of the source has no token"):
        row_lengths(padding_mask, torch.zeros(2, 3, dtype=torch.long))


def test_the_bahdanau_decoder_matches_the_paper() -> None:
    align = concat_alignment(4, 6, GlobalWindow())
    decoder, x = BahdanauDecoder(5, 4, align, encoder_dim=6, last_dim=3, readout=2).double(), normal(3, 3, 5)
    encoded = source(align)
    outputs, state_after = decoder(x, encoded, decoder.initial_state(encoded))
    query, key = align.get_parameter("to_query.weight"), align.get_parameter("to_key.weight")
    vector = align.get_parameter("core.score.vector")
    for row, length in enumerate(LENGTHS.tolist()):
        states = encoded.value[row, 0, :length]
        state = linear(decoder.to_initial, encoded.last[row]).tanh()
        for t in range(3):
            energies = torch.stack([vector @ (query @ state + key @ encoder_state).tanh() for encoder_state in states])
            context = energies.softmax(0) @ states
            state = gru(decoder.cell, torch.cat([x[row, t], context]), state)
            readout = linear(decoder.to_out, torch.cat([state, x[row, t], context]))
            assert_close(outputs[row, t], torch.stack([readout[:2].max(), readout[2:].max()]))
        assert_close(state_after.state[row], state)


@pytest.mark.parametrize("feeding", [False, True])
def test_the_luong_decoder_matches_the_paper(feeding: bool) -> None:
    align = general_alignment(4, 6, GlobalWindow())
    decoder = LuongDecoder(5, 4, align, encoder_dim=6, last_dim=3, readout=2, input_feeding=feeding).double()
    x, encoded = normal(3, 3, 5), source(align)
    outputs, state_after = decoder(x, encoded, decoder.initial_state(encoded))
    weight = align.get_parameter("to_query.weight")
    for row, length in enumerate(LENGTHS.tolist()):
        states = encoded.value[row, 0, :length]
        state = linear(decoder.to_initial, encoded.last[row]).tanh()
        attentional = torch.zeros(2, dtype=torch.float64)
        for t in range(3):
            state = gru(decoder.cell, torch.cat([x[row, t], attentional]) if feeding else x[row, t], state)
            context = (states @ weight @ state).softmax(0) @ states
            attentional = linear(decoder.to_out, torch.cat([context, state])).tanh()
            assert_close(outputs[row, t], attentional)
        assert_close(state_after.state[row], state)


@pytest.mark.parametrize(
    "window", [GlobalWindow(), LocalMonotonic(1), LocalPredictive(4, 1)], ids=lambda window: type(window).__name__
)
@pytest.mark.parametrize("kind", ["bahdanau", "luong", "luong with input feeding"])
def test_decoding_in_chunks_equals_decoding_at_once(kind: str, window: nn.Module) -> None:
    align, sizes = concat_alignment(4, 6, window), {"encoder_dim": 6, "last_dim": 3, "readout": 2}
    decoder = (
        BahdanauDecoder(5, 4, align, **sizes)
        if kind == "bahdanau"
        else LuongDecoder(5, 4, align, **sizes, input_feeding=kind != "luong")
    ).double()
    x, encoded = normal(3, 5, 5), source(align)
    expected, end = decoder(x, encoded, decoder.initial_state(encoded))
    state_after: DecoderState = decoder.initial_state(encoded)
    outputs = []
    for start, stop in ((0, 1), (1, 4), (4, 5)):
        part, state_after = decoder(x[:, start:stop], encoded, state_after)
        outputs.append(part)
    assert_close(torch.cat(outputs, 1), expected)
    assert_close(state_after.state, end.state)
    assert state_after.step == end.step == 5


def test_a_cache_starts_empty_and_encodes_the_source_once() -> None:
    cache, made = RecurrentCache(), []

    def make() -> EncodedSource:
        made.append(source(concat_alignment(4, 6, GlobalWindow()).double()))
        return made[-1]

    assert cache.length == 0
    cache.reorder(torch.tensor([0]))  # an empty cache has no rows to reorder
    assert cache.encoded(make) is cache.encoded(make)
    assert len(made) == 1
    cache.state = DecoderState(normal(1, 4), step=3)
    assert cache.length == 3
