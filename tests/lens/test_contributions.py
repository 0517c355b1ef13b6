"""Contributions add up to the logit, and each is what the layer, the head or the source adds by hand."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.norms import RMSNorm, ZeroCenteredRMSNorm
from softlook.lens import logit_contributions, logit_lens, trace, value_weighted_attention
from softlook.lens.unembedding import find_unembedding, freeze_norm
from softlook.models import GPT, T5, Bert, BertConfig, GPTConfig, Llama, LlamaConfig, T5Config, ViT, ViTConfig
from softlook.models.transformer import Transformer, TransformerConfig

SIZES: dict[str, Any] = {"vocab_size": 20, "dim": 32, "depth": 2, "heads": 4}
IDS = torch.randint(20, (2, 9), generator=torch.Generator().manual_seed(0))


def randomize(model: nn.Module) -> nn.Module:
    """Weights far from their initial values, biases and norms included."""
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def gpt(**changes: Any) -> nn.Module:
    return randomize(GPT(GPTConfig(**SIZES, context=16, **changes)))


def llama(**changes: Any) -> nn.Module:
    return randomize(Llama(LlamaConfig(**SIZES, kv_heads=2, **changes)))


MODELS: dict[str, Any] = {
    "GPT": gpt,
    "ALiBi, parallel, projected": lambda: gpt(positions="alibi", parallel=True, embedding_dim=24),
    "Llama": llama,
    "Gemma 2": lambda: llama(sandwich_norm=True, zero_centered_norm=True, attention_logit_softcap=5.0),
    "untied": lambda: llama(tie_embeddings=False, qkv_bias=True),
}


@pytest.mark.parametrize("position", [-1, 4])
@pytest.mark.parametrize("name", MODELS)
def test_contributions_add_up_to_the_logit(name: str, position: int) -> None:
    model = MODELS[name]()
    parts = logit_contributions(model, IDS, token=7, position=position)
    with torch.no_grad():
        logits = model(IDS)[:, position]
    torch.testing.assert_close(parts.logit, logits[:, 7], atol=1e-4, rtol=0)
    torch.testing.assert_close(parts.total, logits[:, 7], atol=1e-4, rtol=0)
    difference = logit_contributions(model, IDS, token=torch.tensor([7, 3]), other=5, position=position)
    expected = logits[[0, 1], [7, 3]] - logits[:, 5]
    torch.testing.assert_close(difference.total, expected, atol=1e-4, rtol=0)


def test_contributions_of_a_half_precision_model_are_computed_in_single_precision() -> None:
    model = gpt().bfloat16()
    parts = logit_contributions(model, IDS, token=7, other=5)
    with torch.no_grad():
        logits = model(IDS)[:, -1].float()
    assert parts.total.dtype == parts.heads["blocks.0.attn"].dtype == torch.float32
    torch.testing.assert_close(parts.total, logits[:, 7] - logits[:, 5], atol=0.2, rtol=0.05)


def test_contributions_of_a_decoder_include_its_cross_attention() -> None:
    source, target = IDS, IDS[:, :5]
    t5 = randomize(T5(T5Config(**SIZES, head_dim=8, hidden=64)))
    marian = randomize(Transformer(TransformerConfig(**SIZES, context=16, norm="pre")))
    for model in (t5, marian):
        parts = logit_contributions(model, source, target, token=3)
        with torch.no_grad():
            torch.testing.assert_close(parts.total, model(source, target)[:, -1, 3], atol=1e-4, rtol=1e-5)
        assert parts.sources["decoder.blocks.1.cross_attn"].shape == (2, 4, 9)


@pytest.mark.parametrize("name", MODELS)
def test_sources_add_up_to_heads_and_heads_with_the_bias_to_layers(name: str) -> None:
    model = MODELS[name]()
    parts = logit_contributions(model, IDS, token=7)
    assert set(parts.layers) == {f"blocks.{layer}.{kind}" for layer in range(2) for kind in ("attn", "ffn")}
    for path, heads in parts.heads.items():
        torch.testing.assert_close(parts.sources[path].sum(-1), heads, atol=1e-4, rtol=0)
        rest = parts.layers[path] - heads.sum(-1)
        if model.get_submodule(path).to_out.bias is None:
            torch.testing.assert_close(rest, torch.zeros(2), atol=1e-4, rtol=0)
        else:
            assert rest.abs().min() > 1e-3


@torch.no_grad()
def test_the_contribution_of_a_head_is_its_part_of_the_output_projection_through_the_frozen_norm() -> None:
    model: Any = gpt()
    parts = logit_contributions(model, IDS, token=7)
    with trace(model, values=True) as recorded:
        model(IDS)
    call = recorded["blocks.0.attn"].calls[0]
    assert call.output is not None
    added = call.output[:, 2, -1] @ model.blocks[0].attn.to_out.weight[:, 16:24].T
    last = recorded.residual["blocks.1"][:, -1]
    deviation = (last.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    normed = (added - added.mean(-1, keepdim=True)) / deviation * model.final_norm.weight
    torch.testing.assert_close(parts.heads["blocks.0.attn"][:, 2], normed @ model.lm_head.weight[7])


def test_printing_lists_every_part() -> None:
    lines = str(logit_contributions(gpt(), IDS, token=7)).splitlines()
    names = ["embedding", "blocks.0.attn", "blocks.0.ffn", "blocks.1.attn", "blocks.1.ffn", "bias", "total"]
    assert [line.split()[0] for line in lines] == names


def test_post_norm_models_other_heads_and_training_mode_are_errors() -> None:
    with pytest.raises(ConfigError, match="expected pre-norm blocks, got PostNormBlock"):
        logit_contributions(gpt(norm="post"), IDS, token=7)
    with pytest.raises(ConfigError, match="expected pre-norm blocks, got PostNormBlock"):
        logit_contributions(Bert(BertConfig(**SIZES)).eval(), IDS, token=7)
    with pytest.raises(ConfigError, match=r"call model.eval\(\) first"):
        logit_contributions(gpt().train(), IDS, token=7)
    classifier = ViT(ViTConfig(image_size=(8, 8), patch_size=4, dim=16, depth=1, heads=2, classes=5)).eval()
    with pytest.raises(ConfigError, match="one linear layer to the vocabulary, got ClassificationHead"):
        logit_contributions(classifier, torch.randn(1, 3, 8, 8), token=2)
    with pytest.raises(ConfigError, match="has no list of blocks"):
        logit_contributions(nn.Linear(2, 2), torch.randn(1, 2), token=0)


@pytest.mark.parametrize("norm", [nn.LayerNorm(6), nn.LayerNorm(6, bias=False), RMSNorm(6), ZeroCenteredRMSNorm(6)])
@torch.no_grad()
def test_a_frozen_norm_is_the_norm_at_its_input_and_linear_around_it(norm: nn.Module) -> None:
    randomize(norm)
    x, direction, part = torch.randn(3, 2, 6)
    frozen = freeze_norm(norm, x)
    value = (frozen.pull_back(direction) * x).sum(-1) + frozen.offset(direction)
    torch.testing.assert_close(value, (direction * norm(x)).sum(-1))
    halves = [(frozen.pull_back(direction) * half).sum(-1) for half in (part, x - part)]
    torch.testing.assert_close(halves[0] + halves[1] + frozen.offset(direction), value)


# --- norm-based attention and logit lens -----------------------------------------------------------------------------


@pytest.mark.parametrize("make", [gpt, llama])
@torch.no_grad()
def test_value_weighted_attention_is_the_norm_of_what_each_key_adds(make: Any) -> None:
    model = make()
    with trace(model, values=True) as recorded:
        model(IDS)
    weights = recorded["blocks.1.attn"].weights()
    value = recorded["blocks.1.attn"].calls[0].value
    assert value is not None
    value = value.repeat_interleave(4 // value.shape[1], 1)
    columns = model.get_submodule("blocks.1.attn").to_out.weight.view(32, 4, 8)
    added = torch.einsum("bhts,bhse,che->bhtsc", weights, value, columns)
    torch.testing.assert_close(value_weighted_attention(model, recorded, "blocks.1.attn"), added.norm(dim=-1))
    part = value_weighted_attention(
        model, recorded, "blocks.1.attn", heads=slice(1, 3), rows=slice(2, 5), columns=slice(0, 4)
    )
    torch.testing.assert_close(part, added.norm(dim=-1)[:, 1:3, 2:5, :4])


def test_traces_without_values_are_errors() -> None:
    model = gpt()
    with torch.no_grad(), trace(model) as recorded:
        model(IDS)
    with pytest.raises(ConfigError, match=r"record it with trace\(model, values=True\)"):
        value_weighted_attention(model, recorded, "blocks.1.attn")
    with pytest.raises(ConfigError, match="expected multi-head attention at blocks.1, got PreNormBlock"):
        value_weighted_attention(model, recorded, "blocks.1")


def logits_by_hand(model: Any, stream: Tensor) -> Tensor:
    return model.lm_head(model.project_out(model.final_norm(stream)))


@torch.no_grad()
def test_the_logit_lens_applies_norm_and_head_to_every_block() -> None:
    model = gpt(embedding_dim=24)
    with trace(model) as recorded:
        logits = model(IDS)
    lens = logit_lens(model, recorded)
    torch.testing.assert_close(lens["blocks.0"], logits_by_hand(model, recorded.residual["blocks.0"]))
    torch.testing.assert_close(lens["blocks.1"], logits)
    assert logit_lens(model, recorded, positions=slice(-1, None))["blocks.0"].shape == (2, 1, 20)


@pytest.mark.parametrize("name", ["Llama", "BERT", "T5", "ViT"])
@torch.no_grad()
def test_the_logit_lens_ends_with_the_logits_of_the_model(name: str) -> None:
    image = ViTConfig(image_size=(8, 8), patch_size=4, dim=16, depth=2, heads=2, classes=5)
    models: dict[str, tuple[nn.Module, tuple[Tensor, ...]]] = {
        "Llama": (llama(), (IDS,)),
        "BERT": (randomize(Bert(BertConfig(**SIZES))), (IDS,)),
        "T5": (randomize(T5(T5Config(**SIZES, head_dim=8, hidden=64))), (IDS, IDS)),
        "ViT": (randomize(ViT(image)), (torch.randn(2, 3, 8, 8),)),
    }
    model, inputs = models[name]
    with trace(model) as recorded:
        output = model(*inputs)
    lens = list(logit_lens(model, recorded).values())
    assert len(lens) == 2
    torch.testing.assert_close(lens[-1], output)


def test_models_without_blocks_or_traces_of_others_are_errors() -> None:
    model = gpt()
    with trace(model) as empty:
        pass
    with pytest.raises(ConfigError, match="the trace has no residual stream of this model's blocks"):
        logit_lens(model, empty)
    with pytest.raises(ConfigError, match="Sequential has no list of blocks"):
        find_unembedding(nn.Sequential())
