"""Temperature, hidden keys and patches equal the same done by hand, nest, and leave the model as it was."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from softlook import masks
from softlook.base.errors import ConfigError, ShapeError
from softlook.blocks.kv_cache import KVCache
from softlook.lens import attention_maps, attention_temperature, mask_keys, patch, trace
from softlook.models import GPT, T5, Bert, BertConfig, GPTConfig, Llama, LlamaConfig, T5Config

SIZES: dict[str, Any] = {"vocab_size": 20, "dim": 32, "depth": 2, "heads": 4}
IDS = torch.randint(20, (2, 9), generator=torch.Generator().manual_seed(0))
OTHER = torch.randint(20, (2, 9), generator=torch.Generator().manual_seed(1))
LAYER = "blocks.0.attn"


def randomize(model: nn.Module) -> Any:
    """Weights large enough for maps that are not flat."""
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def gpt(**changes: Any) -> GPT:
    return randomize(GPT(GPTConfig(**SIZES, context=16, **changes)))


def llama(**changes: Any) -> Llama:
    return randomize(Llama(LlamaConfig(**SIZES, kv_heads=2, **changes)))


def bert() -> Bert:
    return randomize(Bert(BertConfig(**SIZES, context=16)))


MODELS: dict[str, Any] = {
    "GPT": gpt,
    "ALiBi": lambda: gpt(positions="alibi"),
    "softcap": lambda: llama(attention_logit_softcap=3.0),
    "BERT": bert,
}

# --- temperature -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.5, 3.0])
@pytest.mark.parametrize("name", MODELS)
def test_temperature_divides_the_log_weights_of_the_chosen_heads(name: str, temperature: float) -> None:
    model = MODELS[name]()
    plain = attention_maps(model, IDS)[LAYER]
    with attention_temperature(model, LAYER, [1, 2], temperature):
        changed = attention_maps(model, IDS)[LAYER]
    expected = plain.clone()
    expected[:, 1:3] = (plain[:, 1:3].log() / temperature).softmax(-1)
    torch.testing.assert_close(changed, expected, atol=1e-5, rtol=0)


@torch.no_grad()
def test_temperature_reaches_the_output_and_equals_a_scaled_query_projection() -> None:
    model = gpt()
    with attention_temperature(model, LAYER, 2, 2.0):
        output = model(IDS)
    attn: Any = model.get_submodule(LAYER)
    attn.to_query.weight[16:24] /= 2
    attn.to_query.bias[16:24] /= 2
    torch.testing.assert_close(output, model(IDS), atol=1e-5, rtol=0)


def test_temperatures_nest_by_multiplication() -> None:
    model = gpt()
    with attention_temperature(model, LAYER, [0, 1], 2.0), attention_temperature(model, LAYER, [1], 3.0):
        nested = attention_maps(model, IDS)[LAYER]
    for head, temperature in ((0, 2.0), (1, 6.0)):
        with attention_temperature(model, LAYER, head, temperature):
            torch.testing.assert_close(nested[:, head], attention_maps(model, IDS)[LAYER][:, head])


# --- hidden keys -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_hidden_keys_equal_a_mask_given_to_the_model(name: str) -> None:
    model = MODELS[name]()
    visible = torch.ones(1, 1, 1, 9, dtype=torch.bool)
    visible[..., [2, 8]] = False
    mask = masks.dense(visible) if name == "BERT" else masks.causal() & masks.dense(visible)
    expected = model(IDS, mask=mask)
    with mask_keys(model, [2, -1]):
        torch.testing.assert_close(model(IDS), expected, atol=1e-5, rtol=0)
    hidden = ~visible[0, 0].expand(2, -1)
    with mask_keys(model, hidden):
        torch.testing.assert_close(model(IDS), expected, atol=1e-5, rtol=0)
    with mask_keys(model, [2]), mask_keys(model, [8]):
        torch.testing.assert_close(model(IDS), expected, atol=1e-5, rtol=0)


@torch.no_grad()
def test_hidden_keys_add_to_the_padding_and_stay_hidden_with_a_cache() -> None:
    padding = torch.arange(9) < torch.tensor([[9], [6]])
    model = bert()
    with mask_keys(model, [1]):
        maps = attention_maps(model, IDS, padding_mask=padding)
    assert all(not weights[..., 1].any() and not weights[1, ..., 6:].any() for weights in maps.values())
    decoder, cache = gpt(), KVCache()
    with mask_keys(decoder, [1]):
        whole = decoder(IDS)
        parts = [decoder(part, cache=cache) for part in IDS.split([4, 5], 1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-5, rtol=0)


def test_only_the_named_layers_hide_keys() -> None:
    model = randomize(T5(T5Config(**SIZES, head_dim=8, hidden=64)))
    with mask_keys(model, [7], layers=["decoder.blocks.1.cross_attn"]):
        maps = attention_maps(model, IDS, IDS[:, :5])
    hidden = {path for path, weights in maps.items() if weights.shape[3] == 9 and not weights[..., 7].any()}
    assert hidden == {"decoder.blocks.1.cross_attn"}


# --- patches ---------------------------------------------------------------------------------------------------------


@torch.no_grad()
def recorded(model: nn.Module, ids: Tensor) -> Any:
    with trace(model, values=True) as source:
        model(ids)
    return source


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_patching_the_whole_first_residual_stream_is_running_the_other_input(name: str) -> None:
    model = MODELS[name]()
    with patch(model, recorded(model, OTHER), "blocks.0"):
        torch.testing.assert_close(model(IDS), model(OTHER))


@torch.no_grad()
def test_patching_the_residual_stream_equals_the_blocks_run_by_hand() -> None:
    model: Any = bert()
    source, own = recorded(model, OTHER), recorded(model, IDS)
    stream = own.residual["blocks.0"].clone()
    stream[:, [2, 5]] = source.residual["blocks.0"][:, [2, 5]]
    expected = model.head(model.blocks[1](stream))
    with patch(model, source, "blocks.0", positions=[2, 5]):
        torch.testing.assert_close(model(IDS), expected)


@torch.no_grad()
def test_patching_heads_equals_the_output_projection_by_hand() -> None:
    model: Any = gpt()
    source, own = recorded(model, OTHER), recorded(model, IDS)
    block, core_output = model.blocks[1], own["blocks.1.attn"].calls[0].output.clone()
    core_output[:, [1, 3], 4:6] = source["blocks.1.attn"].calls[0].output[:, [1, 3], 4:6]
    x = own.residual["blocks.0"] + block.attn.merge_heads(core_output)
    expected = model.lm_head(model.final_norm(x + block.ffn(block.ffn_norm(x))))
    with patch(model, source, "blocks.1.attn", positions=[4, -4], heads=[1, 3]):
        torch.testing.assert_close(model(IDS), expected, atol=1e-5, rtol=0)


@torch.no_grad()
def test_patches_nest_and_a_source_of_one_sequence_serves_a_batch() -> None:
    model = gpt()
    source = recorded(model, OTHER[:1])
    with patch(model, source, LAYER, heads=0), patch(model, source, LAYER, heads=[2]):
        nested = model(IDS)
    with patch(model, source, LAYER, heads=[0, 2]):
        torch.testing.assert_close(model(IDS), nested)
    assert not torch.allclose(nested, model(IDS))


# --- all -------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_the_model_is_unchanged_after_a_context_and_after_an_exception() -> None:
    model = gpt()
    source, plain = recorded(model, OTHER), model(IDS)
    contexts: list[Any] = [
        lambda: attention_temperature(model, LAYER, 0, 2.0),
        lambda: mask_keys(model, [0]),
        lambda: patch(model, source, LAYER),
        lambda: patch(model, source, "blocks.1"),
    ]
    for context in contexts:
        with context():
            assert not torch.allclose(model(IDS), plain)
        with pytest.raises(RuntimeError, match="stop"), context():
            raise RuntimeError("stop")
        assert torch.equal(model(IDS), plain)
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_wrong_arguments_are_errors() -> None:
    model = gpt()
    source = recorded(model, OTHER)
    with (
        pytest.raises(ConfigError, match="temperature must be positive, got 0"),
        attention_temperature(model, LAYER, 0, 0),
    ):
        pass
    with pytest.raises(ConfigError, match="has the heads 0 to 3, got 4"), attention_temperature(model, LAYER, 4, 2):
        model(IDS)
    with pytest.raises(ShapeError, match="position 9 is not among 9 keys"), mask_keys(model, [9]):
        model(IDS)
    with pytest.raises(ShapeError, match=r"booleans shaped \(2, 9\), got torch.int64"), mask_keys(model, IDS):
        model(IDS)
    with pytest.raises(ConfigError, match="no attention layer 'x'"), mask_keys(model, [0], layers=["x"]):
        pass
    with (
        pytest.raises(ConfigError, match="no activation 'x' in the source: expected one of blocks.0.attn, blocks.1"),
        patch(model, source, "x"),
    ):
        pass
    with (
        pytest.raises(ConfigError, match="heads belong to an attention layer, and blocks.0 is a block"),
        patch(model, source, "blocks.0", heads=1),
    ):
        pass
    with (
        pytest.raises(ShapeError, match=r"is \(2, 4, 5, 8\) here and \(2, 4, 9, 8\) in the source: align them"),
        patch(model, source, LAYER),
    ):
        model(IDS[:, :5])
    with (
        pytest.raises(ShapeError, match="position 9 is not among 9 positions"),
        patch(model, source, LAYER, positions=[9]),
    ):
        model(IDS)
    with torch.no_grad(), trace(model) as plain:
        model(IDS)
    with pytest.raises(ConfigError, match=r"record it with trace\(model, values=True\)"), patch(model, plain, LAYER):
        pass
