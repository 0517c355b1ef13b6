"""Llama, Mistral and Qwen2 of Hugging Face's, read and written."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
    MistralConfig,
    MistralForCausalLM,
    MistralModel,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Model,
)

from softlook import masks
from softlook.base.errors import WeightsError
from softlook.blocks import KVCache
from softlook.models import Llama, RopeScaling
from softlook.models import LlamaConfig as OurConfig
from softlook.weights import from_hugging_face, to_hugging_face
from tests.parity.comparison import close, maps, read, saved, states, there_and_back

IDS = torch.tensor([[5, 3, 8, 1, 9, 2, 7, 7, 0], [4, 4, 0, 6, 1, 3, 2, 10, 5]])
SIZES = {
    "vocab_size": 11,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 0.5, "high_freq_factor": 3.0, "original_max_position_embeddings": 8}
YARN = {"factor": 4.0, "original_max_position_embeddings": 8}
SOME_LAYERS = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 2}
EVERY_OTHER = {
    "use_sliding_window": True,
    "sliding_window": 3,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}

Kind = tuple[type[PreTrainedModel], type[Any], dict[str, Any]]
LLAMAS: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama, tied, with wide heads": {"tie_word_embeddings": True, "head_dim": 10},
    "llama with GELU": {"hidden_act": "gelu"},
    "llama, one key head": {"num_key_value_heads": 1, "rms_norm_eps": 1e-3},
    "llama, another base": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    "llama, linear": {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 100.0}},
    "llama 3": {"rope_parameters": {"rope_type": "llama3", "rope_theta": 50.0, **LLAMA3}},
    "llama, yarn": {"rope_parameters": {"rope_type": "yarn", "rope_theta": 50.0, **YARN}},
    "llama, yarn in detail": {
        "rope_parameters": {"rope_type": "yarn", "beta_fast": 2.0, "beta_slow": 0.25, "attention_factor": 0.7, **YARN}
    },
    "llama, yarn with its scales": {
        "rope_parameters": {"rope_type": "yarn", "mscale": 0.7, "mscale_all_dim": 1.3, **YARN}
    },
}
KINDS: dict[str, Kind] = {
    **{name: (LlamaForCausalLM, LlamaConfig, changes) for name, changes in LLAMAS.items()},
    "mistral": (MistralForCausalLM, MistralConfig, {"sliding_window": 4}),
    "mistral without a window": (MistralForCausalLM, MistralConfig, {"sliding_window": None}),
    "mistral that sees only itself": (MistralForCausalLM, MistralConfig, {"sliding_window": 1}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {}),
    "qwen2, a window in some layers": (Qwen2ForCausalLM, Qwen2Config, SOME_LAYERS),
    "qwen2, a window in every other": (Qwen2ForCausalLM, Qwen2Config, EVERY_OTHER),
}
ONE_OF_EACH = ["llama", "mistral", "qwen2, a window in some layers"]


def small(name: str) -> PreTrainedModel:
    model, config, changes = KINDS[name]
    torch.manual_seed(0)
    return model._from_config(config(**{**SIZES, **changes}), attn_implementation="eager").eval()  # pyright: ignore


@pytest.mark.parametrize("name", KINDS)
def test_logits_hidden_states_and_maps_are_those_of_hugging_face(name: str, tmp_path: Path) -> None:
    reference = small(name)
    actual = read(reference, tmp_path / "hf")
    with maps(actual) as our_maps, states(actual.blocks) as our_states, torch.no_grad():
        logits = actual(IDS)
        expected = reference(IDS, output_attentions=True, output_hidden_states=True)
    close(logits, expected.logits)
    for one, other in zip(our_maps, expected.attentions, strict=True):
        close(one, other)
    for one, other in zip(our_states[:-1], expected.hidden_states[1:-1], strict=True):  # their last one is normed
        close(one, other)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_gradients_match_hugging_face(name: str, tmp_path: Path) -> None:
    reference: Any = small(name)
    actual = read(reference, tmp_path / "hf")
    upstream = torch.randn(2, 9, 11)
    actual(IDS).backward(upstream)
    reference(IDS).logits.backward(upstream)
    block, their_block = actual.blocks[1], reference.model.layers[1]
    pairs = [
        (actual.token_embedding, reference.model.embed_tokens),
        (actual.head, reference.lm_head),
        (block.attn.to_query, their_block.self_attn.q_proj),
        (block.attn.to_key, their_block.self_attn.k_proj),
        (block.attn.to_value, their_block.self_attn.v_proj),
        (block.ffn.to_gate, their_block.mlp.gate_proj),
        (block.ffn_norm, their_block.post_attention_layernorm),
    ]
    for one, other in pairs:
        close(one.weight.grad, other.weight.grad)
    if actual.config.biases:
        close(block.attn.to_key.bias.grad, their_block.self_attn.k_proj.bias.grad)


@pytest.mark.parametrize("name", [*ONE_OF_EACH, "llama 3"])
def test_decoding_with_a_memory_is_that_of_hugging_face_beyond_the_window_too(name: str, tmp_path: Path) -> None:
    reference = small(name)
    actual = read(reference, tmp_path / "hf")
    memory, cache = KVCache(), DynamicCache(config=reference.config)
    with torch.no_grad():
        for start, stop in ((0, 2), (2, 3), (3, 7), (7, 8), (8, 9)):
            expected = reference(IDS[:, start:stop], past_key_values=cache, use_cache=True).logits
            close(actual(IDS[:, start:stop], cache=memory), expected)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_left_padding_is_that_of_hugging_face(name: str, tmp_path: Path) -> None:
    reference = small(name)
    actual = read(reference, tmp_path / "hf")
    lengths = torch.tensor([9, 5])
    present = torch.arange(9) >= 9 - lengths[:, None]
    positions = (present.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = actual(IDS, mask=masks.padding(lengths, side="left", length=9), positions=positions)
        expected = reference(IDS, attention_mask=present.long(), position_ids=positions).logits
    close(logits[present], expected[present])


@pytest.mark.parametrize("name", KINDS)
def test_hugging_face_loads_the_export_with_the_same_logits(name: str, tmp_path: Path) -> None:
    reference = small(name)
    actual = read(reference, tmp_path / "hf")
    back = there_and_back(actual, type(reference), tmp_path / "softlook")
    with torch.no_grad():
        close(back(IDS).logits, reference(IDS).logits, 1e-6)


@pytest.mark.parametrize(
    ("kind", "config"), [(LlamaModel, LlamaConfig), (MistralModel, MistralConfig), (Qwen2Model, Qwen2Config)]
)
def test_a_model_without_a_head_gives_its_states(kind: Any, config: Any, tmp_path: Path) -> None:
    reference = kind(config(**SIZES)).eval()
    actual = read(reference, tmp_path / "hf")
    back = there_and_back(actual, kind, tmp_path / "softlook")
    with torch.no_grad():
        expected = reference(IDS).last_hidden_state
        close(actual(IDS), expected)
        close(back(IDS).last_hidden_state, expected, 1e-6)


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("window", [None, 3])
def test_heads_that_do_not_share_the_width_evenly_are_written_as_something_that_is_read(
    window: int | None, biases: bool, tmp_path: Path
) -> None:
    sizes: Any = {"vocab_size": 11, "context": 32, "dim": 22, "depth": 2, "heads": 4, "kv_heads": 2, "head_dim": 6}
    actual = Llama(OurConfig(**sizes, sliding_window=window, qkv_bias=biases)).eval()
    back = there_and_back(actual, AutoModelForCausalLM, tmp_path / "softlook")  # pyright: ignore
    with torch.no_grad():
        close(actual(IDS), back(IDS).logits)


def test_ntk_scaling_is_exported_as_a_larger_theta(tmp_path: Path) -> None:
    stretch = RopeScaling(rope_type="ntk", factor=4.0)
    actual = Llama(
        OurConfig(vocab_size=11, context=32, dim=24, depth=2, heads=4, rope_theta=50.0, rope_scaling=stretch)
    ).eval()
    with torch.no_grad():
        close(actual(IDS), there_and_back(actual, LlamaForCausalLM, tmp_path / "softlook")(IDS).logits)


def changed(folder: Path, **fields: Any) -> Path:
    """A folder whose config says something else."""
    path = folder / "config.json"
    content = json.loads(path.read_text(encoding="utf-8")) | fields
    path.write_text(json.dumps({name: field for name, field in content.items() if field is not None}), encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", ["llama, another base", "llama, linear", "llama 3", "llama, yarn"])
def test_older_config_forms_give_the_same_model(name: str, tmp_path: Path) -> None:
    reference = small(name)
    folder = saved(reference, tmp_path / "hf")
    expected = from_hugging_face(folder)(IDS)
    rope = dict(KINDS[name][2]["rope_parameters"])
    kind, base = rope.pop("rope_type"), rope.pop("rope_theta")
    scaling = {"type": kind, **rope} if rope else None
    changed(folder, rope_parameters=None, rope_theta=base, rope_scaling=scaling)
    close(from_hugging_face(folder)(IDS), expected, 0.0)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "qkv_bias": ({"attention_bias": True}, "this Llama has biases"),
    "biases inside": ({"mlp_bias": True}, "this Llama has biases"),
    "an unknown activation": ({"hidden_act": "laplace"}, "no such activation is known: 'laplace'"),
    "dynamic": ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "as 'dynamic'.*knows default, linear"),
    "yarn, not rounded": ({"rope_parameters": {"rope_type": "yarn", "truncate": False, **YARN}}, "truncate=False"),
    "no factor": ({"rope_parameters": {"rope_type": "linear"}}, "as 'linear', with factor=None"),
    "a part of each head": ({"partial_rotary_factor": 0.5}, "rotates only a part of each head"),
    "something unheard of": (
        {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 2]}},
        "rope_parameters.mrope_section: Extra inputs are not permitted",
    ),
    "a size below zero": ({"hidden_size": -8}, "hidden_size: Input should be greater than 0, got -8"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_expressed_is_refused(what: str, tmp_path: Path) -> None:
    fields, message = REFUSED[what]
    folder = changed(saved(small("llama"), tmp_path / "hf"), **fields)
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)


def test_qwen2_with_inconsistent_layer_types_is_refused(tmp_path: Path) -> None:
    folder = saved(small("qwen2, a window in some layers"), tmp_path / "hf")
    with pytest.raises(WeightsError, match="layer_types should name 3 layers, and names 1"):
        from_hugging_face(changed(folder, layer_types=["full_attention"]))
    with pytest.raises(WeightsError, match="does not say how wide it is"):
        from_hugging_face(changed(folder, layer_types=["sliding_attention"] * 3, use_sliding_window=False))


def test_windows_in_some_layers_without_biases_cannot_be_exported(tmp_path: Path) -> None:
    actual = Llama(
        OurConfig(vocab_size=11, context=32, dim=24, depth=2, heads=4, sliding_window=3, windowed_layers=(1,))
    )
    with pytest.raises(WeightsError, match="Hugging Face has no architecture for this Llama"):
        to_hugging_face(actual, tmp_path / "softlook")


def test_an_lm_head_in_the_file_is_used_whatever_the_config(tmp_path: Path) -> None:
    reference = small("llama")
    folder = changed(saved(reference, tmp_path / "hf"), tie_word_embeddings=True)
    with torch.no_grad():
        close(from_hugging_face(folder)(IDS), LlamaForCausalLM.from_pretrained(folder)(IDS).logits)
        close(from_hugging_face(folder)(IDS), reference(IDS).logits)
