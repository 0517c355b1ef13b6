"""GPT-2 of Hugging Face's, read and written."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

from softlook import masks
from softlook.blocks import KVCache
from softlook.weights import from_hugging_face
from tests.parity.comparison import close, export_and_load, import_model, maps, saved, states

IDS = torch.tensor([[5, 3, 8, 1, 9, 2, 7], [4, 4, 0, 6, 1, 3, 2]])


def small(**changes: Any) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=11, n_positions=16, n_embd=24, n_layer=3, n_head=4, **changes)
    return GPT2LMHeadModel._from_config(config, attn_implementation="eager").eval()  # pyright: ignore


VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {},
    "untied": {"tie_word_embeddings": False},
    "another hidden size and activation": {"n_inner": 40, "activation_function": "relu"},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_hidden_states_and_attention_maps_match_hugging_face(variant: str, tmp_path: Path) -> None:
    reference = small(**VARIANTS[variant])
    actual = import_model(reference, tmp_path / "hf")
    with maps(actual) as actual_maps, states(actual.blocks) as actual_states, torch.no_grad():
        logits = actual(IDS)
        expected = reference(IDS, output_attentions=True, output_hidden_states=True)
    close(logits, expected.logits)
    for one, other in zip(actual_maps, expected.attentions, strict=True):
        close(one, other)
    for one, other in zip(
        actual_states[:-1], expected.hidden_states[1:-1], strict=True
    ):  # the reference normalizes its last state
        close(one, other)


def test_gradients_match_hugging_face(tmp_path: Path) -> None:
    reference = small()
    actual = import_model(reference, tmp_path / "hf")
    upstream = torch.randn(2, 7, 11)
    actual(IDS).backward(upstream)
    reference(IDS).logits.backward(upstream)
    block: Any = reference.transformer.h[0]
    embedding: Any = reference.transformer.wte
    names = ("to_query", "to_key", "to_value")
    fused = torch.cat([getattr(actual.blocks[0].attn, name).weight.grad for name in names])
    close(fused, block.attn.c_attn.weight.grad.T)
    close(actual.token_embedding.weight.grad, embedding.weight.grad)


def test_decoding_with_a_cache_matches_hugging_face(tmp_path: Path) -> None:
    reference = small()
    actual = import_model(reference, tmp_path / "hf")
    cache, reference_cache = KVCache(), DynamicCache()
    with torch.no_grad():
        for start, stop in ((0, 3), (3, 4), (4, 7)):
            expected = reference(IDS[:, start:stop], past_key_values=reference_cache, use_cache=True).logits
            close(actual(IDS[:, start:stop], cache=cache), expected)


def test_left_padding_matches_hugging_face(tmp_path: Path) -> None:
    reference = small()
    actual = import_model(reference, tmp_path / "hf")
    lengths = torch.tensor([7, 4])
    padding_mask = torch.arange(7) >= 7 - lengths[:, None]
    positions = (padding_mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = actual(IDS, mask=masks.padding(lengths, side="left", length=7), positions=positions)
        expected = reference(IDS, attention_mask=padding_mask.long(), position_ids=positions).logits
    close(logits[padding_mask], expected[padding_mask])


@pytest.mark.parametrize("variant", VARIANTS)
def test_hugging_face_loads_the_export_with_the_same_logits(variant: str, tmp_path: Path) -> None:
    reference = small(**VARIANTS[variant])
    actual = import_model(reference, tmp_path / "hf")
    back = export_and_load(actual, GPT2LMHeadModel, tmp_path / "softlook")
    with torch.no_grad():
        close(back(IDS).logits, reference(IDS).logits, 1e-6)


def test_an_lm_head_in_the_file_is_used_whatever_the_config(tmp_path: Path) -> None:
    reference = small(tie_word_embeddings=False)
    folder = saved(reference, tmp_path / "hf")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    with torch.no_grad():
        close(from_hugging_face(folder)(IDS), GPT2LMHeadModel.from_pretrained(folder)(IDS).logits)
        close(from_hugging_face(folder)(IDS), reference(IDS).logits)
