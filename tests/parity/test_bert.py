"""Import and export of BERT with each of its heads in Hugging Face's format."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, BertForPreTraining, BertForSequenceClassification, BertModel

from softlook.base.errors import WeightsError
from softlook.models import Bert
from softlook.models import BertConfig as SoftlookConfig
from softlook.weights import from_hugging_face, load, save, to_hugging_face
from softlook.weights.architectures.bert import BERT
from tests.parity.comparison import close, export_and_load, import_model, saved
from tests.parity.encoders import IDS, SIZES, TOKEN_TYPES, check_export, check_gradients, check_outputs, check_padding

VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {},
    "another activation": {"hidden_act": "gelu_new"},
    "three token types, another eps": {"type_vocab_size": 3, "layer_norm_eps": 1e-2},
}


def small(kind: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    config = BertConfig(**{**SIZES, **sizes, **labels(kind), "max_position_embeddings": 16, **changes})
    return getattr(transformers, kind)._from_config(config, attn_implementation="eager").eval()


def labels(kind: str) -> dict[str, int]:
    return {"num_labels": 2} if BERT.head_by_class[kind] == "question_answering" else {}


@pytest.mark.parametrize("kind", BERT.head_by_class)
@pytest.mark.parametrize("variant", VARIANTS)
def test_outputs_hidden_states_and_attention_maps_match_hugging_face(kind: str, variant: str, tmp_path: Path) -> None:
    reference = small(kind, **VARIANTS[variant])
    actual = import_model(reference, tmp_path / "hf")
    assert actual.config.head == BERT.head_by_class[kind]
    check_outputs(actual, reference, {"token_type_ids": TOKEN_TYPES})
    check_outputs(actual, reference, {})


@pytest.mark.parametrize("kind", BERT.head_by_class)
def test_gradients_match_hugging_face(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    check_gradients(import_model(reference, tmp_path / "hf"), reference, BERT)


@pytest.mark.parametrize("kind", BERT.head_by_class)
def test_padding_matches_hugging_face(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    check_padding(import_model(reference, tmp_path / "hf"), reference, pad=0)


@pytest.mark.parametrize("kind", BERT.head_by_class)
def test_hugging_face_loads_the_export_with_the_same_outputs(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    actual = import_model(reference, tmp_path / "hf")
    back = export_and_load(actual, type(reference), tmp_path / "softlook")
    assert back.config.architectures == [kind]
    check_export(back, reference, actual.config.head)


@pytest.mark.parametrize("kind", BERT.head_by_class)
def test_an_imported_model_can_be_saved_as_a_checkpoint(kind: str, tmp_path: Path) -> None:
    actual = import_model(small(kind), tmp_path / "hf")
    again: Any = load(save(actual, tmp_path / "softlook"))
    assert again.config == actual.config
    for one, other in zip(again.state_dict().values(), actual.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_a_model_saved_without_its_pooler_returns_hidden_states(tmp_path: Path) -> None:
    reference = BertModel(small("BertModel").config, add_pooling_layer=False).eval()
    actual = import_model(reference, tmp_path / "hf")
    assert actual.config.head == "hidden_states"
    with torch.no_grad():
        close(actual(IDS), reference(IDS).last_hidden_state)
    # transformers' class has a pooler unless add_pooling_layer=False.
    back: Any = BertModel.from_pretrained(to_hugging_face(actual, tmp_path / "softlook"), add_pooling_layer=False)
    with torch.no_grad():
        close(back.eval()(IDS).last_hidden_state, reference(IDS).last_hidden_state, 1e-6)


def test_the_base_model_is_exported_without_a_prefix(tmp_path: Path) -> None:
    to_hugging_face(import_model(small("BertModel"), tmp_path / "hf"), tmp_path / "softlook")
    names = [load_file(tmp_path / folder / "model.safetensors").keys() for folder in ("hf", "softlook")]
    assert names[0] == names[1]


def test_old_names_of_norms_and_tensors_of_other_heads_are_supported(tmp_path: Path) -> None:
    """As in BERT's original checkpoints: all heads of pretraining, of which only the masked LM head is used."""
    reference = small("BertForPreTraining")
    path = saved(reference, tmp_path / "hf") / "model.safetensors"
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in load_file(path).items()
    }
    assert any("gamma" in name for name in old)
    save_file({**old, "bert.embeddings.position_ids": torch.arange(16)[None]}, path, {"format": "pt"})
    config = path.with_name("config.json")
    config.write_text(config.read_text().replace("BertForPreTraining", "BertForMaskedLM"))
    actual: Any = from_hugging_face(path.parent)
    assert isinstance(reference, BertForPreTraining)
    with torch.no_grad():
        close(actual(IDS), reference(IDS).prediction_logits)


def test_the_default_number_of_classes_is_two(tmp_path: Path) -> None:
    reference = small("BertForSequenceClassification", num_labels=2)
    folder = saved(reference, tmp_path / "hf")
    config = folder / "config.json"
    assert "num_labels" not in config.read_text()
    actual: Any = from_hugging_face(folder)
    assert actual.config.classes == 2


def test_one_class_is_imported_as_regression(tmp_path: Path) -> None:
    reference = small("BertForSequenceClassification", num_labels=1)
    actual = import_model(reference, tmp_path / "hf")
    with torch.no_grad():
        close(actual(IDS), reference(IDS).logits)
        back = export_and_load(actual, BertForSequenceClassification, tmp_path / "softlook")
        close(back(IDS).logits, reference(IDS).logits, 1e-6)


UNSUPPORTED: dict[str, tuple[dict[str, Any], str]] = {
    "a decoder": ({"is_decoder": True}, "is_decoder and add_cross_attention are not supported"),
    "relative positions": (
        {"position_embedding_type": "relative_key"},
        "position_embedding_type 'relative_key' is not supported",
    ),
    "an unknown activation": ({"hidden_act": "mish"}, "activation 'mish' is not supported"),
    "no width": ({"hidden_size": 0}, "hidden_size: Input should be greater than 0"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported_configs_raise_an_error(case: str, tmp_path: Path) -> None:
    changes, message = UNSUPPORTED[case]
    folder = saved(small("BertForMaskedLM"), tmp_path / "hf")
    config = folder / "config.json"
    config.write_text(BertConfig(**{"architectures": ["BertForMaskedLM"], **changes}).to_json_string(use_diff=False))
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)


def test_a_model_without_a_hugging_face_class_raises_an_error(tmp_path: Path) -> None:
    model = Bert(
        SoftlookConfig(vocab_size=13, dim=24, depth=1, heads=2, head="classification", pooling="mean", pooler=None)
    )
    with pytest.raises(WeightsError, match="no architecture for this Bert"):
        to_hugging_face(model, tmp_path / "softlook")


def test_embeddings_are_tied_in_the_export(tmp_path: Path) -> None:
    back: Any = export_and_load(
        import_model(small("BertForMaskedLM"), tmp_path / "hf"), BertForMaskedLM, tmp_path / "softlook"
    )
    assert back.cls.predictions.decoder.weight is back.bert.embeddings.word_embeddings.weight
