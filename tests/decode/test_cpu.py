"""Prepacked and int8 copies of models for decoding on a CPU."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from softlook.base.errors import ConfigError
from softlook.blocks import KVCache
from softlook.decode import CausalLMSession, Seq2SeqSession, beam_search
from softlook.decode.cpu import Int8Linear, PrepackedLinear, prepack_for_cpu, quantize_dynamic_int8
from tests.decode.test_beam_session import SOURCE, SOURCE_MASK, decoders, translators

TARGET = torch.tensor([[1, 4, 8], [1, 3, 3], [1, 6, 2]])


@pytest.mark.parametrize("name", ["post", "pre", "T5"])
@torch.no_grad()
def test_prepacked_translator_equals_the_model(name: str) -> None:
    model = translators()[name]
    copy = prepack_for_cpu(model)
    assert_close(
        copy(SOURCE, TARGET, source_padding_mask=SOURCE_MASK), model(SOURCE, TARGET, source_padding_mask=SOURCE_MASK)
    )


@pytest.mark.parametrize("name", ["GPT", "Llama", "windowed"])
@torch.no_grad()
def test_prepacked_decoder_equals_the_model_with_a_cache(name: str) -> None:
    model, cache = decoders()[name], KVCache()
    copy = prepack_for_cpu(model)
    steps = [copy(TARGET[:, t : t + 1], cache=cache) for t in range(3)]
    assert_close(torch.cat(steps, 1), model(TARGET))


@torch.no_grad()
def test_the_model_is_not_changed() -> None:
    model = translators()["post"]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    types = [type(part) for part in model.modules()]
    copy = quantize_dynamic_int8(model)
    assert [type(part) for part in model.modules()] == types
    for name, tensor in model.state_dict().items():
        assert tensor.equal(before[name])
    assert isinstance(copy.get_submodule("lm_head"), Int8Linear)
    assert not any(type(part) is nn.Linear for part in copy.modules())


@torch.no_grad()
@pytest.mark.parametrize("make", [prepack_for_cpu, quantize_dynamic_int8])
@pytest.mark.parametrize("name", ["post", "pre"])
def test_copy_shares_no_weights_with_the_model(name: str, make: Callable[[nn.Module], nn.Module]) -> None:
    model = translators()[name]
    copy = make(model)
    before = copy(SOURCE, TARGET)
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data.mul_(3.0)
        tensor.data.add_(0.5)
    assert copy(SOURCE, TARGET).equal(before)


@pytest.mark.parametrize("engine", ["fbgemm", "onednn"])
@torch.no_grad()
def test_int8_linear_error_is_bounded_by_the_quantization_step(engine: str) -> None:
    if engine not in torch.backends.quantized.supported_engines:
        pytest.skip(f"this build of torch has no {engine}")
    torch.manual_seed(0)
    before = torch.backends.quantized.engine
    weight, bias, x = torch.randn(96, 64), torch.randn(96), torch.randn(5, 64)
    got = Int8Linear(weight, bias, engine)(x)  # pyright: ignore[reportArgumentType]
    assert torch.backends.quantized.engine == before
    step = (x.max() - x.min().clamp(max=0)) / 127  # twice the step of 8 bits: some processors use only 7
    bound = (x.abs() @ (weight.abs().amax(1, keepdim=True) / 254).expand(-1, 64).T) + step * weight.abs().sum(1)
    assert ((got - (x @ weight.T + bias)).abs() <= bound).all()


@torch.no_grad()
def test_wide_int8_layer_is_consistent_across_batch_sizes() -> None:
    torch.manual_seed(0)
    layer = Int8Linear(torch.randn(8192, 16), None)
    x = torch.randn(1, 16).expand(80, -1)
    assert_close(layer(x.contiguous())[:1], layer(x[:1].contiguous()), atol=1e-3, rtol=1e-3)


@torch.no_grad()
def test_bfloat16_is_close() -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(32, 64), torch.randn(2, 3, 64)
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        with pytest.raises(ConfigError, match="does not support bfloat16"):
            PrepackedLinear(weight, None, "bfloat16")
        return
    assert_close(PrepackedLinear(weight, None, "bfloat16")(x), x @ weight.T, atol=0.3, rtol=0.05)


@torch.no_grad()
def test_int8_beam_search_equals_float32() -> None:
    model = decoders()["GPT"]
    exact = beam_search(CausalLMSession(model), [[3, 1], [4, 5]], eos_ids=2, max_new_tokens=6, num_beams=1)
    small = beam_search(
        CausalLMSession(quantize_dynamic_int8(model)), [[3, 1], [4, 5]], eos_ids=2, max_new_tokens=6, num_beams=1
    )
    assert [one[0].score for one in small] == pytest.approx([one[0].score for one in exact], abs=0.3)


def test_model_trains_after_its_copy_was_used() -> None:
    model = translators()["post"]
    beam_search(
        Seq2SeqSession(prepack_for_cpu(model), SOURCE, SOURCE_MASK), [[1]] * 3, eos_ids=2, max_new_tokens=4, num_beams=2
    )
    model.train()(SOURCE, TARGET, source_padding_mask=SOURCE_MASK).sum().backward()
    assert model.get_parameter("lm_head.weight").grad is not None


def test_large_batch_translations_equal_single_ones() -> None:
    model = prepack_for_cpu(translators()["pre"])
    source = torch.randint(3, 9, (20, 4), generator=torch.Generator().manual_seed(0))
    batched = beam_search(Seq2SeqSession(model, source), [[1]] * 20, eos_ids=2, max_new_tokens=6, num_beams=3)
    for row, found in zip(source, batched, strict=True):
        single = beam_search(Seq2SeqSession(model, row[None]), [[1]], eos_ids=2, max_new_tokens=6, num_beams=3)[0]
        assert [one.ids for one in found] == [one.ids for one in single]


def test_unsupported_models_raise_errors() -> None:
    with pytest.raises(ConfigError, match="expected float32 weights, got torch.float64"):
        prepack_for_cpu(nn.Linear(2, 2).double())
    with pytest.raises(ConfigError, match="expected a model on the CPU, got meta"):
        prepack_for_cpu(nn.Linear(2, 2, device="meta"))
    with pytest.raises(ConfigError, match="no int8 engine 'abacus'"):
        quantize_dynamic_int8(nn.Linear(2, 2), "abacus")  # pyright: ignore[reportArgumentType]
