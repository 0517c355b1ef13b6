"""ModernBERT of Hugging Face's with each of its heads, read and written."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from transformers import ModernBertConfig, ModernBertForMaskedLM

from softlook.base.errors import WeightsError
from softlook.models import ModernBert
from softlook.models import ModernBertConfig as OurConfig
from softlook.weights import from_hugging_face, load, save, to_hugging_face
from softlook.weights.architectures.modern_bert import MODERN_BERT
from tests.parity.comparison import close, maps, read, saved, states, there_and_back
from tests.parity.encoders import IDS, PRESENT, SIZES, answers, ask, check_back, check_gradients, check_padding

TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
BIASES = {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True, "decoder_bias": False}
VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {},
    "biases": BIASES,
    "mean, other activations": {
        "classifier_pooling": "mean",
        "hidden_activation": "silu",
        "classifier_activation": "relu",
    },
    "layers told": {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "norm_eps": 1e-2},
}


def small(kind: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40}
    labels = {"num_labels": 2} if MODERN_BERT.head_by_class[kind] == "question_answering" else {}
    fixed = {"local_attention": 4, **TOKENS}
    config = ModernBertConfig(**{**SIZES, **sizes, **labels, **fixed, **changes})
    return getattr(transformers, kind)._from_config(config, attn_implementation="eager").eval()


def check(actual: Any, reference: nn.Module) -> None:
    """The answers, what goes into each block, and every attention map."""
    with (
        maps(actual) as our_maps,
        states(nn.ModuleList([actual.dropout, *actual.blocks[:-1]])) as inside,
        torch.no_grad(),
    ):
        output = answers(actual(IDS))
        expected, more = ask(reference, actual.config.head, IDS, attention_mask=torch.ones_like(IDS))
    close(output[0], expected[0])
    for one, other in zip(our_maps, more.attentions, strict=True):
        close(one, other)
    for one, other in zip(inside, more.hidden_states, strict=False):
        close(one, other)


@pytest.mark.parametrize("kind", MODERN_BERT.head_by_class)
@pytest.mark.parametrize("variant", VARIANTS)
def test_outputs_hidden_states_and_attention_maps_match_hugging_face(kind: str, variant: str, tmp_path: Path) -> None:
    reference = small(kind, **VARIANTS[variant])
    actual = read(reference, tmp_path / "hf")
    assert isinstance(actual, ModernBert) and actual.config.head == MODERN_BERT.head_by_class[kind]
    check(actual, reference)


@pytest.mark.parametrize("kind", MODERN_BERT.head_by_class)
def test_gradients_match_hugging_face(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    check_gradients(read(reference, tmp_path / "hf"), reference, MODERN_BERT)


@pytest.mark.parametrize("kind", MODERN_BERT.head_by_class)
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_padding_matches_hugging_face(kind: str, pooling: str, tmp_path: Path) -> None:
    reference = small(kind, classifier_pooling=pooling)
    check_padding(read(reference, tmp_path / "hf"), reference, pad=0)


def test_left_padding_with_explicit_positions_matches_hugging_face(tmp_path: Path) -> None:
    reference = small("ModernBertForMaskedLM")
    present = PRESENT.flip(1)
    positions = (present.cumsum(1) - 1).clamp(min=0)
    check_padding(read(reference, tmp_path / "hf"), reference, 0, present, positions=positions)


@pytest.mark.parametrize("kind", MODERN_BERT.head_by_class)
@pytest.mark.parametrize("variant", ["as published", "biases", "layers told"])
def test_hugging_face_loads_the_export_with_the_same_outputs(kind: str, variant: str, tmp_path: Path) -> None:
    reference = small(kind, **VARIANTS[variant])
    again: Any = load(save(read(reference, tmp_path / "hf"), tmp_path / "kept"))
    back = there_and_back(again, type(reference), tmp_path / "softlook")
    assert back.config.architectures == [kind]
    check_back(back, reference, again.config.head)


def test_an_untied_word_head_is_read(tmp_path: Path) -> None:
    reference = small("ModernBertForMaskedLM", tie_word_embeddings=False)
    actual = read(reference, tmp_path / "hf")
    check(actual, reference)
    check_back(there_and_back(actual, ModernBertForMaskedLM, tmp_path / "softlook"), reference, "masked_lm")


def test_a_config_as_published_with_its_old_fields_is_read(tmp_path: Path) -> None:
    """Thetas and the pattern of layers under their first names."""
    reference = small(
        "ModernBertForMaskedLM", rope_parameters=ropes(300.0, 20.0), num_hidden_layers=4, layer_types=EVERY
    )
    folder = saved(reference, tmp_path / "hf")
    old = {"global_rope_theta": 300.0, "local_rope_theta": 20.0, "global_attn_every_n_layers": 2}
    aside = {"position_embedding_type": "absolute", "layer_norm_eps": 1e-5, "sparse_prediction": False}
    change(folder, {"rope_parameters", "layer_types"}, **old, **aside)
    again: Any = ModernBertForMaskedLM.from_pretrained(folder, attn_implementation="eager")
    actual: Any = from_hugging_face(folder)
    assert (actual.config.rope_theta, actual.config.local_rope_theta, actual.config.local) == (300.0, 20.0, (1, 3))
    check(actual, again.eval())
    check(actual, reference)


EVERY = ["full_attention", "sliding_attention"] * 2


def ropes(full: float, local: float) -> dict[str, Any]:
    return {
        "full_attention": {"rope_type": "default", "rope_theta": full},
        "sliding_attention": {"rope_type": "default", "rope_theta": local},
    }


STRETCHED = {"full_attention": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "stretched positions": ({"rope_parameters": STRETCHED}, "should be plain"),
    "stretched positions, in the old way": (
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        "should be plain",
    ),
    "layers that are not there": ({"layer_types": ["full_attention"]}, "layer_types has 1 entries"),
    "layers of another kind": ({"layer_types": ["chunked_attention"] * 3}, "layer_types.0: Input should be"),
    "other heads": ({"head_dim": 8}, "head_dim should be hidden_size / num_attention_heads = 6"),
    "an unknown activation": ({"hidden_activation": "mish"}, "no such activation is known: 'mish'"),
    "another pooling": ({"classifier_pooling": "max"}, "classifier_pooling: Input should be 'cls' or 'mean'"),
    "another class": ({"architectures": ["ModernBertForChess"]}, "of ModernBERT, softlook knows ModernBertModel"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_unsupported_configs_are_refused(what: str, tmp_path: Path) -> None:
    changes, message = REFUSED[what]
    folder = saved(small("ModernBertForMaskedLM"), tmp_path / "hf")
    change(folder, **changes)
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)


def test_a_softlook_model_can_be_exported(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"vocab_size": 13, "dim": 24, "depth": 4, "heads": 4, "hidden": 40, "window": 1}
    actual = ModernBert(OurConfig(**sizes)).eval()
    back = there_and_back(actual, ModernBertForMaskedLM, tmp_path / "softlook")
    with torch.no_grad():
        close(back(IDS).logits, actual(IDS), 1e-5)
    assert to_hugging_face(actual, tmp_path / "again").is_dir()


def change(folder: Path, without: set[str] | None = None, /, **fields: Any) -> None:
    file = folder / "config.json"
    kept = {name: value for name, value in json.loads(file.read_text()).items() if name not in (without or ())}
    file.write_text(json.dumps(kept | fields))
