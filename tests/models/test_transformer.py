"""The encoder-decoder Transformer, compared with torch's, and its invariants."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from softlook import masks
from softlook.base.errors import ConfigError, ShapeError
from softlook.blocks import KVCache
from softlook.models import Transformer, TransformerConfig
from softlook.weights import load, save

SOURCE = torch.tensor([[5, 3, 8, 1, 9, 2, 7], [4, 4, 0, 6, 1, 3, 2]])
TARGET = torch.tensor([[2, 6, 0, 3, 8], [2, 9, 9, 1, 4]])
PADDING_MASK = torch.arange(7) < torch.tensor([[7], [4]])


def small(**changes: Any) -> Transformer:
    fields = {"vocab_size": 11, "context": 16, "dim": 24, "depth": 2, "decoder_depth": 3, "heads": 4}
    model = Transformer(TransformerConfig(**{**fields, **changes})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre-norm": {"norm": "pre"},
    "BART": {
        "positions": "learned",
        "position_offset": 2,
        "embedding_norm": True,
        "head_bias": True,
        "scale_embeddings": False,
    },
    "two vocabularies": {"target_vocab_size": 13, "positions": "sinusoidal_half"},
    "untied": {"tie_embeddings": False, "activation": "gelu"},
}
each_variant = pytest.mark.parametrize("variant", VARIANTS)


def torch_transformer(actual: Transformer) -> nn.Transformer:
    """torch's Transformer with the weights of softlook's."""
    c, pre = actual.config, actual.config.norm == "pre"
    sizes: dict[str, Any] = {"dim_feedforward": 4 * c.dim, "dropout": 0.0, "batch_first": True, "norm_first": pre}

    def final_norm() -> nn.Module | None:
        return nn.LayerNorm(c.dim) if pre else None

    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(c.dim, c.heads, **sizes), 2, final_norm(), enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(c.dim, c.heads, **sizes), 3, final_norm())
    model = nn.Transformer(c.dim, c.heads, custom_encoder=encoder, custom_decoder=decoder, batch_first=True)
    model.load_state_dict(torch_state_dict(actual))
    return model


def torch_state_dict(actual: Transformer) -> dict[str, Tensor]:
    own, found = dict(actual.state_dict()), {}
    for stack, blocks in (("encoder", actual.encoder.blocks), ("decoder", actual.decoder.blocks)):
        attentions = [("attn", "self_attn")] + ([("cross_attn", "multihead_attn")] if stack == "decoder" else [])
        norms = ["attn_norm", *(["cross_attn_norm"] if stack == "decoder" else []), "ffn_norm"]
        for i in range(len(blocks)):
            block, layer = f"{stack}.blocks.{i}", f"{stack}.layers.{i}"
            for kind in ("weight", "bias"):
                for attn, torch_attn in attentions:
                    parts = [own[f"{block}.{attn}.{part}.{kind}"] for part in ("to_query", "to_key", "to_value")]
                    found[f"{layer}.{torch_attn}.in_proj_{kind}"] = torch.cat(parts)
                    found[f"{layer}.{torch_attn}.out_proj.{kind}"] = own[f"{block}.{attn}.to_out.{kind}"]
                for number, norm in enumerate(norms, 1):
                    found[f"{layer}.norm{number}.{kind}"] = own[f"{block}.{norm}.{kind}"]
                found[f"{layer}.linear1.{kind}"] = own[f"{block}.ffn.to_up.{kind}"]
                found[f"{layer}.linear2.{kind}"] = own[f"{block}.ffn.to_out.{kind}"]
        if actual.config.norm == "pre":
            found |= {f"{stack}.norm.{kind}": own[f"{stack}.final_norm.{kind}"] for kind in ("weight", "bias")}
    return found


def published_positions(length: int, dim: int) -> Tensor:
    """Vaswani et al., section 3.5, element by element."""
    table = torch.zeros(length, dim)
    for position in range(length):
        for i in range(dim // 2):
            angle = position / 10000 ** (2 * i / dim)
            table[position, 2 * i], table[position, 2 * i + 1] = math.sin(angle), math.cos(angle)
    return table


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_it_matches_torchs_transformer_between_a_tied_embedding_and_head(norm: str) -> None:
    actual = small(norm=norm)
    reference, table = torch_transformer(actual), actual.lm_head.weight
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    embedded = [table[ids] * math.sqrt(24) + published_positions(ids.shape[1], 24) for ids in (SOURCE, TARGET)]
    padding: dict[str, Any] = {"src_key_padding_mask": ~PADDING_MASK, "memory_key_padding_mask": ~PADDING_MASK}
    expected = reference(*embedded, tgt_mask=causal, **padding) @ table.T
    logits = actual(SOURCE, TARGET, source_padding_mask=PADDING_MASK)
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
    upstream = torch.randn_like(logits)
    (actual_grad,) = torch.autograd.grad(logits, table, upstream, retain_graph=True)
    (expected_grad,) = torch.autograd.grad(expected, table, upstream)
    torch.testing.assert_close(actual_grad, expected_grad, rtol=1e-3, atol=1e-3)


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
    alone = model(SOURCE[1:, :4], TARGET[1:])
    torch.testing.assert_close(logits[1:], alone, rtol=1e-4, atol=1e-5)


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


def test_keys_of_the_source_are_computed_once() -> None:
    model, cache, calls = small(), KVCache(), []
    block: Any = model.decoder.blocks[0]
    block.cross_attn.to_key.register_forward_hook(lambda *_: calls.append(1))
    encoded = model.encode(SOURCE)
    for t in range(3):
        model.decode(TARGET[:, t : t + 1], encoded, cache=cache)
    assert len(calls) == 1


@each_variant
def test_packed_sequences_do_not_attend_to_one_another(variant: str) -> None:
    model = small(**VARIANTS[variant])
    source, target = SOURCE.flatten()[None], TARGET.flatten()[None]
    source_ids, target_ids = (torch.arange(2).repeat_interleave(ids.shape[1]) for ids in (SOURCE, TARGET))
    encoded = model.encode(source, mask=masks.documents(source_ids), positions=torch.arange(7).repeat(2))
    logits = model.decode(
        target,
        encoded,
        source_mask=masks.documents(source_ids, target_ids),
        mask=masks.documents(target_ids),
        positions=torch.arange(5).repeat(2),
    )
    torch.testing.assert_close(logits.view(2, 5, -1), model(SOURCE, TARGET), rtol=1e-4, atol=1e-5)


def test_left_padded_targets_with_explicit_positions_give_the_same_logits() -> None:
    model = small()
    padded = torch.cat([torch.full((2, 2), 10), TARGET], 1)
    mask, positions = masks.padding([5, 5], side="left", length=7), (torch.arange(7) - 2).clamp(min=0)
    logits = model(SOURCE, padded, mask=mask, positions=positions)
    torch.testing.assert_close(logits[:, 2:], model(SOURCE, TARGET), rtol=1e-4, atol=1e-5)


def test_encoder_decoder_and_head_share_one_embedding() -> None:
    model = small()
    assert model.encoder.embedding.token_embedding is model.decoder.embedding.token_embedding
    assert model.lm_head.weight is model.encoder.embedding.token_embedding.weight
    separate = small(target_vocab_size=13)
    assert separate.lm_head.weight is separate.decoder.embedding.token_embedding.weight
    assert separate.lm_head.weight.shape == (13, 24) and separate.encoder.embedding.token_embedding.weight.shape == (
        11,
        24,
    )


@each_variant
def test_a_gradient_reaches_every_parameter(variant: str) -> None:
    model = small(**VARIANTS[variant])
    model(SOURCE, TARGET).square().sum().backward()
    empty = [name for name, weight in model.named_parameters() if weight.grad is None and weight.numel()]
    assert not empty


def test_a_class_label_changes_the_logits_of_its_row_only() -> None:
    model = small(num_class_labels=3)
    one, other = (model(SOURCE, TARGET, class_label=torch.tensor(label)) for label in ([0, 1], [2, 1]))
    assert not torch.allclose(one[0], other[0])
    torch.testing.assert_close(one[1], other[1])
    with pytest.raises(ShapeError, match=r"class labels must be from 0 to 2, got 0 to 3\."):
        model(SOURCE, TARGET, class_label=torch.tensor([3, 0]))
    with pytest.raises(ShapeError, match=r"this model has no class labels \(num_class_labels=0 in its config\): leave"):
        small()(SOURCE, TARGET, class_label=torch.tensor([0, 0]))


def test_initial_embeddings_have_unit_norm_and_biases_are_zero() -> None:
    model = Transformer(TransformerConfig(vocab_size=500, dim=64, depth=1, heads=4, head_bias=True))
    norms = model.lm_head.weight.norm(dim=1)
    assert 0.9 < norms.mean() < 1.1
    block: Any = model.encoder.blocks[0]
    assert block.attn.to_query.weight.abs().max() <= math.sqrt(6 / 128)
    assert not any(bias.any() for name, bias in model.named_parameters() if name.endswith("bias"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@each_variant
def test_other_dtypes_give_close_logits(variant: str, dtype: torch.dtype) -> None:
    model = small(**VARIANTS[variant])
    expected = model(SOURCE, TARGET)
    logits = model.to(dtype)(SOURCE, TARGET)
    assert logits.dtype == dtype
    tolerance = 0.2 if dtype == torch.bfloat16 else 1e-4
    assert (logits.float() - expected).abs().max() <= tolerance * expected.abs().max()


def test_learned_positions_are_limited_and_sinusoidal_positions_are_not() -> None:
    long = torch.zeros(1, 17, dtype=torch.long)
    assert small()(long, TARGET[:1]).shape == (1, 5, 11)
    with pytest.raises(
        ShapeError, match=r"positions must be from 0 to 15, got 0 to 16\. The sequence is longer than the"
    ):
        small(positions="learned")(long, TARGET[:1])


@pytest.mark.parametrize(
    ("field", "wrong", "message"),
    [
        ("norm", "sandwich", "norm must be pre or post, got 'sandwich'"),
        (
            "positions",
            "rotary",
            "positions must be sinusoidal, sinusoidal_half, sinusoidal_tensor2tensor or learned, got 'rotary'",
        ),
        ("heads", 5, "dim must be a multiple of heads, got dim=24 and heads=5"),
    ],
)
def test_invalid_config_values_raise_an_error(field: str, wrong: str | int, message: str) -> None:
    config = TransformerConfig(vocab_size=11, dim=24, depth=1, heads=4)
    object.__setattr__(config, field, wrong)  # bypasses the type checks of the test run
    with pytest.raises(ConfigError, match=message):
        Transformer(config)


@each_variant
def test_a_saved_model_is_loaded_unchanged(variant: str, tmp_path: Any) -> None:
    model = small(**VARIANTS[variant])
    again: Any = load(save(model, tmp_path / "saved"))
    assert again.config == model.config
    torch.testing.assert_close(again(SOURCE, TARGET), model(SOURCE, TARGET), rtol=0, atol=0)
