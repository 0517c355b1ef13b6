"""Decoders of Hugging Face's as settings of softlook's Llama and GPT, read and written."""

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
from tests.parity.comparison import close, read, saved, states, there_and_back
from tests.parity.decoders import FAMILIES, IDS, LENGTHS, PAD, REFUSED, VARIANTS, left_padded, small


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_logits_and_hidden_states_are_those_of_hugging_face(name: str, variant: str, tmp_path: Path) -> None:
    reference = small(name, variant)
    actual = read(reference, tmp_path / "hf")
    with states(actual.blocks) as our_states, torch.no_grad():
        logits, expected = actual(IDS), reference(IDS, output_hidden_states=True)
    close(logits, expected.logits)
    for one, other in zip(our_states[:-1], expected.hidden_states[1:-1], strict=True):  # their last one is normed
        close(one, other)


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_match_hugging_face(name: str, tmp_path: Path) -> None:
    reference = small(name)
    actual = read(reference, tmp_path / "hf")
    upstream = torch.randn(2, 9, reference.config.vocab_size)
    actual(IDS).backward(upstream)
    reference(IDS).logits.backward(upstream)
    close(actual.token_embedding.weight.grad, reference.get_input_embeddings().weight.grad)
    close(actual.head.weight.grad, reference.get_output_embeddings().weight.grad)


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_decoding_with_a_cache_is_that_of_hugging_face_beyond_the_window_too(
    name: str, variant: str, tmp_path: Path
) -> None:
    reference = small(name, variant)
    actual = read(reference, tmp_path / "hf")
    memory, cache = KVCache(), DynamicCache(config=reference.config)
    with torch.no_grad():
        for start, stop in ((0, 2), (2, 3), (3, 7), (7, 8), (8, 9)):
            expected = reference(IDS[:, start:stop], past_key_values=cache, use_cache=True).logits
            close(actual(IDS[:, start:stop], cache=memory), expected)


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_padding_matches_hugging_face(name: str, variant: str, tmp_path: Path) -> None:
    reference = small(name, variant)
    actual = read(reference, tmp_path / "hf")
    present, positions = left_padded()
    config_fields = (
        {"position_ids": positions} if "position_ids" in inspect.signature(reference.forward).parameters else {}
    )
    with torch.no_grad():
        logits = actual(IDS, mask=masks.padding(LENGTHS, side="left", length=9), positions=positions)
        expected = reference(IDS, attention_mask=present.long(), **config_fields).logits
        close(logits[present], expected[present])
        close(actual(IDS, padding_mask=present, positions=positions)[present], expected[present])
        present = present.flip(1)
        expected = reference(IDS, attention_mask=present.long()).logits
        close(actual(IDS, mask=masks.padding(LENGTHS))[present], expected[present])


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_hugging_face_loads_the_export_with_the_same_logits(name: str, variant: str, tmp_path: Path) -> None:
    reference = small(name, variant)
    actual = read(reference, tmp_path / "hf")
    back = there_and_back(actual, AutoModelForCausalLM, tmp_path / "softlook")  # pyright: ignore
    save(actual, tmp_path / "kept")
    with torch.no_grad():
        close(back(IDS).logits, reference(IDS).logits, 1e-5)
        assert torch.equal(load(tmp_path / "kept")(IDS), actual(IDS))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_without_a_head_gives_its_states(name: str, tmp_path: Path) -> None:
    reference = small(name, kind="hidden_states")
    actual = read(reference, tmp_path / "hf")
    back = there_and_back(actual, AutoModel, tmp_path / "softlook")  # pyright: ignore
    with torch.no_grad():
        expected = reference(IDS).last_hidden_state
        close(actual(IDS), expected)
        close(back(IDS).last_hidden_state, expected, 1e-5)


@pytest.mark.parametrize("classification", [1, 3])
@pytest.mark.parametrize("name", FAMILIES)
def test_classes_are_read_off_the_last_token_that_is_no_padding(name: str, classes: int, tmp_path: Path) -> None:
    reference = small(name, kind="classification", num_labels=classes)
    actual = read(reference, tmp_path / "hf")
    back = there_and_back(actual, AutoModelForSequenceClassification, tmp_path / "softlook")  # pyright: ignore
    present = torch.arange(9) < LENGTHS[:, None]
    ids = IDS.masked_fill(~present, PAD)
    with torch.no_grad():
        expected = reference(ids, attention_mask=present.long()).logits
        assert expected.shape == (2, classes)
        close(actual(ids), reference(ids).logits)
        close(actual(ids, padding_mask=present), expected)
        close(back(ids, attention_mask=present.long()).logits, expected, 1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_without_an_id_for_padding_classes_are_read_off_the_last_token(name: str, tmp_path: Path) -> None:
    reference = small(name, kind="classification", pad_token_id=None)
    actual = read(reference, tmp_path / "hf")
    ids = torch.tensor([[5, 3, PAD]])
    with torch.no_grad():
        close(actual(ids), reference(ids).logits)


@pytest.mark.parametrize("name", FAMILIES)
def test_an_lm_head_in_the_file_is_used_whatever_the_config(name: str, tmp_path: Path) -> None:
    reference = small(name, tie_word_embeddings=False)
    folder = changed(saved(reference, tmp_path / "hf"), tie_word_embeddings=True)
    with torch.no_grad():
        close(from_hugging_face(folder)(IDS), type(reference).from_pretrained(folder)(IDS).logits)
        close(from_hugging_face(folder)(IDS), reference(IDS).logits)


@pytest.mark.parametrize(("name", "variant"), REFUSED)
def test_what_cannot_be_expressed_is_refused(name: str, variant: str, tmp_path: Path) -> None:
    fields, message = FAMILIES[name].refused[variant]
    folder = changed(saved(small(name), tmp_path / "hf"), **fields)
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)


@pytest.mark.parametrize("name", FAMILIES)
def test_other_heads_are_refused(name: str, tmp_path: Path) -> None:
    folder = changed(saved(small(name), tmp_path / "hf"), architectures=["SomethingForTokenClassification"])
    with pytest.raises(WeightsError, match="holds a 'SomethingForTokenClassification'"):
        from_hugging_face(folder)


def changed(folder: Path, **fields: Any) -> Path:
    """A folder whose config says something else."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | fields), encoding="utf-8")
    return folder


def test_the_older_config_form_of_gemma_3_gives_the_same_model(tmp_path: Path) -> None:
    reference = small("gemma3", "other bases")
    folder = saved(reference, tmp_path / "hf")
    expected = from_hugging_face(folder)(IDS)
    older = {"rope_theta": 200.0, "rope_local_base_freq": 20.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
    changed(folder, rope_parameters=None, layer_types=None, sliding_window_pattern=2, **older)
    close(from_hugging_face(folder)(IDS), expected, 0.0)
    with torch.no_grad():
        close(type(reference).from_pretrained(folder, attn_implementation="eager")(IDS).logits, expected)


def test_norms_and_embeddings_of_gemma_are_exact_in_half_precision(tmp_path: Path) -> None:
    reference = small("gemma2", hidden_size=40).bfloat16()
    actual = read(reference, tmp_path / "hf")
    with torch.no_grad():
        x = reference.get_input_embeddings()(IDS)
        assert torch.equal(actual.tokens(IDS), x)
        assert torch.equal(actual.norm(x), reference.model.norm(x))
