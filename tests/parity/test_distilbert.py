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
from softlook.weights.families.distilbert import ARCHITECTURES, FAMILY
from tests.parity.encoders import PRESENT, SIZES, check_answers, check_back, check_gradients, check_padding
from tests.parity.weights import read, saved, there_and_back

VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {},
    "another bend inside": {"activation": "relu"},
    "fixed positions": {"sinusoidal_pos_embds": True},
}


def small(kind: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    labels = {"num_labels": 2} if ARCHITECTURES[kind] == "spans" else {}
    sizes = {"dim": 24, "n_layers": 2, "n_heads": 4, "hidden_dim": 40, "max_position_embeddings": 16}
    config = DistilBertConfig(**{**SIZES, **sizes, **labels, **changes})
    return getattr(transformers, kind)._from_config(config, attn_implementation="eager").eval()


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_answers_hidden_states_and_maps_are_those_of_hugging_face(kind: str, variant: str, tmp_path: Path) -> None:
    theirs = small(kind, **VARIANTS[variant])
    ours = read(theirs, tmp_path / "theirs")
    assert ours.config.head == ARCHITECTURES[kind]
    check_answers(ours, theirs, {})


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_gradients_are_those_of_hugging_face(kind: str, tmp_path: Path) -> None:
    theirs = small(kind)
    check_gradients(read(theirs, tmp_path / "theirs"), theirs, FAMILY)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_padding_on_the_right_is_that_of_hugging_face(kind: str, tmp_path: Path) -> None:
    theirs = small(kind)
    check_padding(read(theirs, tmp_path / "theirs"), theirs, pad=0)


def test_padding_on_the_left_is_that_of_hugging_face_where_positions_are_told(tmp_path: Path) -> None:
    theirs = small("DistilBertForMaskedLM")
    present = PRESENT.flip(1)
    positions = (present.cumsum(1) - 1).clamp(min=0)
    check_padding(read(theirs, tmp_path / "theirs"), theirs, 0, present, positions=positions)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_what_is_written_is_read_by_hugging_face_with_the_same_answers(kind: str, tmp_path: Path) -> None:
    theirs = small(kind)
    ours = read(theirs, tmp_path / "theirs")
    back = there_and_back(ours, type(theirs), tmp_path / "ours")
    assert back.config.architectures == [kind]
    check_back(back, theirs, ours.config.head)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown bend": ({"activation": "mish"}, "no such activation is known: 'mish'"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_softlook_does_not_compute_is_refused_in_plain_words(what: str, tmp_path: Path) -> None:
    changes, message = REFUSED[what]
    folder = saved(small("DistilBertForMaskedLM"), tmp_path / "theirs")
    config = DistilBertConfig(**{"architectures": ["DistilBertForMaskedLM"], **changes})
    (folder / "config.json").write_text(config.to_json_string(use_diff=False))
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)


@pytest.mark.parametrize(
    "changes", [{"head": "pooled", "pooler": "relu"}, {"head": "pretraining"}, {"head": "words", "eps": 1e-5}]
)
def test_a_model_that_hugging_face_has_no_class_for_is_not_written(changes: dict[str, Any], tmp_path: Path) -> None:
    model = Bert(OurConfig(vocab=13, dim=24, depth=1, heads=2, segments=0, **changes))
    with pytest.raises(WeightsError, match="no architecture for this Bert"):
        to_hugging_face(model, tmp_path / "ours")
