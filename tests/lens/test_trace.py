"""A trace gives the exact weights of any part of a map, and tracing does not change the model."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from softlook.base.errors import ConfigError, ShapeError
from softlook.blocks import AttentionCore
from softlook.blocks.kv_cache import KVCache
from softlook.lens import attention_maps, attention_rollout, trace
from softlook.models import GPT, T5, Bert, BertConfig, GPTConfig, Llama, LlamaConfig, T5Config
from softlook.ops.scores import cosine

SIZES: dict[str, Any] = {"vocab_size": 20, "dim": 32, "depth": 2, "heads": 4}
IDS = torch.randint(20, (2, 12), generator=torch.Generator().manual_seed(0))
PADDING = torch.arange(12) < torch.tensor([[12], [7]])
PARTS = [
    {},
    {"heads": slice(1, 2)},
    {"rows": slice(3, 7)},
    {"columns": slice(2, 5)},
    {"heads": slice(1, 3), "rows": slice(5, 6), "columns": slice(9, 12)},
    {"rows": slice(-2, None), "columns": slice(None, -4)},
    {"rows": slice(1, None, 4)},
    {"heads": slice(3, 4), "rows": slice(2, 11, 3), "columns": slice(1, None, 5)},
]


def gpt() -> GPT:
    return GPT(GPTConfig(**SIZES, context=16)).eval()


def llama(**changes: Any) -> Llama:
    return Llama(LlamaConfig(**SIZES, context=16, kv_heads=2, **changes)).eval()


def bert() -> Bert:
    return Bert(BertConfig(**SIZES, context=16)).eval()


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "causal": (gpt, {}),
    "grouped keys, softcap": (lambda: llama(attention_logit_softcap=2.0), {}),
    "window": (lambda: llama(sliding_window=3, windowed_layers=(0, 1)), {}),
    "padding": (bert, {"padding_mask": PADDING}),
}


def select(
    weights: Tensor, heads: slice = slice(None), rows: slice = slice(None), columns: slice = slice(None)
) -> Tensor:
    return weights[:, heads, rows, columns]


@pytest.mark.parametrize("part", PARTS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_a_part_of_a_map_is_that_part_of_the_dense_map(name: str, part: dict[str, slice]) -> None:
    make, inputs = CASES[name]
    model = make()
    dense: dict[str, Tensor] = {}
    for path, core in model.named_modules():
        if path.endswith(".core"):
            core.register_forward_hook(
                lambda core, args, output, path=path: dense.update({path[:-5]: core.weights(*args[:2], *args[3:])})
            )
    with torch.no_grad(), trace(model) as recorded:
        model(IDS, **inputs)
    assert list(recorded) == list(dense)
    for path, layer in recorded.items():
        torch.testing.assert_close(layer.weights(**part), select(dense[path], **part))


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_score_functions_biases_and_sinks_are_part_of_the_weights(part: dict[str, slice]) -> None:
    core = AttentionCore(sink=0.5, score=cosine(0.1))
    query, key, value = torch.randn(3, 2, 4, 12, 8)
    bias = torch.randn(1, 4, 12, 12)
    with trace(nn.ModuleDict({"core": core})) as recorded:
        core(query, key, value, None, bias)
    torch.testing.assert_close(recorded["core"].weights(**part), select(core.weights(query, key, None, bias), **part))


def test_fully_masked_queries_have_no_weights() -> None:
    core, visible = AttentionCore(), torch.ones(4, 4).tril(-1).bool()
    query, key, value = torch.randn(3, 1, 1, 4, 8)
    with trace(nn.ModuleDict({"core": core})) as recorded:
        core(query, key, value, visible)
    assert not recorded["core"].weights(rows=slice(1)).any()
    assert not recorded["core"].weights(rows=slice(2), columns=slice(2, 4)).any()


def test_the_calls_of_a_generation_with_a_cache_are_the_map_of_the_whole_text() -> None:
    model, ids = gpt(), IDS[:1]
    cache = KVCache()
    with torch.no_grad(), trace(model) as recorded:
        for part in ids.split([5, 1, 1, 3, 2], 1):
            model(part, cache=cache)
    for path, whole in attention_maps(model, ids).items():
        layer = recorded[path]
        assert len(layer.calls) == 5
        torch.testing.assert_close(layer.weights(), whole)
        part = {"rows": slice(4, 8), "columns": slice(3, 7)}
        torch.testing.assert_close(layer.weights(**part), select(whole, **part))
        assert layer.lse.shape == whole.shape[:3]


def test_statistics_are_those_of_the_dense_map() -> None:
    model = bert()
    with torch.no_grad(), trace(model) as recorded:
        model(IDS, padding_mask=PADDING)
    for layer in recorded.values():
        weights, look = layer.weights(), layer.look(stats=("entropy", "received"))
        torch.testing.assert_close(look.entropy, -torch.xlogy(weights, weights).sum(-1))
        torch.testing.assert_close(look.received, weights.sum(2))


def test_the_residual_stream_is_recorded_after_each_block() -> None:
    model = gpt()
    with torch.no_grad(), trace(model) as recorded:
        logits = model(IDS)
        assert list(recorded.residual) == ["blocks.0", "blocks.1"]
        torch.testing.assert_close(model.lm_head(model.final_norm(recorded.residual["blocks.1"])), logits)


def test_later_changes_of_the_model_do_not_change_a_trace() -> None:
    torch.manual_seed(0)
    model = T5(T5Config(**SIZES, head_dim=8, hidden=64)).eval()
    with torch.no_grad(), trace(model) as recorded:
        model(IDS, IDS)
    before = attention_maps(model, IDS, IDS)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    for path, weights in before.items():
        torch.testing.assert_close(recorded[path].weights(), weights)


def test_half_precision_halves_the_memory_and_keeps_the_weights_close() -> None:
    model = gpt()
    with torch.no_grad(), trace(model, dtype=torch.float16) as recorded:
        model(IDS)
    for path, weights in attention_maps(model, IDS).items():
        assert recorded[path].calls[0].query.dtype == torch.float16
        torch.testing.assert_close(recorded[path].weights().float(), weights, atol=2e-3, rtol=0)


def test_wrong_paths_rows_and_heads_are_errors() -> None:
    model = gpt()
    with trace(model) as empty:
        pass
    with pytest.raises(ConfigError, match="this layer was not called"):
        empty["blocks.0.attn"].weights()
    with torch.no_grad(), trace(model) as recorded:
        model(IDS)
    with pytest.raises(KeyError, match=r"no attention layer 'blocks.7': expected one of blocks.0.attn, blocks.1.attn"):
        recorded["blocks.7"]
    with pytest.raises(ShapeError, match="select no part of a map of 12 queries and 12 keys"):
        recorded["blocks.0.attn"].weights(rows=slice(12, 20))
    with pytest.raises(ShapeError, match="select no part of a map"):
        recorded["blocks.0.attn"].weights(rows=slice(8, 0, -2))
    with pytest.raises(ShapeError, match="heads must be consecutive"):
        recorded["blocks.0.attn"].weights(heads=slice(0, 4, 2))


# --- rollout ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [gpt, bert, llama])
def test_rollout_is_the_product_of_the_dense_maps(make: Any) -> None:
    model, ids = make(), IDS
    with torch.no_grad(), trace(model) as recorded:
        model(ids)
    product = torch.eye(12)
    for weights in attention_maps(model, ids).values():
        product = (0.3 * torch.eye(12) + 0.7 * weights.mean(1)) @ product
    torch.testing.assert_close(attention_rollout(recorded, residual=0.3), product, atol=1e-5, rtol=0)
    groups = torch.eye(3).repeat_interleave(4, 0)
    torch.testing.assert_close(attention_rollout(recorded, groups, residual=0.3), product @ groups, atol=1e-5, rtol=0)


def test_rollout_names_the_layer_that_does_not_fit() -> None:
    model = T5(T5Config(**SIZES, head_dim=8, hidden=64)).eval()
    with torch.no_grad(), trace(model) as recorded:
        model(IDS, IDS[:, :5])
    with pytest.raises(ShapeError, match="decoder.blocks.0.attn has 5 queries and 5 keys in 1 calls. Name the layers"):
        attention_rollout(recorded)
    layers = ["encoder.blocks.0.attn", "encoder.blocks.1.attn"]
    assert attention_rollout(recorded, layers=layers).shape == (2, 12, 12)


def test_values_and_head_outputs_are_recorded_on_request_and_agree_with_the_map() -> None:
    model = Llama(LlamaConfig(**SIZES, kv_heads=2)).eval()
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    with torch.no_grad(), trace(model, values=True) as recorded:
        logits = model(ids)
    assert recorded.logits is not None
    torch.testing.assert_close(recorded.logits, logits)
    call = recorded["blocks.1.attn"].calls[0]
    assert call.value is not None
    values = call.value.repeat_interleave(2, 1)
    torch.testing.assert_close(recorded["blocks.1.attn"].weights() @ values, call.output)
    with torch.no_grad(), trace(model) as plain:
        model(ids)
    assert plain["blocks.1.attn"].calls[0].value is None
