"""BERT of Hugging Face's with each of its heads, read and written."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, BertForPreTraining, BertForSequenceClassification, BertModel

from softlook.base.errors import WeightsError
from softlook.models import Bert
from softlook.models import BertConfig as OurConfig
from softlook.weights import from_hugging_face, load, save, to_hugging_face
from softlook.weights.families.bert import ARCHITECTURES, FAMILY
from tests.parity.encoders import IDS, SEGMENTS, SIZES, check_answers, check_back, check_gradients, check_padding
from tests.parity.weights import close, read, saved, there_and_back

VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {},
    "another bend inside": {"hidden_act": "gelu_new"},
    "three segments, another eps": {"type_vocab_size": 3, "layer_norm_eps": 1e-2},
}


def small(kind: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    config = BertConfig(**{**SIZES, **sizes, **labels(kind), "max_position_embeddings": 16, **changes})
    return getattr(transformers, kind)._from_config(config, attn_implementation="eager").eval()


def labels(kind: str) -> dict[str, int]:
    return {"num_labels": 2} if ARCHITECTURES[kind] == "spans" else {}


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_answers_hidden_states_and_maps_are_those_of_hugging_face(kind: str, variant: str, tmp_path: Path) -> None:
    theirs = small(kind, **VARIANTS[variant])
    ours = read(theirs, tmp_path / "theirs")
    assert ours.config.head == ARCHITECTURES[kind]
    check_answers(ours, theirs, {"token_type_ids": SEGMENTS})
    check_answers(ours, theirs, {})


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_gradients_are_those_of_hugging_face(kind: str, tmp_path: Path) -> None:
    theirs = small(kind)
    check_gradients(read(theirs, tmp_path / "theirs"), theirs, FAMILY)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_padding_is_that_of_hugging_face(kind: str, tmp_path: Path) -> None:
    theirs = small(kind)
    check_padding(read(theirs, tmp_path / "theirs"), theirs, pad=0)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_what_is_written_is_read_by_hugging_face_with_the_same_answers(kind: str, tmp_path: Path) -> None:
    theirs = small(kind)
    ours = read(theirs, tmp_path / "theirs")
    back = there_and_back(ours, type(theirs), tmp_path / "ours")
    assert back.config.architectures == [kind]
    check_back(back, theirs, ours.config.head)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_what_was_read_can_be_kept_as_softlooks_own(kind: str, tmp_path: Path) -> None:
    ours = read(small(kind), tmp_path / "theirs")
    again: Any = load(save(ours, tmp_path / "ours"))
    assert again.config == ours.config
    for one, other in zip(again.state_dict().values(), ours.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_a_model_saved_without_its_pooler_gives_its_states(tmp_path: Path) -> None:
    theirs = BertModel(small("BertModel").config, add_pooling_layer=False).eval()
    ours = read(theirs, tmp_path / "theirs")
    assert ours.config.head == "states"
    with torch.no_grad():
        close(ours(IDS), theirs(IDS).last_hidden_state)
    # Their class always comes with a pooler unless it is told not to.
    back: Any = BertModel.from_pretrained(to_hugging_face(ours, tmp_path / "ours"), add_pooling_layer=False)
    with torch.no_grad():
        close(back.eval()(IDS).last_hidden_state, theirs(IDS).last_hidden_state, 1e-6)


def test_the_bare_model_is_written_without_a_prefix(tmp_path: Path) -> None:
    to_hugging_face(read(small("BertModel"), tmp_path / "theirs"), tmp_path / "ours")
    names = [load_file(tmp_path / folder / "model.safetensors").keys() for folder in ("theirs", "ours")]
    assert names[0] == names[1]


def test_old_names_of_the_norms_and_parts_of_other_heads_are_understood(tmp_path: Path) -> None:
    """As BERT's own checkpoints have them: all of pretraining, with only the words asked for."""
    theirs = small("BertForPreTraining")
    path = saved(theirs, tmp_path / "theirs") / "model.safetensors"
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in load_file(path).items()
    }
    assert any("gamma" in name for name in old)
    save_file({**old, "bert.embeddings.position_ids": torch.arange(16)[None]}, path, {"format": "pt"})
    config = path.with_name("config.json")
    config.write_text(config.read_text().replace("BertForPreTraining", "BertForMaskedLM"))
    ours: Any = from_hugging_face(path.parent)
    assert isinstance(theirs, BertForPreTraining)
    with torch.no_grad():
        close(ours(IDS), theirs(IDS).prediction_logits)


def test_the_number_of_classes_is_the_number_of_their_names_and_two_where_they_have_none(tmp_path: Path) -> None:
    theirs = small("BertForSequenceClassification", num_labels=2)
    folder = saved(theirs, tmp_path / "theirs")
    config = folder / "config.json"
    assert "num_labels" not in config.read_text()
    ours: Any = from_hugging_face(folder)
    assert ours.config.classes == 2


def test_one_class_is_regression_and_reads_as_such(tmp_path: Path) -> None:
    theirs = small("BertForSequenceClassification", num_labels=1)
    ours = read(theirs, tmp_path / "theirs")
    with torch.no_grad():
        close(ours(IDS), theirs(IDS).logits)
        back = there_and_back(ours, BertForSequenceClassification, tmp_path / "ours")
        close(back(IDS).logits, theirs(IDS).logits, 1e-6)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a decoder": ({"is_decoder": True}, "this model is a decoder"),
    "relative positions": ({"position_embedding_type": "relative_key"}, "'relative_key' positions"),
    "an unknown bend": ({"hidden_act": "mish"}, "no such activation is known: 'mish'"),
    "no width": ({"hidden_size": 0}, "hidden_size: Input should be greater than 0"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_softlook_does_not_compute_is_refused_in_plain_words(what: str, tmp_path: Path) -> None:
    changes, message = REFUSED[what]
    folder = saved(small("BertForMaskedLM"), tmp_path / "theirs")
    config = folder / "config.json"
    config.write_text(BertConfig(**{"architectures": ["BertForMaskedLM"], **changes}).to_json_string(use_diff=False))
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)


def test_a_model_that_hugging_face_has_no_class_for_is_not_written(tmp_path: Path) -> None:
    model = Bert(OurConfig(vocab=13, dim=24, depth=1, heads=2, head="classes", pooling="mean", pooler=None))
    with pytest.raises(WeightsError, match="no architecture for this Bert"):
        to_hugging_face(model, tmp_path / "ours")


def test_words_are_tied_in_what_hugging_face_reads_back(tmp_path: Path) -> None:
    back: Any = there_and_back(read(small("BertForMaskedLM"), tmp_path / "theirs"), BertForMaskedLM, tmp_path / "ours")
    assert back.cls.predictions.decoder.weight is back.bert.embeddings.word_embeddings.weight
