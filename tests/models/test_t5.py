"""T5: relative bias, initialization and invariants."""

from typing import Any

import pytest
import torch

from softlook import explain, masks
from softlook.blocks import AttentionCore, KVCache
from softlook.models import T5, T5Config
from softlook.ops.bias import DenseBias
from softlook.ops.positions import relative_bias
from softlook.weights import load, save

SOURCE = torch.tensor([[5, 3, 8, 1, 9, 2, 7], [4, 4, 0, 6, 1, 3, 2]])
TARGET = torch.tensor([[2, 6, 0, 3, 8], [2, 9, 9, 1, 4]])
PADDING_MASK = torch.arange(7) < torch.tensor([[7], [4]])


def small(**changes: Any) -> T5:
    fields = {"vocab_size": 11, "dim": 24, "depth": 2, "decoder_depth": 3, "heads": 4, "head_dim": 5, "hidden": 40}
    relative = {"buckets": 8, "max_distance": 6}
    return T5(T5Config(**{**fields, **relative, **changes})).eval()


VARIANTS: dict[str, dict[str, Any]] = {
    "v1.0": {},
    "v1.1": {"activation": "gelu_tanh", "gated": True, "tie_embeddings": False, "scale_decoder_outputs": False},
}
each_variant = pytest.mark.parametrize("variant", VARIANTS)


@each_variant
def test_changing_the_future_does_not_change_the_past(variant: str) -> None:
    model = small(**VARIANTS[variant])
    other = TARGET.clone()
    other[:, 3:] = 7
    before, after = model(SOURCE, TARGET), model(SOURCE, other)
    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:])


@each_variant
def test_padding_does_not_change_logits(variant: str) -> None:
    model = small(**VARIANTS[variant])
    filled = SOURCE.masked_fill(~PADDING_MASK, 10)
    logits = model(SOURCE, TARGET, source_padding_mask=PADDING_MASK)
    torch.testing.assert_close(logits, model(filled, TARGET, source_padding_mask=PADDING_MASK))
    torch.testing.assert_close(logits[1:], model(SOURCE[1:, :4], TARGET[1:]), rtol=1e-4, atol=1e-5)


@each_variant
def test_left_padding_does_not_change_logits(variant: str) -> None:
    model = small(**VARIANTS[variant])
    padded = torch.cat([torch.full((2, 3), 10), SOURCE], 1)
    logits = model(padded, TARGET, source_padding_mask=torch.arange(10).expand(2, -1) >= 3)
    torch.testing.assert_close(logits, model(SOURCE, TARGET), rtol=1e-4, atol=1e-5)


@each_variant
def test_a_cache_does_not_change_logits(variant: str) -> None:
    model, cache = small(**VARIANTS[variant]), KVCache()
    encoded = model.encode(SOURCE, padding_mask=PADDING_MASK)
    steps = [
        model.decode(TARGET[:, t : t + 1], encoded, source_padding_mask=PADDING_MASK, cache=cache)
        for t in range(TARGET.shape[1])
    ]
    expected = model(SOURCE, TARGET, source_padding_mask=PADDING_MASK)
    torch.testing.assert_close(torch.cat(steps, 1), expected, rtol=1e-4, atol=1e-5)


@each_variant
def test_packed_sequences_do_not_attend_to_one_another(variant: str) -> None:
    model = small(**VARIANTS[variant])
    source, target = SOURCE.flatten()[None], TARGET.flatten()[None]
    source_ids, target_ids = (torch.arange(2).repeat_interleave(ids.shape[1]) for ids in (SOURCE, TARGET))
    encoded = model.encode(source, mask=masks.documents(source_ids))
    across, own = masks.documents(source_ids, target_ids), masks.documents(target_ids)
    logits = model.decode(target, encoded, source_mask=across, mask=own)
    torch.testing.assert_close(logits.view(2, 5, -1), model(SOURCE, TARGET), rtol=1e-4, atol=1e-5)


@each_variant
def test_a_gradient_reaches_every_parameter(variant: str) -> None:
    model = small(**VARIANTS[variant])
    model(SOURCE, TARGET).square().sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in model.parameters())


def test_only_the_relative_bias_depends_on_the_order() -> None:
    model = small()
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    assert not torch.allclose(model.encode(SOURCE)[:, order], model.encode(SOURCE[:, order]), atol=1e-4)
    with torch.no_grad():
        for stack in (model.encoder, model.decoder):
            stack.relative_bias.weight.zero_()
    torch.testing.assert_close(model.encode(SOURCE)[:, order], model.encode(SOURCE[:, order]))


def test_all_layers_of_a_stack_share_one_bias_and_cross_attention_has_none() -> None:
    model, seen = small(), []
    for core in (module for module in model.modules() if isinstance(module, AttentionCore)):
        core.register_forward_hook(lambda module, args, output: seen.append((args, module.scale)))
    model(SOURCE, TARGET)
    biases = [args[4] for args, _ in seen]
    assert biases[0] is biases[1] and isinstance(biases[0], DenseBias)
    assert biases[2] is biases[4] is biases[6] is not biases[0]
    assert biases[3] is biases[5] is biases[7] is None
    assert all(scale == 1.0 for _, scale in seen)
    query, key, value, mask, bias = seen[0][0]
    assert explain(query, key, value, mask=mask, bias=bias, scale=1.0).backend == "sdpa"


def test_a_bias_too_large_to_materialize_gives_the_same_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    expected = model(SOURCE, TARGET, source_padding_mask=PADDING_MASK)
    monkeypatch.setattr(relative_bias, "MAX_SHARED_ELEMENTS", 10)
    logits = model(SOURCE, TARGET, source_padding_mask=PADDING_MASK)
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)


def test_initialization_matches_the_original_implementation() -> None:
    sizes: dict[str, Any] = {"vocab_size": 200, "dim": 256, "depth": 1, "heads": 8, "head_dim": 64, "hidden": 600}
    model: Any = T5(T5Config(**sizes, tie_embeddings=False))
    block = model.encoder.blocks[0]
    expected = {
        block.attn.to_query: (256 * 64) ** -0.5,
        block.attn.to_key: 256**-0.5,
        block.attn.to_out: (8 * 64) ** -0.5,
        block.ffn.to_up: 256**-0.5,
        block.ffn.to_out: 600**-0.5,
        model.token_embedding: 1.0,
        model.lm_head: 1.0,
        model.encoder.relative_bias: 256**-0.5,
    }
    for module, std in expected.items():
        assert abs(module.weight.std().item() / std - 1) < 0.15


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@each_variant
def test_other_dtypes_give_close_logits(variant: str, dtype: torch.dtype) -> None:
    model = small(**VARIANTS[variant])
    expected = model(SOURCE, TARGET)
    logits = model.to(dtype)(SOURCE, TARGET)
    assert logits.dtype == dtype
    tolerance = 0.2 if dtype == torch.bfloat16 else 1e-4
    assert (logits.float() - expected).abs().max() <= tolerance * expected.abs().max()


@each_variant
def test_a_saved_model_is_loaded_unchanged(variant: str, tmp_path: Any) -> None:
    model = small(**VARIANTS[variant])
    again: Any = load(save(model, tmp_path / "saved"))
    assert again.config == model.config
    torch.testing.assert_close(again(SOURCE, TARGET), model(SOURCE, TARGET), rtol=0, atol=0)
