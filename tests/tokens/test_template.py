"""Special-token templates match the tokenizer's post-processor, in training, inference and serving alike."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import BertProcessing, RobertaProcessing, TemplateProcessing

from softlook.data import LabeledText
from softlook.losses import IGNORE_INDEX
from softlook.models import Bert, BertConfig
from softlook.recipes import MaskedLMConfig
from softlook.recipes.inference.encoding import tokenize
from softlook.recipes.inference.pipeline import Pipeline, TextInput
from softlook.recipes.text.labeled_texts import ClassificationCollator
from softlook.recipes.text.masked_lm import MaskedLMCollator
from softlook.recipes.text.problems import SingleLabel
from softlook.serve.loaded_model import LoadedModel
from softlook.serve.protocol.preprocess import encode_request
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.tokens.template import template_from_tokenizer
from softlook.train.batching.masking import DocumentStore
from softlook.train.batching.token_store import store_in_memory
from softlook.train.rng import make_generator
from softlook.weights.assets import SpecialTokens

WORDS = ["[CLS]", "[SEP]", "a", "b", "c", "[PAD]"]
SPECIAL = [("[CLS]", 0), ("[SEP]", 1)]
TEMPLATES: dict[str, Any] = {
    "BERT": TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=SPECIAL),
    "RoBERTa": RobertaProcessing(("[SEP]", 1), ("[CLS]", 0)),
    "BERT's default_tokenizer": BertProcessing(("[SEP]", 1), ("[CLS]", 0)),
    "XLM-R": TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] [SEP] $B [SEP]", special_tokens=SPECIAL),
    "only an end": TemplateProcessing(single="$A [SEP]", pair="$A [SEP] $B [SEP]", special_tokens=SPECIAL),
}
TEXTS = [("a", ""), ("a b c", ""), ("a", "b c"), ("c c a", "b")]


def tokenizer_with(template: Any) -> TextTokenizer:
    words = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="a"))
    words.pre_tokenizer = Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    words.post_processor = template
    return TextTokenizer(words)


def default_tokenizer() -> TextTokenizer:
    return TextTokenizer(train_tokenizer([], model_type="bytes"))


def encoder(tokenizer: TextTokenizer) -> Bert:
    return Bert(
        BertConfig(vocab_size=tokenizer.vocab_size, context=32, dim=8, depth=1, heads=2, head="classification")
    ).eval()


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_template_matches_the_tokenizers_post_processor(name: str) -> None:
    tokenizer = tokenizer_with(TEMPLATES[name])
    template = template_from_tokenizer(tokenizer)
    for one, other in TEXTS:
        encoding = tokenizer.tokenizer.encode(one, other or None)
        row = template.apply(*tokenizer.encode([one, other]))
        assert (row.ids, row.token_types) == (encoding.ids, encoding.type_ids)
        assert len(row.ids) == len("".join((one, other)).replace(" ", "")) + (
            template.num_special_pair if other else template.num_special_single
        )


def test_the_default_template_is_cls_sep() -> None:
    tokenizer = default_tokenizer()
    first, separator = tokenizer.cls_id, tokenizer.sep_id
    assert template_from_tokenizer(tokenizer).apply([9, 8]) == ([first, 9, 8, separator], [0] * 4)
    assert template_from_tokenizer(tokenizer).apply([9], [8, 7]) == (
        [first, 9, separator, 8, 7, separator],
        [0, 0, 0, 1, 1, 1],
    )


@pytest.mark.parametrize("template", [None, *TEMPLATES])
def test_training_inference_and_serving_use_the_same_template(template: str | None) -> None:
    tokenizer = default_tokenizer() if template is None else tokenizer_with(TEMPLATES[template])
    model = encoder(tokenizer)
    pipeline = Pipeline("m", model, tokenizer, SpecialTokens(), ["no", "yes"], torch.device("cpu"))
    loaded_model = LoadedModel("m", model, tokenizer, labels=["no", "yes"])
    collator = ClassificationCollator(tokenizer, 32, SingleLabel([]))
    for one, other in TEXTS:
        (row,) = tokenize(pipeline, [TextInput(one, other or None)])
        batch = collator(collator.encode([LabeledText(one, other or None, "")]))
        assert (batch.ids[0].tolist(), batch.token_types[0].tolist()) == (row.ids, row.token_types)
        request = encode_request(loaded_model.encode_truncated(one, other)[0])
        second = len(row.ids) if request.second_start is None else request.second_start
        assert (list(request.prompt), [int(i >= second) for i in range(len(row.ids))]) == (row.ids, row.token_types)


@pytest.mark.parametrize("next_sentence", [False, True])
def test_masked_lm_training_uses_the_template(next_sentence: bool, tmp_path: Path) -> None:
    tokenizer = default_tokenizer()
    corpus = [["ab cd", "ef gh", "ij"], ["kl mn", "op"]]
    documents: Any = _documents(corpus, tokenizer)
    config = MaskedLMConfig(data=(tmp_path,), next_sentence=next_sentence)
    examples, _, collate = MaskedLMCollator(tokenizer, config).examples(documents)
    batch = collate(examples[:], make_generator(0))
    ids = torch.where(batch.labels == IGNORE_INDEX, batch.ids, batch.labels)
    texts = {tuple(tokenizer.encode([text])[0]) for document in corpus for text in document}
    template = template_from_tokenizer(tokenizer)
    expected = (
        {_key(template.apply(one, other)) for one in texts for other in texts}
        if next_sentence
        else {_key(template.apply(one)) for one in texts}
    )
    for row, types, mask in zip(ids, batch.token_types, batch.padding_mask, strict=True):
        assert (tuple(row[mask].tolist()), tuple(types[mask].tolist())) in expected


def _key(row: Any) -> Any:
    return tuple(row.ids), tuple(row.token_types)


def _documents(corpus: list[list[str]], tokenizer: TextTokenizer) -> Any:
    rows: list[Any] = []
    for document in corpus:
        encoding = tokenizer.encode(document)
        rows += [(ids, [] if number else [1]) for number, ids in enumerate(encoding)]
    return DocumentStore(store_in_memory(rows, vocab_size=tokenizer.vocab_size, rows=2))
