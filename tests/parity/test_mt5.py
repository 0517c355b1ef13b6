"""mT5 of Hugging Face's, and the encoders of T5 and mT5 alone, read and written."""

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
from tests.parity.comparison import close, read, saved, there_and_back
from tests.parity.seq2seq import PRESENT, SOURCE, both, compare, compare_again, compare_steps
from tests.parity.test_sentence import TEXTS, WORDS, ours_of, tokenizer

SIZES: dict[str, Any] = {"vocab_size": 11, "d_model": 24, "d_kv": 5, "d_ff": 40, "num_layers": 2, "num_heads": 3}
BUCKETS = {"relative_attention_num_buckets": 6, "relative_attention_max_distance": 7}
ENCODERS = ("T5EncoderModel", "MT5EncoderModel")


def small(kind: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    model = getattr(transformers, kind)
    return model(model.config_class(**{**SIZES, **BUCKETS, **changes})).eval()


def with_a_head_of_its_own(folder: Path) -> None:
    """As mT5 was published."""
    file = folder / "model.safetensors"
    save_file({**load_file(file), "lm_head.weight": torch.randn(11, 24)}, file, metadata={"format": "pt"})


@pytest.mark.parametrize("own_head", [False, True])
def test_logits_hidden_states_and_maps_of_mt5_are_those_of_hugging_face(own_head: bool, tmp_path: Path) -> None:
    saved(small("MT5ForConditionalGeneration", num_decoder_layers=3), tmp_path)
    if own_head:
        with_a_head_of_its_own(tmp_path)
    reference: Any = MT5ForConditionalGeneration.from_pretrained(tmp_path, attn_implementation="eager")
    actual: Any = from_hugging_face(tmp_path)
    assert actual.config.gated and not actual.config.scale_decoder_outputs and actual.config.tie_embeddings is not own_head
    compare(actual, reference.eval(), closing=True)
    compare_steps(actual, reference)
    back = there_and_back(actual, T5ForConditionalGeneration, tmp_path / "softlook")
    compare_again(back, reference)


def test_an_untied_config_without_an_lm_head_is_refused(tmp_path: Path) -> None:
    saved(small("MT5ForConditionalGeneration"), tmp_path)
    change(tmp_path, {"scale_decoder_outputs"}, tie_word_embeddings=False)
    with pytest.raises(WeightsError, match="lm_head"):
        from_hugging_face(tmp_path)


@pytest.mark.parametrize("told", [{"tie_word_embeddings": True}, {}])
def test_mt5_never_scales_decoder_outputs(config_fields: dict[str, Any], tmp_path: Path) -> None:
    actual, reference = both(small("MT5ForConditionalGeneration"), tmp_path)
    change(tmp_path, {"tie_word_embeddings", "scale_decoder_outputs"}, **config_fields)
    again: Any = from_hugging_face(tmp_path)
    assert again.config == actual.config
    with torch.no_grad():
        expected = reference(input_ids=SOURCE, attention_mask=PRESENT.long(), decoder_input_ids=SOURCE).logits
        close(again(SOURCE, SOURCE, source_padding_mask=PRESENT), expected)


@pytest.mark.parametrize("beams", [1, 3])
def test_generation_of_mt5_is_that_of_hugging_face(beams: int, tmp_path: Path) -> None:
    actual, reference = both(small("MT5ForConditionalGeneration"), tmp_path)
    settings = {"num_beams": beams, "max_length": 12}
    expected = reference.generate(SOURCE, **settings, do_sample=False)
    found = search_translations(
        actual, SOURCE.tolist(), begin=0, end=1, beams=beams, habits=GenerationConfig(max_new_tokens=11)
    )
    for row, hypotheses in zip(expected.tolist(), found, strict=True):
        output = row[1:]
        assert hypotheses[0].ids == (output[: output.index(1)] if 1 in output else output)


@pytest.mark.parametrize("kind", ENCODERS)
def test_states_of_an_encoder_are_those_of_hugging_face(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    actual = read(reference, tmp_path / "hf")
    assert isinstance(actual, T5Encoder)
    expected = reference(SOURCE, attention_mask=PRESENT.long()).last_hidden_state
    output = actual(SOURCE, padding_mask=PRESENT)
    close(output[PRESENT], expected[PRESENT])
    upstream = torch.randn_like(output) * PRESENT[..., None]
    output.backward(upstream)
    expected.backward(upstream)
    table = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    close(actual.get_parameter("encoder.relative_bias.table.weight").grad, reference.get_parameter(table).grad)  # pyright: ignore
    close(actual.get_parameter("token_embedding.weight").grad, reference.shared.weight.grad)  # pyright: ignore


@pytest.mark.parametrize("kind", ENCODERS)
def test_hugging_face_loads_an_exported_encoder(kind: str, tmp_path: Path) -> None:
    reference = small(kind)
    again: Any = load(save(read(reference, tmp_path / "hf"), tmp_path / "kept"))
    back = there_and_back(again, T5EncoderModel, tmp_path / "softlook")
    with torch.no_grad():
        close(back(SOURCE).last_hidden_state, reference(SOURCE).last_hidden_state, 1e-5)


def test_the_encoder_of_a_whole_t5_is_read_from_its_file(tmp_path: Path) -> None:
    """As embedding models were often published."""
    reference = small("T5ForConditionalGeneration")
    saved(reference, tmp_path)
    change(tmp_path, architectures=["T5EncoderModel"])
    actual: Any = from_hugging_face(tmp_path)
    with torch.no_grad():
        close(actual(SOURCE), reference.get_encoder()(SOURCE).last_hidden_state)


def test_vectors_of_sentences_are_those_of_sentence_transformers(tmp_path: Path) -> None:
    bare = saved(small("T5EncoderModel", vocab_size=len(WORDS), pad_token_id=1), tmp_path / "bare")
    tokenizer("T5EncoderModel", bare)
    reference = SentenceTransformer(modules=[Transformer(str(bare)), Pooling(24, "mean"), Normalize()], device="cpu")
    reference.save(str(tmp_path / "hf"), create_model_card=False)
    expected = reference.encode(TEXTS, convert_to_tensor=True)
    close(ours_of(tmp_path / "hf"), expected)
    written = to_hugging_face(from_hugging_face(tmp_path / "hf"), tmp_path / "softlook", tokenizer=tmp_path / "hf")
    close(ours_of(written), expected, 1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tie_encoder_decoder": True}, "this T5's decoder is its encoder"),
        ({"feed_forward_proj": "relu"}, "is_gated_act and dense_act_fn say otherwise"),
        ({"architectures": ["MT5ForSequenceClassification"]}, "of mT5, softlook knows MT5ForConditionalGeneration"),
    ],
)
def test_what_we_cannot_express_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
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
