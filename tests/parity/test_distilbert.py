"""DistilBERT of Hugging Face's with each of its heads, read and written."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import DistilBertConfig

from softlook.base.errors import WeightsError
from softlook.models import Bert
from softlook.models import BertConfig as OurConfig
from softlook.weights import from_hugging_face, to_hugging_face
from softlook.weights.architectures.bert import DISTILBERT
from tests.parity.comparison import read, saved, there_and_back
from tests.parity.encoders import PRESENT, SIZES, check_answers, check_back, check_gradients, check_padding

VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {},
    "another bend inside": {"activation": "relu"},
    "fixed positions": {"sinusoidal_pos_embds": True},
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
    actual = read(reference, tmp_path / "hf")
    assert actual.config.head == DISTILBERT.head_by_class[kind]
    check_answers(actual, reference, {})


@pytest.mark.parametrize("kind", DISTILBERT.head_by_class)
def test_gradients_match_hugging_face(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    check_gradients(read(reference, tmp_path / "hf"), reference, DISTILBERT)


@pytest.mark.parametrize("kind", DISTILBERT.head_by_class)
def test_padding_on_the_right_is_that_of_hugging_face(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    check_padding(read(reference, tmp_path / "hf"), reference, pad=0)


def test_left_padding_with_explicit_positions_matches_hugging_face(tmp_path: Path) -> None:
    reference = small("DistilBertForMaskedLM")
    present = PRESENT.flip(1)
    positions = (present.cumsum(1) - 1).clamp(min=0)
    check_padding(read(reference, tmp_path / "hf"), reference, 0, present, positions=positions)


@pytest.mark.parametrize("kind", DISTILBERT.head_by_class)
def test_hugging_face_loads_the_export_with_the_same_outputs(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    actual = read(reference, tmp_path / "hf")
    back = there_and_back(actual, type(reference), tmp_path / "softlook")
    assert back.config.architectures == [kind]
    check_back(back, reference, actual.config.head)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown bend": ({"activation": "mish"}, "no such activation is known: 'mish'"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_unsupported_configs_are_refused_with_a_clear_message(what: str, tmp_path: Path) -> None:
    changes, message = REFUSED[what]
    folder = saved(small("DistilBertForMaskedLM"), tmp_path / "hf")
    config = DistilBertConfig(**{"architectures": ["DistilBertForMaskedLM"], **changes})
    (folder / "config.json").write_text(config.to_json_string(use_diff=False))
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)


@pytest.mark.parametrize(
    "changes", [{"head": "pooled", "pooler": "relu"}, {"head": "pretraining"}, {"head": "masked_lm", "eps": 1e-5}]
)
def test_a_model_without_a_hugging_face_class_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    model = Bert(OurConfig(vocab_size=13, dim=24, depth=1, heads=2, token_types=0, **changes))
    with pytest.raises(WeightsError, match="no architecture for this Bert"):
        to_hugging_face(model, tmp_path / "softlook")
