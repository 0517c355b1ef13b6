"""Transformer-XL of Hugging Face's, as `record_transformer_xl.py` recorded it; their present release has none."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from softlook import masks
from softlook.blocks import SegmentCache
from softlook.models import TransformerXL, TransformerXLConfig
from softlook.weights.tensor_map import Concat, Rename, TensorRule, load_mapped, rename_layer
from tests.parity.comparison import close, maps, states

FILE = Path(__file__).with_name("transformer_xl.safetensors")
with safe_open(FILE, framework="pt") as load_pipeline:
    SETTINGS: dict[str, dict[str, Any]] = {
        name: json.loads(text) for name, text in sorted(load_pipeline.metadata().items())
    }
    RECORDED: dict[str, Tensor] = {name: load_pipeline.get_tensor(name) for name in load_pipeline.keys()}  # noqa: SIM118
SEGMENTS = RECORDED["ids"].split((5, 4), dim=1)


def part(variant: str, of: str) -> dict[str, Tensor]:
    """What was recorded under a name, without it."""
    start = f"{variant}/{of}/"
    return {name.removeprefix(start): tensor for name, tensor in RECORDED.items() if name.startswith(start)}


def rules(variant: str) -> list[TensorRule]:
    """Their names for our tensors."""
    settings = SETTINGS[variant]
    found: list[TensorRule] = [
        Rename("token_embedding.weight", "transformer.word_emb.emb_layers.0.weight"),
        Rename("head.bias", "crit.out_layers.0.bias"),
    ]
    if not settings["tie_word_embeddings"]:
        found.append(Rename("lm_head.weight", "crit.out_layers.0.weight"))
    for number in range(settings["n_layer"]):
        actual, reference = f"blocks.{number}", f"transformer.layers.{number}"
        found += [
            Concat(
                tuple(f"{actual}.attn.{name}.weight" for name in ("to_query", "to_key", "to_value")),
                f"{reference}.dec_attn.qkv_net.weight",
            ),
            *rename_layer(f"{actual}.attn.to_relative", f"{reference}.dec_attn.r_net", "weight"),
            *rename_layer(f"{actual}.attn.to_out", f"{reference}.dec_attn.o_net", "weight"),
            *rename_layer(f"{actual}.attn_norm", f"{reference}.dec_attn.layer_norm"),
            *rename_layer(f"{actual}.ffn.to_up", f"{reference}.pos_ff.CoreNet.0"),
            *rename_layer(f"{actual}.ffn.to_out", f"{reference}.pos_ff.CoreNet.3"),
            *rename_layer(f"{actual}.ffn_norm", f"{reference}.pos_ff.layer_norm"),
        ]
        if settings["untie_r"] or number == 0:
            home = f"{reference}.dec_attn" if settings["untie_r"] else "transformer"
            found += [
                Rename(f"{actual}.attn.content_bias", f"{home}.r_w_bias"),
                Rename(f"{actual}.attn.position_bias", f"{home}.r_r_bias"),
            ]
    return found


def actual(variant: str) -> TransformerXL:
    """Our model with their weights."""
    reference = SETTINGS[variant]
    config = TransformerXLConfig(
        vocab_size=reference["vocab_size"],
        dim=reference["d_model"],
        depth=reference["n_layer"],
        heads=reference["n_head"],
        head_dim=reference["d_head"],
        hidden=reference["d_inner"],
        max_distance=reference["clamp_len"] if reference["clamp_len"] > 0 else None,
        share_biases=not reference["untie_r"],
        pre_norm=reference["pre_lnorm"],
        tie_embeddings=reference["tie_word_embeddings"],
    )
    model = TransformerXL(config).eval()
    load_mapped(model, part(variant, "weights"), rules(variant), (), FILE)
    return model


def zeros(variant: str) -> SegmentCache:
    """What Hugging Face starts from: states of zeros, which are looked at like any other."""
    reference = SETTINGS[variant]
    nothing = torch.zeros(2, reference["mem_len"], reference["d_model"])
    return SegmentCache(reference["mem_len"], [nothing] * reference["n_layer"])


def mask(variant: str) -> masks.Mask | None:
    """Their `same_length`: each query sees as many keys, itself included, as the memory is long."""
    reference = SETTINGS[variant]
    return masks.window(reference["mem_len"] - 1) if reference["same_length"] else None


@pytest.mark.parametrize("variant", SETTINGS)
def test_two_segments_are_those_of_hugging_face(variant: str) -> None:
    model, memory = actual(variant), zeros(variant)
    for number, ids in enumerate(SEGMENTS):
        with maps(model) as our_maps, states(model.blocks) as our_states, torch.no_grad():
            logits = model(ids, mask=mask(variant), cache=memory)
        close(logits.log_softmax(-1), RECORDED[f"{variant}/{number}/log_probabilities"])
        for of, found in (("maps", our_maps), ("states", [model.tokens(ids), *our_states]), ("memory", memory.states)):
            recorded = part(variant, f"{number}/{of}")
            assert len(recorded) == len(found)
            for which, tensor in enumerate(found):
                close(tensor, recorded[str(which)])


@pytest.mark.parametrize("variant", SETTINGS)
def test_gradients_match_hugging_face(variant: str) -> None:
    model, memory = actual(variant), zeros(variant)
    for ids in SEGMENTS:
        model.zero_grad()
        model(ids, mask=mask(variant), cache=memory).log_softmax(-1)[..., 0].sum().backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    recorded = part(variant, "gradients")
    for rule in rules(variant):
        close(rule.write(found)[rule.source], recorded[rule.source])


def test_it_is_the_zeros_that_hugging_face_starts_from_that_make_the_difference() -> None:
    model = actual("as published")
    with torch.no_grad():
        empty = model(SEGMENTS[0], cache=SegmentCache(6)).log_softmax(-1)
    assert (empty - RECORDED["as published/0/log_probabilities"]).abs().max() > 0.01
