"""Import and export of Llama, Mistral and Qwen2 in Hugging Face's format."""

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
from softlook.models import LlamaConfig as SoftlookConfig
from softlook.weights import from_hugging_face, to_hugging_face
from tests.parity.comparison import close, export_and_load, import_model, maps, saved, states

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
    "llama, another theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    "llama, linear": {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 100.0}},
    "llama 3": {"rope_parameters": {"rope_type": "llama3", "rope_theta": 50.0, **LLAMA3}},
    "llama, yarn": {"rope_parameters": {"rope_type": "yarn", "rope_theta": 50.0, **YARN}},
    "llama, yarn in detail": {
        "rope_parameters": {"rope_type": "yarn", "beta_fast": 2.0, "beta_slow": 0.25, "attention_factor": 0.7, **YARN}
    },
    "llama, yarn with mscale": {"rope_parameters": {"rope_type": "yarn", "mscale": 0.7, "mscale_all_dim": 1.3, **YARN}},
}
KINDS: dict[str, Kind] = {
    **{name: (LlamaForCausalLM, LlamaConfig, changes) for name, changes in LLAMAS.items()},
    "mistral": (MistralForCausalLM, MistralConfig, {"sliding_window": 4}),
    "mistral without a window": (MistralForCausalLM, MistralConfig, {"sliding_window": None}),
    "mistral with a window of one": (MistralForCausalLM, MistralConfig, {"sliding_window": 1}),
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
def test_logits_hidden_states_and_attention_maps_match_hugging_face(name: str, tmp_path: Path) -> None:
    reference = small(name)
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


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_gradients_match_hugging_face(name: str, tmp_path: Path) -> None:
    reference: Any = small(name)
    actual = import_model(reference, tmp_path / "hf")
    upstream = torch.randn(2, 9, 11)
    actual(IDS).backward(upstream)
    reference(IDS).logits.backward(upstream)
    block, layer = actual.blocks[1], reference.model.layers[1]
    pairs = [
        (actual.token_embedding, reference.model.embed_tokens),
        (actual.lm_head, reference.lm_head),
        (block.attn.to_query, layer.self_attn.q_proj),
        (block.attn.to_key, layer.self_attn.k_proj),
        (block.attn.to_value, layer.self_attn.v_proj),
        (block.ffn.to_gate, layer.mlp.gate_proj),
        (block.ffn_norm, layer.post_attention_layernorm),
    ]
    for one, other in pairs:
        close(one.weight.grad, other.weight.grad)
    if actual.config.qkv_bias:
        close(block.attn.to_key.bias.grad, layer.self_attn.k_proj.bias.grad)


@pytest.mark.parametrize("name", [*ONE_OF_EACH, "llama 3"])
def test_decoding_with_a_cache_matches_hugging_face_beyond_the_window(name: str, tmp_path: Path) -> None:
    reference = small(name)
    actual = import_model(reference, tmp_path / "hf")
    cache, reference_cache = KVCache(), DynamicCache(config=reference.config)
    with torch.no_grad():
        for start, stop in ((0, 2), (2, 3), (3, 7), (7, 8), (8, 9)):
            expected = reference(IDS[:, start:stop], past_key_values=reference_cache, use_cache=True).logits
            close(actual(IDS[:, start:stop], cache=cache), expected)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_left_padding_matches_hugging_face(name: str, tmp_path: Path) -> None:
    reference = small(name)
    actual = import_model(reference, tmp_path / "hf")
    lengths = torch.tensor([9, 5])
    padding_mask = torch.arange(9) >= 9 - lengths[:, None]
    positions = (padding_mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = actual(IDS, mask=masks.padding(lengths, side="left", length=9), positions=positions)
        expected = reference(IDS, attention_mask=padding_mask.long(), position_ids=positions).logits
    close(logits[padding_mask], expected[padding_mask])


@pytest.mark.parametrize("name", KINDS)
def test_hugging_face_loads_the_export_with_the_same_logits(name: str, tmp_path: Path) -> None:
    reference = small(name)
    actual = import_model(reference, tmp_path / "hf")
    back = export_and_load(actual, type(reference), tmp_path / "softlook")
    with torch.no_grad():
        close(back(IDS).logits, reference(IDS).logits, 1e-6)


@pytest.mark.parametrize(
    ("kind", "config"), [(LlamaModel, LlamaConfig), (MistralModel, MistralConfig), (Qwen2Model, Qwen2Config)]
)
def test_a_model_without_a_head_returns_hidden_states(kind: Any, config: Any, tmp_path: Path) -> None:
    reference = kind(config(**SIZES)).eval()
    actual = import_model(reference, tmp_path / "hf")
    back = export_and_load(actual, kind, tmp_path / "softlook")
    with torch.no_grad():
        expected = reference(IDS).last_hidden_state
        close(actual(IDS), expected)
        close(back(IDS).last_hidden_state, expected, 1e-6)


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("window", [None, 3])
def test_a_head_dim_that_does_not_divide_the_width_is_exported(
    window: int | None, biases: bool, tmp_path: Path
) -> None:
    sizes: Any = {"vocab_size": 11, "context": 32, "dim": 22, "depth": 2, "heads": 4, "kv_heads": 2, "head_dim": 6}
    actual = Llama(SoftlookConfig(**sizes, sliding_window=window, qkv_bias=biases)).eval()
    back = export_and_load(actual, AutoModelForCausalLM, tmp_path / "softlook")  # pyright: ignore
    with torch.no_grad():
        close(actual(IDS), back(IDS).logits)


def test_ntk_scaling_is_exported_as_a_larger_theta(tmp_path: Path) -> None:
    scaling = RopeScaling(rope_type="ntk", factor=4.0)
    actual = Llama(
        SoftlookConfig(vocab_size=11, context=32, dim=24, depth=2, heads=4, rope_theta=50.0, rope_scaling=scaling)
    ).eval()
    with torch.no_grad():
        close(actual(IDS), export_and_load(actual, LlamaForCausalLM, tmp_path / "softlook")(IDS).logits)


def change_config(folder: Path, **fields: Any) -> Path:
    """Change fields of config.json; None removes a field."""
    path = folder / "config.json"
    content = json.loads(path.read_text(encoding="utf-8")) | fields
    path.write_text(json.dumps({name: field for name, field in content.items() if field is not None}), encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", ["llama, another theta", "llama, linear", "llama 3", "llama, yarn"])
def test_older_config_forms_give_the_same_model(name: str, tmp_path: Path) -> None:
    reference = small(name)
    folder = saved(reference, tmp_path / "hf")
    expected = from_hugging_face(folder)(IDS)
    rope = dict(KINDS[name][2]["rope_parameters"])
    kind, theta = rope.pop("rope_type"), rope.pop("rope_theta")
    scaling = {"type": kind, **rope} if rope else None
    change_config(folder, rope_parameters=None, rope_theta=theta, rope_scaling=scaling)
    close(from_hugging_face(folder)(IDS), expected, 0.0)


UNSUPPORTED: dict[str, tuple[dict[str, Any], str]] = {
    "biases of attention": ({"attention_bias": True}, "attention_bias and mlp_bias are not supported for Llama"),
    "biases of the MLP": ({"mlp_bias": True}, "attention_bias and mlp_bias are not supported for Llama"),
    "an unknown activation": ({"hidden_act": "laplace"}, "activation 'laplace' is not supported"),
    "dynamic": (
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}},
        "rope_type 'dynamic' .*is not supported. Supported: default, linear",
    ),
    "yarn without truncation": (
        {"rope_parameters": {"rope_type": "yarn", "truncate": False, **YARN}},
        "truncate=False",
    ),
    "no factor": ({"rope_parameters": {"rope_type": "linear"}}, "rope_type 'linear' with factor=None"),
    "partial rotary dimension": ({"partial_rotary_factor": 0.5}, "partial_rotary_factor must be 1"),
    "an unknown field": (
        {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 2]}},
        "rope_parameters.mrope_section: Extra inputs are not permitted",
    ),
    "a negative size": ({"hidden_size": -8}, "hidden_size: Input should be greater than 0, got -8"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported_configs_raise_an_error(case: str, tmp_path: Path) -> None:
    fields, message = UNSUPPORTED[case]
    folder = change_config(saved(small("llama"), tmp_path / "hf"), **fields)
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)


def test_qwen2_with_inconsistent_layer_types_raises_an_error(tmp_path: Path) -> None:
    folder = saved(small("qwen2, a window in some layers"), tmp_path / "hf")
    with pytest.raises(WeightsError, match="layer_types must have 3 entries, got 1"):
        from_hugging_face(change_config(folder, layer_types=["full_attention"]))
    with pytest.raises(WeightsError, match="layer_types has sliding_attention, but sliding_window is not set"):
        from_hugging_face(change_config(folder, layer_types=["sliding_attention"] * 3, use_sliding_window=False))


def test_windows_in_some_layers_without_biases_cannot_be_exported(tmp_path: Path) -> None:
    actual = Llama(
        SoftlookConfig(vocab_size=11, context=32, dim=24, depth=2, heads=4, sliding_window=3, windowed_layers=(1,))
    )
    with pytest.raises(WeightsError, match="Hugging Face has no architecture for this Llama"):
        to_hugging_face(actual, tmp_path / "softlook")


def test_an_lm_head_in_the_file_is_used_whatever_the_config(tmp_path: Path) -> None:
    reference = small("llama")
    folder = change_config(saved(reference, tmp_path / "hf"), tie_word_embeddings=True)
    with torch.no_grad():
        close(from_hugging_face(folder)(IDS), LlamaForCausalLM.from_pretrained(folder)(IDS).logits)
        close(from_hugging_face(folder)(IDS), reference(IDS).logits)
