"""Pipelines: generation, translation, classification and embeddings in Python."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from softlook.base.errors import ConfigError
from softlook.data import LabeledText
from softlook.models import T5, Bert, BertConfig, RNNSearch, RNNSearchConfig, T5Config
from softlook.recipes.inference import (
    GenerationParams,
    Pipeline,
    classify,
    embed,
    generate,
    load_pipeline,
    stream,
    translate,
)
from softlook.recipes.inference.encoding import tokenize
from softlook.recipes.inference.pipeline import TextInput
from softlook.recipes.inference.translation import Alignment, compute_alignments
from softlook.recipes.text.classification_scores import predict_logits
from softlook.recipes.text.labeled_texts import ClassificationCollator
from softlook.recipes.text.problems import SingleLabel
from softlook.tokens import TextTokenizer
from softlook.weights.assets import SpecialTokens
from tests.recipes.trained_runs import train_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return train_runs(tmp_path_factory.mktemp("runs"), "lm", "classify")


@pytest.fixture(scope="module")
def language_model(runs: dict[str, Path]) -> Pipeline:
    return load_pipeline(runs["lm"], device="cpu")


def test_generated_texts_do_not_depend_on_the_batch(language_model: Pipeline) -> None:
    prompts = ["the cat", "", "my king sees the moon 3 .", "the"]
    params = GenerationParams(seed=5, max_new_tokens=6)
    batched = generate(language_model, prompts, params, num_samples=2)
    assert [one.prompt for one in batched] == [prompt for prompt in prompts for _ in range(2)]
    for index, prompt in enumerate(prompts):
        single = generate(language_model, [prompt], params, num_samples=2, indices=[index])
        assert [one.text for one in single] == [one.text for one in batched[2 * index : 2 * index + 2]]


def test_streamed_text_equals_generated_text(language_model: Pipeline) -> None:
    params = GenerationParams(seed=5, max_new_tokens=12, stop=("e",), repetition_penalty=1.2)
    for number in range(3):
        (generated,) = generate(language_model, ["the cat"], params, indices=[number])
        assert "".join(stream(language_model, "the cat", params, index=number)) == generated.text
        assert "e" not in generated.text


def test_texts_beyond_the_context_do_not_depend_on_the_batch(
    language_model: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    never_ends = replace(language_model, special_tokens=replace(language_model.special_tokens, eos=()))
    context = language_model.model.config.context
    prompts = ["the cat", "the cat sees fish 1 . " * context, "the moon " * 9, "my king " * context]
    params = GenerationParams(seed=5, max_new_tokens=2 * context, context_shift=True)
    batched = generate(never_ends, prompts, params)
    assert [record.message for record in caplog.records] == [
        f"2 prompts of up to {22 * context + 1:,} tokens do not fit into the context of {context}: "
        f"the model reads the last {context // 2} tokens of each"
    ]
    for index, (prompt, generated) in enumerate(zip(prompts, batched, strict=True)):
        assert len(generated.tokens) == 2 * context
        assert "".join(stream(never_ends, prompt, params, index=index)) == generated.text


def test_without_context_shift_the_default_limit_of_new_tokens_is_the_context(language_model: Pipeline) -> None:
    context = language_model.model.config.context
    prompt = "the cat sees fish 1 .\n" * 5
    params = GenerationParams(temperature=0, context_shift=False)
    generated = generate(language_model, [prompt], params)[0]
    length = len(language_model.tokenizer.encode([prompt])[0]) + 1
    assert generated.finish_reason == "eos" or len(generated.tokens) == context - length
    with pytest.raises(ConfigError, match="expected a temperature of at least 0, got -1"):
        generate(language_model, ["a"], GenerationParams(temperature=-1))


def test_classes_equal_those_in_training(runs: dict[str, Path]) -> None:
    run = load_pipeline(runs["classify"], device="cpu")
    inputs = [
        TextInput("film 1 was lovely"),
        TextInput("film"),
        TextInput("a film", "and a second text"),
        TextInput("x" * 900),
    ]
    collator = ClassificationCollator(run.tokenizer, run.model.config.context, SingleLabel(run.labels))
    examples = [LabeledText(one.text, one.pair, "") for one in inputs]
    items = collator.encode(examples)
    expected = predict_logits(run.model, collator, items).softmax(-1)
    found = classify(run, inputs)
    actual = torch.tensor([[one.classes[name] for name in run.labels] for one in found])
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(embed(run, inputs)[1], embed(run, ["film"])[0])
    assert classify(run, []) == []


def imported_tokenizer() -> TextTokenizer:
    words = Tokenizer(WordLevel({word: id for id, word in enumerate(("[UNK]", "[CLS]", "[SEP]", "a", "b"))}, "[UNK]"))
    words.pre_tokenizer = Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    words.post_processor = TemplateProcessing(  # pyright: ignore[reportAttributeAccessIssue]
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return TextTokenizer(words)


@pytest.mark.parametrize("token_types", [0, 1, 2])
def test_imported_tokenizers_add_their_own_special_tokens(token_types: int) -> None:
    model = Bert(
        BertConfig(vocab_size=5, context=6, dim=8, depth=1, heads=2, token_types=token_types, head="classification")
    ).eval()
    run = Pipeline("m", model, imported_tokenizer(), SpecialTokens(), ["no", "yes"], torch.device("cpu"))
    one, two, truncated = tokenize(run, [TextInput("a"), TextInput("a", "b"), TextInput("a b a b a b a b")])
    assert list(one.ids) == [1, 3, 2] and list(two.ids) == [1, 3, 2, 2, 4, 2] and len(truncated.ids) == 6
    assert max(two.token_types) == 1
    assert len(classify(run, ["a", ("a", "b")])) == 2


@pytest.mark.parametrize("kind", ["T5", "RNNSearch"])
def test_every_translation_model_has_alignments(kind: str) -> None:
    pipeline = load_pipeline("dates", device="cpu")
    vocab = pipeline.tokenizer.vocab_size
    torch.manual_seed(0)
    makers = {
        "T5": lambda: T5(T5Config(vocab_size=vocab, dim=16, depth=2, heads=2, head_dim=8, hidden=16)),
        "RNNSearch": lambda: RNNSearch(
            RNNSearchConfig(source_vocab_size=vocab, target_vocab_size=vocab, dim=8, hidden=8, readout=8)
        ),
    }
    run = replace(pipeline, model=makers[kind]().eval())
    rows = [[*ids, pipeline.tokenizer.eos_id] for ids in pipeline.tokenizer.encode(["3 mars", "le 25 mai 1999"])]
    target_ids = pipeline.tokenizer.encode(["2022-03", "1"])
    for one, single in zip(
        compute_alignments(run, rows, target_ids),
        [compute_alignments(run, [row], [ids])[0] for row, ids in zip(rows, target_ids, strict=True)],
        strict=True,
    ):
        torch.testing.assert_close(one.weights, single.weights)
        assert one.weights.shape == (len(one.target), len(one.source))
        assert (
            (one.weights.sum(1) > 0) & (one.weights.sum(1) < 1)
        ).all()  # the end-of-sequence token of the source has the rest


def test_words_are_aligned_by_all_their_tokens() -> None:
    weights = torch.tensor([[0.5, 0.0, 0.3, 0.3], [0.0, 0.0, 0.4, 0.4], [0.9, 0.0, 0.0, 0.0]])
    alignment = Alignment(["the", " ", "ca", "t"], ["Kat", "ze", " die"], weights)
    assert alignment.token_pairs() == [(0, 0), (0, 2), (2, 1)]
    assert alignment.word_pairs() == [(0, 1), (1, 0)]
    assert Alignment([], ["a"], torch.zeros(1, 0)).word_pairs() == []


def test_translations_do_not_depend_on_the_batch() -> None:
    pipeline = load_pipeline("dates", device="cpu")
    texts = ["3 mars 2022", "", "donnerstag, den 25. dezember 1999", "1/2/03"]
    batched = translate(pipeline, texts, num_beams=1, with_alignment=True)
    assert [one.source for one in batched] == texts and batched[1].candidates == []
    for text, one in list(zip(texts, batched, strict=True))[2:]:
        (single,) = translate(pipeline, [text], num_beams=1, with_alignment=True)
        assert single.text == one.text and single.candidates[0].score == pytest.approx(
            one.candidates[0].score, abs=1e-4
        )
        assert one.candidates[0].alignment is not None and single.candidates[0].alignment is not None
        torch.testing.assert_close(one.candidates[0].alignment.weights, single.candidates[0].alignment.weights)


@pytest.mark.parametrize("device", ["cuda:0", "mps"])
def test_int8_needs_a_cpu(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softlook.recipes.inference.pipeline.choose_device", lambda name: torch.device(device))
    with pytest.raises(ConfigError, match=f"int8 needs a CPU, got device {device}. Add --device cpu"):
        load_pipeline("dates", int8=True)


def test_an_int8_model_gives_nearly_the_same_probabilities(runs: dict[str, Path]) -> None:
    exact, quantized = (load_pipeline(runs["classify"], device="cpu", int8=int8) for int8 in (False, True))
    assert any(type(part) is torch.nn.Linear for part in exact.model.modules())
    assert not any(type(part) is torch.nn.Linear for part in quantized.model.modules())
    texts = ["the cat sees fish", "a king"]
    for one, other in zip(classify(exact, texts), classify(quantized, texts), strict=True):
        assert dict(other.classes) == pytest.approx(dict(one.classes), abs=0.05)
