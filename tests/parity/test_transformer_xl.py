"""Transformer-XL matches the outputs of Hugging Face recorded by `record_transformer_xl.py`; it was removed since."""

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
with safe_open(FILE, framework="pt") as file:
    SETTINGS: dict[str, dict[str, Any]] = {name: json.loads(text) for name, text in sorted(file.metadata().items())}
    RECORDED: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
SEGMENTS = RECORDED["ids"].split((5, 4), dim=1)


def recorded_tensors(variant: str, group: str) -> dict[str, Tensor]:
    """The recorded tensors of a group, without its prefix."""
    prefix = f"{variant}/{group}/"
    return {name.removeprefix(prefix): tensor for name, tensor in RECORDED.items() if name.startswith(prefix)}


def rules(variant: str) -> list[TensorRule]:
    """The mapping from softlook's tensors to those of transformers."""
    settings = SETTINGS[variant]
    found: list[TensorRule] = [
        Rename("token_embedding.weight", "transformer.word_emb.emb_layers.0.weight"),
        Rename("lm_head.bias", "crit.out_layers.0.bias"),
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
            owner = f"{reference}.dec_attn" if settings["untie_r"] else "transformer"
            found += [
                Rename(f"{actual}.attn.content_bias", f"{owner}.r_w_bias"),
                Rename(f"{actual}.attn.position_bias", f"{owner}.r_r_bias"),
            ]
    return found


def build(variant: str) -> TransformerXL:
    """softlook's model with the recorded weights."""
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
    load_mapped(model, recorded_tensors(variant, "weights"), rules(variant), (), FILE)
    return model


def zero_cache(variant: str) -> SegmentCache:
    """The initial memory of transformers: states of zeros, which are attended to."""
    reference = SETTINGS[variant]
    states = torch.zeros(2, reference["mem_len"], reference["d_model"])
    return SegmentCache(reference["mem_len"], [states] * reference["n_layer"])


def mask(variant: str) -> masks.Mask | None:
    """`same_length`: each query attends to `mem_len` keys, including its own."""
    reference = SETTINGS[variant]
    return masks.window(reference["mem_len"] - 1) if reference["same_length"] else None


@pytest.mark.parametrize("variant", SETTINGS)
def test_two_segments_match_hugging_face(variant: str) -> None:
    model, cache = build(variant), zero_cache(variant)
    for number, ids in enumerate(SEGMENTS):
        with maps(model) as actual_maps, states(model.blocks) as actual_states, torch.no_grad():
            logits = model(ids, mask=mask(variant), cache=cache)
        close(logits.log_softmax(-1), RECORDED[f"{variant}/{number}/log_probabilities"])
        groups = {
            "maps": actual_maps,
            "states": [model.token_embedding(ids), *actual_states],
            "memory": cache.states,
        }
        for group, found in groups.items():
            recorded = recorded_tensors(variant, f"{number}/{group}")
            assert len(recorded) == len(found)
            for layer, tensor in enumerate(found):
                close(tensor, recorded[str(layer)])


@pytest.mark.parametrize("variant", SETTINGS)
def test_gradients_match_hugging_face(variant: str) -> None:
    model, cache = build(variant), zero_cache(variant)
    for ids in SEGMENTS:
        model.zero_grad()
        model(ids, mask=mask(variant), cache=cache).log_softmax(-1)[..., 0].sum().backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    recorded = recorded_tensors(variant, "gradients")
    for rule in rules(variant):
        close(rule.write(found)[rule.source], recorded[rule.source])


def test_an_empty_cache_differs_from_the_zero_states_of_hugging_face() -> None:
    model = build("as published")
    with torch.no_grad():
        empty = model(SEGMENTS[0], cache=SegmentCache(6)).log_softmax(-1)
    assert (empty - RECORDED["as published/0/log_probabilities"]).abs().max() > 0.01
