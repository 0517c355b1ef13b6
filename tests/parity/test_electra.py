"""Import and export of ELECTRA, discriminator and generator, with each of its heads in Hugging Face's format."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import ElectraConfig, ElectraForMaskedLM

from softlook.base.errors import WeightsError
from softlook.models import Bert
from softlook.models import BertConfig as SoftlookConfig
from softlook.weights import from_hugging_face, load, save, to_hugging_face
from softlook.weights.architectures.bert import ELECTRA
from tests.parity.comparison import export_and_load, import_model, saved
from tests.parity.encoders import SIZES, TOKEN_TYPES, check_export, check_gradients, check_outputs, check_padding

VARIANTS: dict[str, dict[str, Any]] = {
    "embedding projection": {},
    "no embedding projection": {"embedding_size": 24},
    "three token types, another eps": {"type_vocab_size": 3, "layer_norm_eps": 1e-2},
}


def small(kind: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    labels = {"num_labels": 2} if ELECTRA.head_by_class[kind] == "question_answering" else {}
    fixed = {"max_position_embeddings": 16, "embedding_size": 10}
    config = ElectraConfig(**{**SIZES, **sizes, **labels, **fixed, **changes})
    return getattr(transformers, kind)._from_config(config, attn_implementation="eager").eval()


@pytest.mark.parametrize("kind", ELECTRA.head_by_class)
@pytest.mark.parametrize("variant", VARIANTS)
def test_outputs_hidden_states_and_attention_maps_match_hugging_face(kind: str, variant: str, tmp_path: Path) -> None:
    reference = small(kind, **VARIANTS[variant])
    actual = import_model(reference, tmp_path / "hf")
    assert actual.config.head == ELECTRA.head_by_class[kind]
    check_outputs(actual, reference, {"token_type_ids": TOKEN_TYPES})


@pytest.mark.parametrize("kind", ELECTRA.head_by_class)
def test_gradients_match_hugging_face(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    check_gradients(import_model(reference, tmp_path / "hf"), reference, ELECTRA)


@pytest.mark.parametrize("kind", ELECTRA.head_by_class)
def test_padding_matches_hugging_face(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    check_padding(import_model(reference, tmp_path / "hf"), reference, pad=0)


@pytest.mark.parametrize("kind", ELECTRA.head_by_class)
def test_hugging_face_loads_the_export_with_the_same_outputs(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    actual = import_model(reference, tmp_path / "hf")
    back = export_and_load(actual, type(reference), tmp_path / "softlook")
    assert back.config.architectures == [kind]
    check_export(back, reference, actual.config.head)


@pytest.mark.parametrize("kind", ["ElectraForMaskedLM", "ElectraForTokenClassification"])
def test_electra_without_an_embedding_projection_is_exported_as_bert(kind: str, tmp_path: Path) -> None:
    reference = small(kind, embedding_size=24)
    actual = import_model(reference, tmp_path / "hf")
    back = export_and_load(actual, getattr(transformers, kind.replace("Electra", "Bert")), tmp_path / "softlook")
    check_export(back, reference, actual.config.head)


def test_an_untied_lm_head_is_imported(tmp_path: Path) -> None:
    reference = small("ElectraForMaskedLM", tie_word_embeddings=False)
    actual = import_model(reference, tmp_path / "hf")
    check_outputs(actual, reference, {})
    check_export(export_and_load(actual, ElectraForMaskedLM, tmp_path / "softlook"), reference, "masked_lm")


def test_an_imported_model_can_be_saved_as_a_checkpoint(tmp_path: Path) -> None:
    actual = import_model(small("ElectraForPreTraining"), tmp_path / "hf")
    again: Any = load(save(actual, tmp_path / "softlook"))
    assert again.config == actual.config
    assert torch.equal(again.project_in.weight, actual.project_in.weight)


UNSUPPORTED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a decoder": ("ElectraModel", {"is_decoder": True}, "is_decoder and add_cross_attention are not supported"),
    "two activations": ("ElectraForMaskedLM", {"hidden_act": "relu"}, "hidden_act 'relu' is not supported for ELECTRA"),
    "another summary": ("ElectraForMultipleChoice", {"summary_type": "mean"}, "summary_type, .* must be 'first'"),
    "no projection": ("ElectraForMultipleChoice", {"summary_use_proj": False}, "summary_type, .* must be 'first'"),
    "no activation": ("ElectraForMultipleChoice", {"summary_activation": "tanh"}, "summary_type, .* must be 'first'"),
    "another class": ("ElectraForCausalLM", {}, "supported classes of ELECTRA: ElectraModel"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported_configs_raise_an_error(case: str, tmp_path: Path) -> None:
    kind, changes, message = UNSUPPORTED[case]
    folder = saved(small(kind if kind in ELECTRA.head_by_class else "ElectraModel"), tmp_path / "hf")
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"architectures": [kind], **changes}))
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"head": "next_sentence"},
        {"head": "masked_lm", "activation": "relu"},
        {"position_offset": 2},
        {"token_types": 0},
        {"head": "pooled"},
    ],
)
def test_a_projected_embedding_is_never_exported_as_another_architecture(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    model = Bert(
        SoftlookConfig(**{"vocab_size": 13, "dim": 24, "embedding_dim": 10, "depth": 1, "heads": 2, **changes})
    )
    with pytest.raises(WeightsError, match="no architecture for this Bert"):
        to_hugging_face(model, tmp_path / "softlook")
