"""Import and export of mT5, and of the encoders of T5 and mT5, in Hugging Face's format."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers import MT5Config, MT5ForConditionalGeneration, T5EncoderModel, T5ForConditionalGeneration

from softlook.base.errors import WeightsError
from softlook.decode.generation_config import GenerationConfig
from softlook.models import T5Encoder
from softlook.recipes.inference.translation import search_translations
from softlook.weights import from_hugging_face, load, save, to_hugging_face
from tests.parity.comparison import close, export_and_load, import_model, saved
from tests.parity.seq2seq import PADDING_MASK, SOURCE, compare, compare_export, compare_steps, load_both
from tests.parity.test_sentence import TEXTS, WORDS, embed_texts, tokenizer

SIZES: dict[str, Any] = {"vocab_size": 11, "d_model": 24, "d_kv": 5, "d_ff": 40, "num_layers": 2, "num_heads": 3}
BUCKETS = {"relative_attention_num_buckets": 6, "relative_attention_max_distance": 7}
ENCODERS = ("T5EncoderModel", "MT5EncoderModel")


def small(kind: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    model = getattr(transformers, kind)
    return model(model.config_class(**{**SIZES, **BUCKETS, **changes})).eval()


def add_lm_head(folder: Path) -> None:
    """Add a separate LM head, as in the published mT5."""
    file = folder / "model.safetensors"
    save_file({**load_file(file), "lm_head.weight": torch.randn(11, 24)}, file, metadata={"format": "pt"})


@pytest.mark.parametrize("untied", [False, True])
def test_logits_hidden_states_and_attention_maps_of_mt5_match_hugging_face(untied: bool, tmp_path: Path) -> None:
    saved(small("MT5ForConditionalGeneration", num_decoder_layers=3), tmp_path)
    if untied:
        add_lm_head(tmp_path)
    reference: Any = MT5ForConditionalGeneration.from_pretrained(tmp_path, attn_implementation="eager")
    actual: Any = from_hugging_face(tmp_path)
    assert actual.config.gated and not actual.config.scale_decoder_outputs
    assert actual.config.tie_embeddings is not untied
    compare(actual, reference.eval(), final_norm=True)
    compare_steps(actual, reference)
    back = export_and_load(actual, T5ForConditionalGeneration, tmp_path / "softlook")
    compare_export(back, reference)


def test_an_untied_config_without_an_lm_head_raises_an_error(tmp_path: Path) -> None:
    saved(small("MT5ForConditionalGeneration"), tmp_path)
    change(tmp_path, {"scale_decoder_outputs"}, tie_word_embeddings=False)
    with pytest.raises(WeightsError, match="lm_head"):
        from_hugging_face(tmp_path)


@pytest.mark.parametrize("fields", [{"tie_word_embeddings": True}, {}])
def test_mt5_never_scales_decoder_outputs(fields: dict[str, Any], tmp_path: Path) -> None:
    actual, reference = load_both(small("MT5ForConditionalGeneration"), tmp_path)
    change(tmp_path, {"tie_word_embeddings", "scale_decoder_outputs"}, **fields)
    again: Any = from_hugging_face(tmp_path)
    assert again.config == actual.config
    with torch.no_grad():
        expected = reference(input_ids=SOURCE, attention_mask=PADDING_MASK.long(), decoder_input_ids=SOURCE).logits
        close(again(SOURCE, SOURCE, source_padding_mask=PADDING_MASK), expected)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_generation_of_mt5_matches_hugging_face(num_beams: int, tmp_path: Path) -> None:
    actual, reference = load_both(small("MT5ForConditionalGeneration"), tmp_path)
    settings = {"num_beams": num_beams, "max_length": 12}
    expected = reference.generate(SOURCE, **settings, do_sample=False)
    config = GenerationConfig(max_new_tokens=11)
    found = search_translations(actual, SOURCE.tolist(), bos_id=0, eos_ids=1, num_beams=num_beams, config=config)
    for row, hypotheses in zip(expected.tolist(), found, strict=True):
        output = row[1:]
        assert hypotheses[0].ids == (output[: output.index(1)] if 1 in output else output)


@pytest.mark.parametrize("kind", ENCODERS)
def test_hidden_states_of_an_encoder_match_hugging_face(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    actual = import_model(reference, tmp_path / "hf")
    assert isinstance(actual, T5Encoder)
    expected = reference(SOURCE, attention_mask=PADDING_MASK.long()).last_hidden_state
    output = actual(SOURCE, padding_mask=PADDING_MASK)
    close(output[PADDING_MASK], expected[PADDING_MASK])
    upstream = torch.randn_like(output) * PADDING_MASK[..., None]
    output.backward(upstream)
    expected.backward(upstream)
    bias = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    close(actual.get_parameter("encoder.relative_bias.weight").grad, reference.get_parameter(bias).grad)  # pyright: ignore
    close(actual.get_parameter("token_embedding.weight").grad, reference.shared.weight.grad)  # pyright: ignore


@pytest.mark.parametrize("kind", ENCODERS)
def test_hugging_face_loads_an_exported_encoder(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    again: Any = load(save(import_model(reference, tmp_path / "hf"), tmp_path / "saved"))
    back = export_and_load(again, T5EncoderModel, tmp_path / "softlook")
    with torch.no_grad():
        close(back(SOURCE).last_hidden_state, reference(SOURCE).last_hidden_state, 1e-5)


def test_the_encoder_of_a_whole_t5_is_imported(tmp_path: Path) -> None:
    """Embedding models were often published in this form."""
    reference = small("T5ForConditionalGeneration")
    saved(reference, tmp_path)
    change(tmp_path, architectures=["T5EncoderModel"])
    actual: Any = from_hugging_face(tmp_path)
    with torch.no_grad():
        close(actual(SOURCE), reference.get_encoder()(SOURCE).last_hidden_state)


def test_sentence_embeddings_match_sentence_transformers(tmp_path: Path) -> None:
    base = saved(small("T5EncoderModel", vocab_size=len(WORDS), pad_token_id=1), tmp_path / "base")
    tokenizer("T5EncoderModel", base)
    reference = SentenceTransformer(modules=[Transformer(str(base)), Pooling(24, "mean"), Normalize()], device="cpu")
    reference.save(str(tmp_path / "hf"), create_model_card=False)
    expected = reference.encode(TEXTS, convert_to_tensor=True)
    close(embed_texts(tmp_path / "hf"), expected)
    exported = to_hugging_face(from_hugging_face(tmp_path / "hf"), tmp_path / "softlook", tokenizer=tmp_path / "hf")
    close(embed_texts(exported), expected, 1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tie_encoder_decoder": True}, "tie_encoder_decoder is not supported"),
        ({"feed_forward_proj": "relu"}, "is_gated_act and dense_act_fn contradict feed_forward_proj 'relu'"),
        ({"architectures": ["MT5ForSequenceClassification"]}, "supported classes of mT5: MT5ForConditionalGeneration"),
    ],
)
def test_unsupported_configs_raise_an_error(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    saved(small("MT5ForConditionalGeneration"), tmp_path)
    change(tmp_path, **changes)
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(tmp_path)


def test_missing_config_fields_have_hugging_face_s_defaults(tmp_path: Path) -> None:
    saved(small("MT5ForConditionalGeneration", d_ff=1024, num_layers=8, num_heads=6), tmp_path)
    change(tmp_path, {"d_ff", "num_layers", "num_heads", "num_decoder_layers", "feed_forward_proj"})
    actual: Any = from_hugging_face(tmp_path)
    assert (actual.config.hidden, actual.config.depth, actual.config.heads, actual.config.gated) == (1024, 8, 6, True)
    assert MT5Config().feed_forward_proj == "gated-gelu"


def change(folder: Path, without: set[str] | None = None, /, **fields: Any) -> None:
    file = folder / "config.json"
    kept = {name: value for name, value in json.loads(file.read_text()).items() if name not in (without or ())}
    file.write_text(json.dumps(kept | fields))
