"""Copies of models for decoding on a CPU."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from softlook.base.errors import ConfigError
from softlook.blocks import Memory
from softlook.decode import Continuing, Translating, beam
from softlook.decode.int8 import Int8Linear, int8
from softlook.decode.packed import PackedLinear, packed
from tests.decode.test_branching import PRESENT, SOURCE, decoders, translators

TARGET = torch.tensor([[1, 4, 8], [1, 3, 3], [1, 6, 2]])


@pytest.mark.parametrize("name", ["post", "pre", "T5"])
@torch.no_grad()
def test_a_packed_translator_says_the_same(name: str) -> None:
    model = translators()[name]
    copy = packed(model)
    assert_close(copy(SOURCE, TARGET, source_present=PRESENT), model(SOURCE, TARGET, source_present=PRESENT))


@pytest.mark.parametrize("name", ["GPT", "Llama", "windowed"])
@torch.no_grad()
def test_a_packed_decoder_says_the_same_word_by_word(name: str) -> None:
    model, memory = decoders()[name], Memory()
    copy = packed(model)
    steps = [copy(TARGET[:, t : t + 1], memory=memory) for t in range(3)]
    assert_close(torch.cat(steps, 1), model(TARGET))


@torch.no_grad()
def test_the_model_stays_as_it_was() -> None:
    model = translators()["post"]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    kinds = [type(part) for part in model.modules()]
    copy = int8(model)
    assert [type(part) for part in model.modules()] == kinds
    for name, tensor in model.state_dict().items():
        assert tensor.equal(before[name])
    assert isinstance(copy.get_submodule("head"), Int8Linear)
    assert not any(type(part) is nn.Linear for part in copy.modules())


@torch.no_grad()
@pytest.mark.parametrize("make", [packed, int8])
@pytest.mark.parametrize("name", ["post", "pre"])
def test_a_copy_for_decoding_follows_the_model_in_no_part(name: str, make: Callable[[nn.Module], nn.Module]) -> None:
    model = translators()[name]
    copy = make(model)
    before = copy(SOURCE, TARGET)
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data.mul_(3.0)
        tensor.data.add_(0.5)
    assert copy(SOURCE, TARGET).equal(before)


@pytest.mark.parametrize("engine", ["fbgemm", "onednn"])
@torch.no_grad()
def test_a_layer_of_bytes_is_off_by_no_more_than_its_steps(engine: str) -> None:
    if engine not in torch.backends.quantized.supported_engines:
        pytest.skip(f"this build of torch has no {engine}")
    torch.manual_seed(0)
    before = torch.backends.quantized.engine
    weight, bias, x = torch.randn(96, 64), torch.randn(96), torch.randn(5, 64)
    got = Int8Linear(weight, bias, engine)(x)  # pyright: ignore[reportArgumentType]
    assert torch.backends.quantized.engine == before
    step = (x.max() - x.min().clamp(max=0)) / 127  # twice that of full bytes: some processors have one bit less
    most = (x.abs() @ (weight.abs().amax(1, keepdim=True) / 254).expand(-1, 64).T) + step * weight.abs().sum(1)
    assert ((got - (x @ weight.T + bias)).abs() <= most).all()


@torch.no_grad()
def test_a_wide_layer_says_the_same_for_few_rows_and_for_many() -> None:
    torch.manual_seed(0)
    layer = Int8Linear(torch.randn(8192, 16), None)
    x = torch.randn(1, 16).expand(80, -1)
    assert_close(layer(x.contiguous())[:1], layer(x[:1].contiguous()), atol=1e-3, rtol=1e-3)


@torch.no_grad()
def test_numbers_of_half_the_bits_come_near() -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(32, 64), torch.randn(2, 3, 64)
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        with pytest.raises(ConfigError, match="no instructions for bfloat16"):
            PackedLinear(weight, None, "bfloat16")
        return
    assert_close(PackedLinear(weight, None, "bfloat16")(x), x @ weight.T, atol=0.3, rtol=0.05)


@torch.no_grad()
def test_bytes_find_what_floats_find_where_nothing_is_close() -> None:
    model = decoders()["GPT"]
    exact = beam(Continuing(model), [[3, 1], [4, 5]], end=2, longest=6, beams=1)
    small = beam(Continuing(int8(model)), [[3, 1], [4, 5]], end=2, longest=6, beams=1)
    assert [one[0].score for one in small] == pytest.approx([one[0].score for one in exact], abs=0.3)


def test_a_model_learns_on_after_its_copy_has_searched() -> None:
    model = translators()["post"]
    beam(Translating(packed(model), SOURCE, PRESENT), [[1]] * 3, end=2, longest=4, beams=2)
    model.train()(SOURCE, TARGET, source_present=PRESENT).sum().backward()
    assert model.get_parameter("head.weight").grad is not None


def test_many_sentences_at_once_are_translated_as_each_alone() -> None:
    model = packed(translators()["pre"])
    source = torch.randint(3, 9, (20, 4), generator=torch.Generator().manual_seed(0))
    together = beam(Translating(model, source), [[1]] * 20, end=2, longest=6, beams=3)
    for row, found in zip(source, together, strict=True):
        alone = beam(Translating(model, row[None]), [[1]], end=2, longest=6, beams=3)[0]
        assert [one.ids for one in found] == [one.ids for one in alone]


def test_what_cannot_be_packed_is_refused() -> None:
    with pytest.raises(ConfigError, match="packed from float32; torch.float64 came"):
        packed(nn.Linear(2, 2).double())
    with pytest.raises(ConfigError, match="packed for the CPU; these lie on meta"):
        packed(nn.Linear(2, 2, device="meta"))
    with pytest.raises(ConfigError, match="no 'abacus' for weights of one byte"):
        int8(nn.Linear(2, 2), "abacus")  # pyright: ignore[reportArgumentType]
