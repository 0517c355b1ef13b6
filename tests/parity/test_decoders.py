"""Import and export of Hugging Face's decoders as configs of softlook's Llama and GPT."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification, DynamicCache

from softlook import masks
from softlook.base.errors import WeightsError
from softlook.blocks import KVCache
from softlook.weights import from_hugging_face, load, save
from tests.parity.comparison import close, export_and_load, import_model, saved, states
from tests.parity.decoders import FAMILIES, IDS, LENGTHS, PAD, UNSUPPORTED, VARIANTS, left_padded, small


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_logits_and_hidden_states_match_hugging_face(name: str, variant: str, tmp_path: Path) -> None:
    reference = small(name, variant)
    actual = import_model(reference, tmp_path / "hf")
    with states(actual.blocks) as actual_states, torch.no_grad():
        logits, expected = actual(IDS), reference(IDS, output_hidden_states=True)
    close(logits, expected.logits)
    for one, other in zip(
        actual_states[:-1], expected.hidden_states[1:-1], strict=True
    ):  # the reference normalizes its last state
        close(one, other)


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_match_hugging_face(name: str, tmp_path: Path) -> None:
    reference = small(name)
    actual = import_model(reference, tmp_path / "hf")
    upstream = torch.randn(2, 9, reference.config.vocab_size)
    actual(IDS).backward(upstream)
    reference(IDS).logits.backward(upstream)
    close(actual.token_embedding.weight.grad, reference.get_input_embeddings().weight.grad)
    close(actual.lm_head.weight.grad, reference.get_output_embeddings().weight.grad)


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_decoding_with_a_cache_matches_hugging_face_beyond_the_window(name: str, variant: str, tmp_path: Path) -> None:
    reference = small(name, variant)
    actual = import_model(reference, tmp_path / "hf")
    cache, reference_cache = KVCache(), DynamicCache(config=reference.config)
    with torch.no_grad():
        for start, stop in ((0, 2), (2, 3), (3, 7), (7, 8), (8, 9)):
            expected = reference(IDS[:, start:stop], past_key_values=reference_cache, use_cache=True).logits
            close(actual(IDS[:, start:stop], cache=cache), expected)


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_padding_matches_hugging_face(name: str, variant: str, tmp_path: Path) -> None:
    reference = small(name, variant)
    actual = import_model(reference, tmp_path / "hf")
    padding_mask, positions = left_padded()
    takes_positions = "position_ids" in inspect.signature(reference.forward).parameters
    more = {"position_ids": positions} if takes_positions else {}
    with torch.no_grad():
        logits = actual(IDS, mask=masks.padding(LENGTHS, side="left", length=9), positions=positions)
        expected = reference(IDS, attention_mask=padding_mask.long(), **more).logits
        close(logits[padding_mask], expected[padding_mask])
        close(actual(IDS, padding_mask=padding_mask, positions=positions)[padding_mask], expected[padding_mask])
        padding_mask = padding_mask.flip(1)
        expected = reference(IDS, attention_mask=padding_mask.long()).logits
        close(actual(IDS, mask=masks.padding(LENGTHS))[padding_mask], expected[padding_mask])


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_hugging_face_loads_the_export_with_the_same_logits(name: str, variant: str, tmp_path: Path) -> None:
    reference = small(name, variant)
    actual = import_model(reference, tmp_path / "hf")
    back = export_and_load(actual, AutoModelForCausalLM, tmp_path / "softlook")  # pyright: ignore
    save(actual, tmp_path / "saved")
    with torch.no_grad():
        close(back(IDS).logits, reference(IDS).logits, 1e-5)
        assert torch.equal(load(tmp_path / "saved")(IDS), actual(IDS))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_without_a_head_returns_hidden_states(name: str, tmp_path: Path) -> None:
    reference = small(name, kind="hidden_states")
    actual = import_model(reference, tmp_path / "hf")
    back = export_and_load(actual, AutoModel, tmp_path / "softlook")  # pyright: ignore
    with torch.no_grad():
        expected = reference(IDS).last_hidden_state
        close(actual(IDS), expected)
        close(back(IDS).last_hidden_state, expected, 1e-5)


@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("name", FAMILIES)
def test_classes_are_predicted_from_the_last_token_that_is_not_padding(name: str, classes: int, tmp_path: Path) -> None:
    reference = small(name, kind="classification", num_labels=classes)
    actual = import_model(reference, tmp_path / "hf")
    back = export_and_load(actual, AutoModelForSequenceClassification, tmp_path / "softlook")  # pyright: ignore
    padding_mask = torch.arange(9) < LENGTHS[:, None]
    ids = IDS.masked_fill(~padding_mask, PAD)
    with torch.no_grad():
        expected = reference(ids, attention_mask=padding_mask.long()).logits
        assert expected.shape == (2, classes)
        close(actual(ids), reference(ids).logits)
        close(actual(ids, padding_mask=padding_mask), expected)
        close(back(ids, attention_mask=padding_mask.long()).logits, expected, 1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_without_a_padding_id_classes_are_predicted_from_the_last_token(name: str, tmp_path: Path) -> None:
    reference = small(name, kind="classification", pad_token_id=None)
    actual = import_model(reference, tmp_path / "hf")
    ids = torch.tensor([[5, 3, PAD]])
    with torch.no_grad():
        close(actual(ids), reference(ids).logits)


@pytest.mark.parametrize("name", FAMILIES)
def test_an_lm_head_in_the_file_is_used_whatever_the_config(name: str, tmp_path: Path) -> None:
    reference = small(name, tie_word_embeddings=False)
    folder = change_config(saved(reference, tmp_path / "hf"), tie_word_embeddings=True)
    with torch.no_grad():
        close(from_hugging_face(folder)(IDS), type(reference).from_pretrained(folder)(IDS).logits)
        close(from_hugging_face(folder)(IDS), reference(IDS).logits)


@pytest.mark.parametrize(("name", "variant"), UNSUPPORTED)
def test_unsupported_configs_raise_an_error(name: str, variant: str, tmp_path: Path) -> None:
    fields, message = FAMILIES[name].unsupported[variant]
    folder = change_config(saved(small(name), tmp_path / "hf"), **fields)
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)


@pytest.mark.parametrize("name", FAMILIES)
def test_other_heads_raise_an_error(name: str, tmp_path: Path) -> None:
    folder = change_config(saved(small(name), tmp_path / "hf"), architectures=["SomethingForTokenClassification"])
    with pytest.raises(WeightsError, match="holds a 'SomethingForTokenClassification'"):
        from_hugging_face(folder)


def change_config(folder: Path, **fields: Any) -> Path:
    """Change fields of config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | fields), encoding="utf-8")
    return folder


def test_the_older_config_form_of_gemma_3_gives_the_same_model(tmp_path: Path) -> None:
    reference = small("gemma3", "other thetas")
    folder = saved(reference, tmp_path / "hf")
    expected = from_hugging_face(folder)(IDS)
    older = {"rope_theta": 200.0, "rope_local_base_freq": 20.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
    change_config(folder, rope_parameters=None, layer_types=None, sliding_window_pattern=2, **older)
    close(from_hugging_face(folder)(IDS), expected, 0.0)
    with torch.no_grad():
        close(type(reference).from_pretrained(folder, attn_implementation="eager")(IDS).logits, expected)


def test_norms_and_embeddings_of_gemma_are_exact_in_half_precision(tmp_path: Path) -> None:
    reference = small("gemma2", hidden_size=40).bfloat16()
    actual = import_model(reference, tmp_path / "hf")
    with torch.no_grad():
        x = reference.get_input_embeddings()(IDS)
        assert torch.equal(actual.token_embedding(IDS), x)
        assert torch.equal(actual.final_norm(x), reference.model.norm(x))
