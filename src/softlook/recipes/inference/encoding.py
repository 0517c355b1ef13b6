"""Encoder inference: text classification and embeddings."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from softlook.base.errors import escape_control
from softlook.base.tensors import supported_token_types
from softlook.decode.token_tensors import pad_right
from softlook.heads import class_probabilities, predicted_labels
from softlook.models import SkipGram, TextEncoder
from softlook.recipes.inference.pipeline import Pipeline, TextInput, replace_head, to_inputs
from softlook.tokens.loading import copy_tokenizer
from softlook.tokens.template import TemplatedInput, template_from_tokenizer
from softlook.tokens.tokenizer import MAX_TEXT_CHARS, UNK, is_softlook_tokenizer

MAX_BATCH_TOKENS = 1 << 13
MAX_TABLE_ROWS, MAX_CELL_CHARS = 100, 200
"""Size of a table in a notebook."""
AnyInput = str | tuple[str, str] | TextInput
Pooling = Literal["cls", "mean"]


@dataclass(frozen=True)
class ClassPrediction:
    """The predicted class of a text, and the probability of each class."""

    text: str
    pair: str | None
    label: str
    probability: float
    """Of a regression model, the predicted value."""
    classes: dict[str, float] = field(repr=False)
    """All classes, most likely first."""
    labels: tuple[str, ...] = ()
    """The predicted labels, most likely first: of a multi-label model any number, otherwise one."""


class ClassPredictions(list[ClassPrediction]):
    """Predictions for texts, which notebooks show as a table."""

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("text", "pair", "label", "probability"))
        rows = [(one.text, one.pair or "", one.label, f"{one.probability:.4f}") for one in self[:MAX_TABLE_ROWS]]
        cells = ("".join(f"<td>{escape(escape_control(_shorten(text)))}</td>" for text in row) for row in rows)
        more = f"<p>and {len(self) - MAX_TABLE_ROWS:,} more</p>" if len(self) > MAX_TABLE_ROWS else ""
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in (head, *cells))}</table>{more}"


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_CELL_CHARS else text[: MAX_CELL_CHARS - 1] + "…"


def classify(pipeline: Pipeline, texts: Iterable[AnyInput]) -> ClassPredictions:
    """Classify texts, or pairs of texts, in their order. All of them are kept in memory."""
    inputs = to_inputs(texts)
    logits, problem = encode(pipeline.require("classify"), pipeline.model, inputs), pipeline.model.config.problem
    predictions = ClassPredictions()
    for item, row in zip(inputs, class_probabilities(logits, problem).tolist(), strict=True):
        ranked = sorted(zip(pipeline.labels, row, strict=True), key=lambda entry: -entry[1])
        labels = predicted_labels(ranked, problem)
        predictions.append(ClassPrediction(item.text, item.pair, *ranked[0], dict(ranked), labels))
    return predictions


def embed(
    pipeline: Pipeline,
    texts: Iterable[AnyInput],
    *,
    pooling: Pooling | None = None,
    normalize: bool = False,
    prompt: str | None = None,
) -> Float[Tensor, "N C"]:
    """Embed texts, in their order.

    - `pooling`: the pooling of a sentence encoder, default: its own; of other encoders the mean.
    - `normalize`: scale each vector to unit length, as some sentence encoders do by themselves.
    - `prompt`: the name of a sentence encoder's prompt, which is prepended to each text; default: its default prompt.

    The settings of a sentence-transformers folder apply: lowercasing, truncation and output dimension. With word
    vectors, the result is the mean over the words of a text that have a vector.
    """
    inputs, model, prefix = to_inputs(texts), pipeline.require("embed").model, pipeline.sentence.prompt(prompt)
    inputs = [item._replace(text=prefix + item.text) for item in inputs] if prefix else inputs
    if isinstance(model, SkipGram):
        vectors = _word_vectors(pipeline, inputs)
    else:
        vectors = encode(pipeline, with_pooling(model, pooling), inputs)
    vectors = vectors[:, : pipeline.sentence.truncate_dim]
    return nn.functional.normalize(vectors, dim=-1) if normalize else vectors


def with_pooling(model: Any, pooling: Pooling | None) -> Any:
    """The same encoder with a pooled output."""
    config = model.config
    dense = {"pooler": None} if hasattr(config, "pooler") else {}  # some have no dense layer after pooling
    is_sentence = config.head in ("pooled", "embedding") and getattr(config, "pooler", None) is None
    if is_sentence and pooling in (None, config.pooling):
        return model
    head = config.head if is_sentence else "pooled"
    device = next(model.parameters()).device
    new = replace_head(model, head=head, pooling=pooling or "mean", **dense)
    return new.to(device, next(model.parameters()).dtype).eval()


@torch.no_grad()
def encode(pipeline: Pipeline, model: TextEncoder, inputs: Sequence[TextInput]) -> Float[Tensor, "N C"]:
    """The output of the head for each input, in batches of similar length."""
    rows = tokenize(pipeline, inputs)
    order = sorted(range(len(rows)), key=lambda number: len(rows[number].ids))
    outputs: list[Tensor] = []
    batch: list[int] = []
    for number in [*order, None]:
        if batch and (number is None or (len(batch) + 1) * len(rows[number].ids) > MAX_BATCH_TOKENS):
            outputs.append(_forward(pipeline, model, [rows[item] for item in batch]))
            batch = []
        batch += [] if number is None else [number]
    if not outputs:
        return torch.empty(0, max(len(pipeline.labels), model.config.dim))
    return torch.cat(outputs)[torch.tensor(order).argsort()]


def tokenize(pipeline: Pipeline, inputs: Sequence[TextInput]) -> list[TemplatedInput]:
    """Ids with special tokens, truncated to the model's maximum length.

    A run's inputs are built as in its training; those of imported models by their tokenizer's post-processor.
    """
    max_length = min(pipeline.max_input_length, pipeline.sentence.max_seq_length or pipeline.max_input_length)
    if not pipeline.is_run and not is_softlook_tokenizer(pipeline.tokenizer.tokenizer):
        tokenizer = copy_tokenizer(pipeline.tokenizer.tokenizer)
        tokenizer.enable_truncation(max_length)
        texts = [item.text if item.pair is None else (item.text, item.pair) for item in inputs]
        return [TemplatedInput(encoding.ids, encoding.type_ids) for encoding in tokenizer.encode_batch(texts)]
    template = template_from_tokenizer(pipeline.tokenizer)
    first = pipeline.tokenizer.encode([item.text[:MAX_TEXT_CHARS] for item in inputs])
    second = pipeline.tokenizer.encode([(item.pair or "")[:MAX_TEXT_CHARS] for item in inputs])
    pairs = zip(first, second, strict=True)
    return [template.truncate(one, other, max_length=max_length, as_in_training=True)[0] for one, other in pairs]


def _forward(pipeline: Pipeline, model: Any, rows: Sequence[TemplatedInput]) -> Tensor:
    ids, padding_mask = pad_right([row.ids for row in rows], pipeline.device)
    token_types, _ = pad_right([row.token_types for row in rows], pipeline.device)
    types = supported_token_types(model, token_types)
    return model(ids, padding_mask=padding_mask, token_types=types).float().cpu()


def _word_vectors(pipeline: Pipeline, inputs: Sequence[TextInput]) -> Float[Tensor, "N C"]:
    weight = pipeline.model.input_vectors.weight.detach().float().cpu()
    tokenizer = pipeline.tokenizer
    skipped = {*tokenizer.special_ids, tokenizer.tokenizer.token_to_id(UNK)}
    vectors = []
    for item, ids in zip(inputs, tokenizer.encode([item.text for item in inputs]), strict=True):
        known = [id for id in ids if id not in skipped]
        if not known:
            raise item.error(f"there is no vector for {item.text[:80]!r}", "vectors.txt in the run lists its words")
        vectors.append(weight[known].mean(0))
    return torch.stack(vectors) if vectors else weight[:0]
