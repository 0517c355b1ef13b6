"""Import and export of DistilBERT with each of its heads in Hugging Face's format."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import DistilBertConfig

from softlook.base.errors import WeightsError
from softlook.models import Bert
from softlook.models import BertConfig as SoftlookConfig
from softlook.weights import from_hugging_face, to_hugging_face
from softlook.weights.architectures.bert import DISTILBERT
from tests.parity.comparison import export_and_load, import_model, saved
from tests.parity.encoders import PADDING_MASK, SIZES, check_export, check_gradients, check_outputs, check_padding

VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {},
    "another activation": {"activation": "relu"},
    "sinusoidal positions": {"sinusoidal_pos_embds": True},
}


def small(kind: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    labels = {"num_labels": 2} if DISTILBERT.head_by_class[kind] == "question_answering" else {}
    sizes = {"dim": 24, "n_layers": 2, "n_heads": 4, "hidden_dim": 40, "max_position_embeddings": 16}
    config = DistilBertConfig(**{**SIZES, **sizes, **labels, **changes})
    return getattr(transformers, kind)._from_config(config, attn_implementation="eager").eval()


@pytest.mark.parametrize("kind", DISTILBERT.head_by_class)
@pytest.mark.parametrize("variant", VARIANTS)
def test_outputs_hidden_states_and_attention_maps_match_hugging_face(kind: str, variant: str, tmp_path: Path) -> None:
    reference = small(kind, **VARIANTS[variant])
    actual = import_model(reference, tmp_path / "hf")
    assert actual.config.head == DISTILBERT.head_by_class[kind]
    check_outputs(actual, reference, {})


@pytest.mark.parametrize("kind", DISTILBERT.head_by_class)
def test_gradients_match_hugging_face(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    check_gradients(import_model(reference, tmp_path / "hf"), reference, DISTILBERT)


@pytest.mark.parametrize("kind", DISTILBERT.head_by_class)
def test_right_padding_matches_hugging_face(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    check_padding(import_model(reference, tmp_path / "hf"), reference, pad=0)


def test_left_padding_with_explicit_positions_matches_hugging_face(tmp_path: Path) -> None:
    reference = small("DistilBertForMaskedLM")
    padding_mask = PADDING_MASK.flip(1)
    positions = (padding_mask.cumsum(1) - 1).clamp(min=0)
    check_padding(import_model(reference, tmp_path / "hf"), reference, 0, padding_mask, positions=positions)


@pytest.mark.parametrize("kind", DISTILBERT.head_by_class)
def test_hugging_face_loads_the_export_with_the_same_outputs(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    actual = import_model(reference, tmp_path / "hf")
    back = export_and_load(actual, type(reference), tmp_path / "softlook")
    assert back.config.architectures == [kind]
    check_export(back, reference, actual.config.head)


UNSUPPORTED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown activation": ({"activation": "mish"}, "activation 'mish' is not supported"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported_configs_raise_an_error(case: str, tmp_path: Path) -> None:
    changes, message = UNSUPPORTED[case]
    folder = saved(small("DistilBertForMaskedLM"), tmp_path / "hf")
    config = DistilBertConfig(**{"architectures": ["DistilBertForMaskedLM"], **changes})
    (folder / "config.json").write_text(config.to_json_string(use_diff=False))
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)


@pytest.mark.parametrize(
    "changes", [{"head": "pooled", "pooler": "relu"}, {"head": "pretraining"}, {"head": "masked_lm", "eps": 1e-5}]
)
def test_a_model_without_a_hugging_face_class_raises_an_error(changes: dict[str, Any], tmp_path: Path) -> None:
    model = Bert(SoftlookConfig(vocab_size=13, dim=24, depth=1, heads=2, token_types=0, **changes))
    with pytest.raises(WeightsError, match="no architecture for this Bert"):
        to_hugging_face(model, tmp_path / "softlook")
