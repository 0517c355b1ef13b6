"""Texts are framed as their tokenizer's template frames them, and alike wherever an encoder reads them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import BertProcessing, RobertaProcessing, TemplateProcessing

from softlook.losses import NOTHING
from softlook.models import Bert, BertConfig
from softlook.recipes import Fill
from softlook.recipes.classification import Framing
from softlook.recipes.filling import Asking
from softlook.recipes.opened import Opened, Question, Signs
from softlook.recipes.reading import framed
from softlook.serve.served import Served
from softlook.serve.texts import framed as served_row
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.tokens.framing import frame_of
from softlook.train.batches import chance
from softlook.train.documents import Documents
from softlook.train.store import gathered

WORDS = ["[CLS]", "[SEP]", "a", "b", "c", "[PAD]"]
SPECIAL = [("[CLS]", 0), ("[SEP]", 1)]
TEMPLATES: dict[str, Any] = {
    "BERT": TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=SPECIAL),
    "RoBERTa": RobertaProcessing(("[SEP]", 1), ("[CLS]", 0)),
    "BERT's own": BertProcessing(("[SEP]", 1), ("[CLS]", 0)),
    "XLM-R": TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] [SEP] $B [SEP]", special_tokens=SPECIAL),
    "only an end": TemplateProcessing(single="$A [SEP]", pair="$A [SEP] $B [SEP]", special_tokens=SPECIAL),
}
TEXTS = [("a", ""), ("a b c", ""), ("a", "b c"), ("c c a", "b")]


def tokenizer_with(template: Any) -> TextTokenizer:
    words = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="a"))
    words.pre_tokenizer = Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    words.post_processor = template
    return TextTokenizer(words)


def own() -> TextTokenizer:
    return TextTokenizer(train_tokenizer([], kind="bytes"))


def encoder(tokenizer: TextTokenizer) -> Bert:
    return Bert(BertConfig(vocab=tokenizer.vocab, context=32, dim=8, depth=1, heads=2, head="classes")).eval()


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_frame_is_what_the_tokenizer_itself_puts_around_texts(template: str) -> None:
    tokenizer = tokenizer_with(TEMPLATES[template])
    frame = frame_of(tokenizer)
    for one, other in TEXTS:
        coded = tokenizer.tokenizer.encode(one, other or None)
        row = frame.join(*tokenizer.encode([one, other]))
        assert (row.ids, row.segments) == (coded.ids, coded.type_ids)
        assert len(row.ids) == len("".join((one, other)).replace(" ", "")) + (
            frame.around_pair if other else frame.around
        )


def test_without_a_template_there_is_a_class_token_before_and_a_separator_behind_each_text() -> None:
    tokenizer = own()
    first, separator = tokenizer.first, tokenizer.separator
    assert frame_of(tokenizer).join([9, 8]) == ([first, 9, 8, separator], [0] * 4)
    assert frame_of(tokenizer).join([9], [8, 7]) == ([first, 9, separator, 8, 7, separator], [0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize("template", [None, *TEMPLATES])
def test_training_inference_and_serving_frame_texts_alike(template: str | None) -> None:
    tokenizer = own() if template is None else tokenizer_with(TEMPLATES[template])
    model = encoder(tokenizer)
    run = Opened("m", model, tokenizer, Signs(), ["no", "yes"], None, torch.device("cpu"))
    served = Served("m", model, tokenizer, labels=["no", "yes"])
    framing = Framing(tokenizer, 32)
    for one, other in TEXTS:
        question = Question(one, other or None)
        (row,) = framed(run, [question])
        batch = framing(framing.items([question.labelled()], []))
        assert (batch.ids[0].tolist(), batch.segments[0].tolist()) == (row.ids, row.segments)
        ask = served_row(served, *tokenizer.encode([one, other]))
        second = len(row.ids) if ask.second is None else ask.second
        assert (list(ask.prompt), [int(i >= second) for i in range(len(row.ids))]) == (row.ids, row.segments)


@pytest.mark.parametrize("pairs", [False, True])
def test_masked_language_modelling_trains_on_rows_framed_as_they_are_read_later(pairs: bool, tmp_path: Path) -> None:
    tokenizer = own()
    corpus = [["ab cd", "ef gh", "ij"], ["kl mn", "op"]]
    documents: Any = _documents(corpus, tokenizer)
    settings = Fill(data=(tmp_path,), pairs=pairs)
    places, _, gapped = getattr(Asking(tokenizer, settings), "pairs" if pairs else "alone")(documents)
    batch = gapped(places[:], chance(0))
    ids = torch.where(batch.wanted == NOTHING, batch.ids, batch.wanted)
    texts = {tuple(tokenizer.encode([text])[0]) for document in corpus for text in document}
    frame = frame_of(tokenizer)
    expected = (
        {_key(frame.join(one, other)) for one in texts for other in texts}
        if pairs
        else {_key(frame.join(one)) for one in texts}
    )
    for row, segments, present in zip(ids, batch.segments, batch.present, strict=True):
        assert (tuple(row[present].tolist()), tuple(segments[present].tolist())) in expected


def _key(row: Any) -> Any:
    return tuple(row.ids), tuple(row.segments)


def _documents(corpus: list[list[str]], tokenizer: TextTokenizer) -> Any:
    rows: list[Any] = []
    for document in corpus:
        coded = tokenizer.encode(document)
        rows += [(ids, [] if number else [1]) for number, ids in enumerate(coded)]
    return Documents(gathered(rows, vocab=tokenizer.vocab, rows=2))
