"""The Transformer: what it is made of, and what must hold of it."""

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
PRESENT = torch.arange(7) < torch.tensor([[7], [4]])


def small(**changes: Any) -> Transformer:
    fields = {"vocab_size": 11, "context": 16, "dim": 24, "depth": 2, "decoder_depth": 3, "heads": 4}
    model = Transformer(TransformerConfig(**{**fields, **changes})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


VARIANTS: dict[str, dict[str, Any]] = {
    "the paper's": {},
    "norms first": {"norm": "pre"},
    "BART's": {
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


def torch_transformer(ours: Transformer) -> nn.Transformer:
    """torch's own, with our weights copied into it."""
    c, first = ours.config, ours.config.norm == "pre"
    sizes: dict[str, Any] = {"dim_feedforward": 4 * c.dim, "dropout": 0.0, "batch_first": True, "norm_first": first}

    def closing() -> nn.Module | None:
        return nn.LayerNorm(c.dim) if first else None

    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(c.dim, c.heads, **sizes), 2, closing(), enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(c.dim, c.heads, **sizes), 3, closing())
    model = nn.Transformer(c.dim, c.heads, custom_encoder=encoder, custom_decoder=decoder, batch_first=True)
    model.load_state_dict(torch_names(ours))
    return model


def torch_names(ours: Transformer) -> dict[str, Tensor]:
    own, found = dict(ours.state_dict()), {}
    for stack, blocks in (("encoder", ours.encoder.blocks), ("decoder", ours.decoder.blocks)):
        looks = [("attn", "self_attn")] + ([("cross_attn", "multihead_attn")] if stack == "decoder" else [])
        norms = ["attn_norm", *(["cross_attn_norm"] if stack == "decoder" else []), "ffn_norm"]
        for i in range(len(blocks)):
            here, there = f"{stack}.blocks.{i}", f"{stack}.layers.{i}"
            for kind in ("weight", "bias"):
                for our_look, their_look in looks:
                    parts = [own[f"{here}.{our_look}.{part}.{kind}"] for part in ("to_query", "to_key", "to_value")]
                    found[f"{there}.{their_look}.in_proj_{kind}"] = torch.cat(parts)
                    found[f"{there}.{their_look}.out_proj.{kind}"] = own[f"{here}.{our_look}.to_out.{kind}"]
                for number, norm in enumerate(norms, 1):
                    found[f"{there}.norm{number}.{kind}"] = own[f"{here}.{norm}.{kind}"]
                found[f"{there}.linear1.{kind}"] = own[f"{here}.ffn.to_up.{kind}"]
                found[f"{there}.linear2.{kind}"] = own[f"{here}.ffn.to_out.{kind}"]
        if ours.config.norm == "pre":
            found |= {f"{stack}.norm.{kind}": own[f"{stack}.final_norm.{kind}"] for kind in ("weight", "bias")}
    return found


def published_positions(length: int, dim: int) -> Tensor:
    """Vaswani et al., section 3.5, word for word."""
    table = torch.zeros(length, dim)
    for place in range(length):
        for i in range(dim // 2):
            angle = place / 10000 ** (2 * i / dim)
            table[place, 2 * i], table[place, 2 * i + 1] = math.sin(angle), math.cos(angle)
    return table


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_it_is_torch_s_transformer_between_the_paper_s_embedding_and_its_transpose(norm: str) -> None:
    ours = small(norm=norm)
    theirs, table = torch_transformer(ours), ours.lm_head.weight
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    embedded = [table[ids] * math.sqrt(24) + published_positions(ids.shape[1], 24) for ids in (SOURCE, TARGET)]
    padding: dict[str, Any] = {"src_key_padding_mask": ~PRESENT, "memory_key_padding_mask": ~PRESENT}
    wanted = theirs(*embedded, tgt_mask=causal, **padding) @ table.T
    logits = ours(SOURCE, TARGET, source_padding_mask=PRESENT)
    torch.testing.assert_close(logits, wanted, rtol=1e-4, atol=1e-4)
    upstream = torch.randn_like(logits)
    (ours_table,) = torch.autograd.grad(logits, table, upstream, retain_graph=True)
    (theirs_table,) = torch.autograd.grad(wanted, table, upstream)
    torch.testing.assert_close(ours_table, theirs_table, rtol=1e-3, atol=1e-3)


@each_variant
def test_changing_the_future_does_not_change_the_past(variant: str) -> None:
    model = small(**VARIANTS[variant])
    other = TARGET.clone()
    other[:, 3:] = 7
    before, after = model(SOURCE, TARGET), model(SOURCE, other)
    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:])


@each_variant
def test_what_is_not_present_does_not_matter(variant: str) -> None:
    model = small(**VARIANTS[variant])
    filled = SOURCE.masked_fill(~PRESENT, 10)
    logits = model(SOURCE, TARGET, source_padding_mask=PRESENT)
    torch.testing.assert_close(logits, model(filled, TARGET, source_padding_mask=PRESENT))
    alone = model(SOURCE[1:, :4], TARGET[1:])
    torch.testing.assert_close(logits[1:], alone, rtol=1e-4, atol=1e-5)


@each_variant
def test_a_memory_changes_speed_and_not_answers(variant: str) -> None:
    model, memory = small(**VARIANTS[variant]), KVCache()
    encoded = model.encode(SOURCE, padding_mask=PRESENT)
    steps = [
        model.decode(TARGET[:, t : t + 1], encoded, source_padding_mask=PRESENT, cache=memory)
        for t in range(TARGET.shape[1])
    ]
    wanted = model(SOURCE, TARGET, source_padding_mask=PRESENT)
    torch.testing.assert_close(torch.cat(steps, 1), wanted, rtol=1e-4, atol=1e-5)


def test_the_source_is_turned_into_keys_once_for_each_sentence() -> None:
    model, memory, calls = small(), KVCache(), []
    block: Any = model.decoder.blocks[0]
    block.cross_attn.to_key.register_forward_hook(lambda *_: calls.append(1))
    encoded = model.encode(SOURCE)
    for t in range(3):
        model.decode(TARGET[:, t : t + 1], encoded, cache=memory)
    assert len(calls) == 1


@each_variant
def test_sentences_packed_into_one_row_do_not_see_one_another(variant: str) -> None:
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


def test_left_padded_targets_say_the_same_with_their_own_positions() -> None:
    model = small()
    padded = torch.cat([torch.full((2, 2), 10), TARGET], 1)
    mask, places = masks.padding([5, 5], side="left", length=7), (torch.arange(7) - 2).clamp(min=0)
    logits = model(SOURCE, padded, mask=mask, positions=places)
    torch.testing.assert_close(logits[:, 2:], model(SOURCE, TARGET), rtol=1e-4, atol=1e-5)


def test_one_table_is_read_by_both_sides_and_said_with() -> None:
    model = small()
    assert model.encoder.embedding.token_embedding is model.decoder.embedding.token_embedding
    assert model.lm_head.weight is model.encoder.embedding.token_embedding.weight
    apart = small(target_vocab_size=13)
    assert apart.lm_head.weight is apart.decoder.embedding.token_embedding.weight
    assert apart.lm_head.weight.shape == (13, 24) and apart.encoder.embedding.token_embedding.weight.shape == (11, 24)


@each_variant
def test_a_gradient_reaches_every_parameter(variant: str) -> None:
    model = small(**VARIANTS[variant])
    model(SOURCE, TARGET).square().sum().backward()
    empty = [name for name, weight in model.named_parameters() if weight.grad is None and weight.numel()]
    assert not empty


def test_a_label_changes_what_is_said_and_not_what_was_read() -> None:
    model = small(num_class_labels=3)
    one, other = (model(SOURCE, TARGET, class_label=torch.tensor(label)) for label in ([0, 1], [2, 1]))
    assert not torch.allclose(one[0], other[0])
    torch.testing.assert_close(one[1], other[1])
    with pytest.raises(ShapeError, match=r"class labels must be from 0 to 2, got 0 to 3\."):
        model(SOURCE, TARGET, class_label=torch.tensor([3, 0]))
    with pytest.raises(ShapeError, match=r"this model has no class labels \(num_class_labels=0 in its config\): leave"):
        small()(SOURCE, TARGET, class_label=torch.tensor([0, 0]))


def test_it_begins_with_vectors_of_length_one_and_no_biases() -> None:
    model = Transformer(TransformerConfig(vocab_size=500, dim=64, depth=1, heads=4, head_bias=True))
    lengths = model.lm_head.weight.norm(dim=1)
    assert 0.9 < lengths.mean() < 1.1
    block: Any = model.encoder.blocks[0]
    assert block.attn.to_query.weight.abs().max() <= math.sqrt(6 / 128)
    assert not any(bias.any() for name, bias in model.named_parameters() if name.endswith("bias"))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
@each_variant
def test_it_works_in_other_precisions(variant: str, kind: torch.dtype) -> None:
    model = small(**VARIANTS[variant])
    wanted = model(SOURCE, TARGET)
    logits = model.to(kind)(SOURCE, TARGET)
    assert logits.dtype == kind
    close = 0.2 if kind == torch.bfloat16 else 1e-4
    assert (logits.float() - wanted).abs().max() <= close * wanted.abs().max()


def test_learned_positions_end_and_sinusoidal_ones_do_not() -> None:
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
            "places",
            "rotary",
            "places wants one of sinusoidal, sinusoidal_half, sinusoidal_tensor2tensor, learned; 'rotary' came",
        ),
        ("heads", 5, "dim must be a multiple of heads, got dim=24 and heads=5"),
    ],
)
def test_what_the_config_cannot_mean_is_refused(field: str, wrong: str | int, message: str) -> None:
    config = TransformerConfig(vocab_size=11, dim=24, depth=1, heads=4)
    object.__setattr__(config, field, wrong)  # past the checks that are on while testing
    with pytest.raises(ConfigError, match=message):
        Transformer(config)


@each_variant
def test_it_is_kept_and_found_again(variant: str, tmp_path: Any) -> None:
    model = small(**VARIANTS[variant])
    again: Any = load(save(model, tmp_path / "kept"))
    assert again.config == model.config
    torch.testing.assert_close(again(SOURCE, TARGET), model(SOURCE, TARGET), rtol=0, atol=0)
