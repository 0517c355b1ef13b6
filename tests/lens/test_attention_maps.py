"""Attention maps are the weights that the model computes, and recording them does not change its output."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from softlook.base.errors import ConfigError, ShapeError
from softlook.blocks import AttentionCore, SelfAttention
from softlook.lens import attention_maps, trace
from softlook.models import (
    GPT,
    T5,
    Bert,
    BertConfig,
    ConvolutionalLM,
    ConvolutionalLMConfig,
    Deberta,
    DebertaConfig,
    GPTConfig,
    Llama,
    LlamaConfig,
    ModernBert,
    ModernBertConfig,
    RNNSearch,
    RNNSearchConfig,
    T5Config,
    Transformer,
    TransformerConfig,
)
from softlook.ops.positions.rotary import rotary, rotary_angles

SIZES: dict[str, Any] = {"vocab_size": 20, "dim": 32, "depth": 2, "heads": 4}
IDS, TARGET = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 0]]), torch.tensor([[1, 7, 8, 2], [1, 8, 2, 8]])
PADDING = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
CAUSAL = torch.ones(6, 6).tril().bool()


def bert() -> Bert:
    return Bert(BertConfig(**SIZES, context=8)).eval()


def gpt() -> GPT:
    return GPT(GPTConfig(**SIZES, context=8)).eval()


def llama(**changes: Any) -> Llama:
    return Llama(LlamaConfig(**SIZES, context=8, kv_heads=2, **changes)).eval()


def t5() -> T5:
    return T5(T5Config(**SIZES, head_dim=8, hidden=64)).eval()


def transformer() -> Transformer:
    return Transformer(TransformerConfig(**SIZES)).eval()


def inputs_of(model: nn.Module, path: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """The positional arguments of a module in a forward pass."""
    seen: list[tuple[Any, ...]] = []
    hook = model.get_submodule(path).register_forward_pre_hook(lambda module, inputs: seen.append(inputs))
    with torch.no_grad():
        model(*args, **kwargs)
    hook.remove()
    return seen[0]


def softmax_of(query: Tensor, key: Tensor, scale: float, *, visible: Tensor | None = None, bias: Any = 0.0) -> Tensor:
    """The textbook formula."""
    scores = query @ key.transpose(-1, -2) * scale + bias
    return torch.softmax(scores if visible is None else scores.masked_fill(~visible, -math.inf), -1)


def split(attn: Any, projection: nn.Module, x: Tensor) -> Tensor:
    return projection(x).unflatten(-1, (-1, attn.head_dim)).transpose(1, 2)


@torch.no_grad()
def expected(model: nn.Module, path: str, x: Tensor, source: Tensor | None = None, **options: Any) -> Tensor:
    """Weights from the inputs of a layer: projections, scores, softmax."""
    attn: Any = model.get_submodule(path)
    query, key = split(attn, attn.to_query, x), split(attn, attn.to_key, x if source is None else source)
    return softmax_of(query, key, options.pop("scale", attn.head_dim**-0.5), **options)


def test_the_maps_of_bert_follow_from_its_projections_and_padding_mask() -> None:
    model = bert()
    maps = attention_maps(model, IDS, padding_mask=PADDING)
    assert list(maps) == ["blocks.0.attn", "blocks.1.attn"]
    for path, weights in maps.items():
        (x,) = inputs_of(model, path, IDS, padding_mask=PADDING)
        torch.testing.assert_close(weights, expected(model, path, x, visible=PADDING[:, None, None]))
        assert not weights[1, :, :, 4:].any()


def test_the_maps_of_gpt_are_causal() -> None:
    model = gpt()
    for path, weights in attention_maps(model, IDS).items():
        torch.testing.assert_close(weights, expected(model, path, *inputs_of(model, path, IDS), visible=CAUSAL))


def test_the_maps_of_llama_have_rotary_positions_grouped_keys_scale_and_softcap() -> None:
    model = llama(attention_scale=0.3, attention_logit_softcap=2.0)
    angles = rotary_angles(torch.arange(6), dim=8, theta=model.config.rope_theta)
    for path, weights in attention_maps(model, IDS).items():
        attn: Any = model.get_submodule(path)
        (x,) = inputs_of(model, path, IDS)
        with torch.no_grad():
            query, key = rotary(split(attn, attn.to_query, x), angles), rotary(split(attn, attn.to_key, x), angles)
            scores = 2.0 * (query @ key.repeat_interleave(2, 1).transpose(-1, -2) * 0.3 / 2.0).tanh()
            torch.testing.assert_close(weights, torch.softmax(scores.masked_fill(~CAUSAL, -math.inf), -1))


def t5_bias(table: Tensor, length: int, *, bidirectional: bool) -> Tensor:
    """Relative position bias of distances below 8, each of which has a bucket of its own."""
    distance = torch.arange(length) - torch.arange(length)[:, None]  # key - query
    bucket = distance.abs() + 16 * (distance > 0) if bidirectional else (-distance).clamp(min=0)
    return table[bucket].permute(2, 0, 1)


def test_the_maps_of_t5_have_its_relative_position_bias_and_no_scale() -> None:
    model = t5()
    tables = [stack.relative_bias.weight.detach() for stack in (model.encoder, model.decoder)]
    assert all(table.abs().max() > 0.01 for table in tables)
    options: dict[str, dict[str, Any]] = {
        "encoder.blocks.1.attn": {
            "visible": PADDING[:, None, None],
            "bias": t5_bias(tables[0], 6, bidirectional=True),
        },
        "decoder.blocks.1.attn": {"visible": CAUSAL[:4, :4], "bias": t5_bias(tables[1], 4, bidirectional=False)},
        "decoder.blocks.1.cross_attn": {"visible": PADDING[:, None, None]},
    }
    maps = attention_maps(model, IDS, TARGET, source_padding_mask=PADDING)
    assert options.keys() <= maps.keys()
    for path, option in options.items():
        x, *source = inputs_of(model, path, IDS, TARGET, source_padding_mask=PADDING)
        torch.testing.assert_close(maps[path], expected(model, path, x, *source, scale=1.0, **option))


def test_the_maps_of_a_transformer_are_of_the_encoder_the_decoder_and_the_cross_attention() -> None:
    model = transformer()
    maps = attention_maps(model, IDS, TARGET, source_padding_mask=PADDING)
    assert {path: weights.shape[2:] for path, weights in maps.items()} == {
        "encoder.blocks.0.attn": (6, 6),
        "encoder.blocks.1.attn": (6, 6),
        "decoder.blocks.0.attn": (4, 4),
        "decoder.blocks.0.cross_attn": (4, 6),
        "decoder.blocks.1.attn": (4, 4),
        "decoder.blocks.1.cross_attn": (4, 6),
    }
    for path, weights in maps.items():
        x, *source = inputs_of(model, path, IDS, TARGET, source_padding_mask=PADDING)
        is_causal = path.startswith("decoder") and not source
        visible = CAUSAL[:4, :4] if is_causal else PADDING[:, None, None]
        torch.testing.assert_close(weights, expected(model, path, x, *source, visible=visible))


OTHERS = {
    "bert": (bert, (IDS,)),
    "gpt": (gpt, (IDS,)),
    "llama": (llama, (IDS,)),
    "windowed": (lambda: llama(sliding_window=2, windowed_layers=(0,)), (IDS,)),
    "t5": (t5, (IDS, TARGET)),
    "transformer": (transformer, (IDS, TARGET)),
    "deberta": (lambda: Deberta(DebertaConfig(**SIZES, context=8)).eval(), (IDS,)),
    "modern_bert": (lambda: ModernBert(ModernBertConfig(**SIZES, context=8, hidden=64)).eval(), (IDS,)),
    "rnn": (
        lambda: RNNSearch(
            RNNSearchConfig(source_vocab_size=20, target_vocab_size=20, dim=16, hidden=16, readout=16)
        ).eval(),
        (IDS, TARGET),
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_recording_leaves_the_output_unchanged_and_removes_its_hooks(name: str) -> None:
    make, args = OTHERS[name]
    model: Any = make()
    with torch.no_grad():
        plain = model(*args)
        with trace(model) as recorded:
            traced = model(*args)
    assert torch.equal(plain, traced) and len(recorded)
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("name", OTHERS)
def test_weights_times_values_are_the_output_of_each_head(name: str) -> None:
    make, args = OTHERS[name]
    model: Any = make()
    calls: dict[str, list[tuple[Tensor, Tensor]]] = {}
    cores = {path: module for path, module in model.named_modules() if isinstance(module, AttentionCore)}
    for path, core in cores.items():
        kept = calls.setdefault(path.removesuffix(".core"), [])
        core.register_forward_hook(lambda core, args, output, kept=kept: kept.append((args[2], output)))
    for path, weights in attention_maps(model, *args).items():
        value, output = calls[path][0][0], torch.cat([output for _, output in calls[path]], 2)
        value = value.repeat_interleave(weights.shape[1] // value.shape[1], 1)
        torch.testing.assert_close(weights @ value, output)


def test_the_calls_of_a_recurrent_decoder_are_one_map() -> None:
    make, args = OTHERS["rnn"]
    assert {path: tuple(weights.shape) for path, weights in attention_maps(make(), *args).items()} == {
        "decoder.align": (2, 1, 4, 6)
    }


def test_a_sink_takes_weight_from_the_keys() -> None:
    layer = SelfAttention(16, heads=2, core=AttentionCore(sink=1.0))
    with trace(layer) as recorded:
        layer(torch.randn(1, 4, 16))
    assert bool((recorded["core"].weights().sum(-1) < 1).all())


def test_keyword_arguments_of_an_attention_function_are_recorded_too() -> None:
    core, visible = AttentionCore(), torch.ones(3, 3).tril().bool()
    query, key, value = torch.randn(3, 1, 2, 3, 4)
    with trace(nn.ModuleDict({"core": core})) as recorded:
        core(query, key, value=value, mask=visible)
    torch.testing.assert_close(recorded["core"].weights(), core.weights(query, key, visible))


def test_an_error_in_the_forward_pass_removes_the_hooks() -> None:
    model = gpt()
    with pytest.raises(ShapeError, match="token ids must be from 0 to 19"):
        attention_maps(model, torch.tensor([[99]]))
    assert not any(module._forward_hooks for module in model.modules())


def test_a_model_without_attention_is_an_error() -> None:
    model = ConvolutionalLM(ConvolutionalLMConfig(vocab_size=10))
    with pytest.raises(ConfigError, match="ConvolutionalLM has no attention layers"):
        attention_maps(model, IDS)
