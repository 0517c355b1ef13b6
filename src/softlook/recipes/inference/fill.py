"""Predictions of masked language models for mask tokens."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from tokenizers import Tokenizer
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.base.tensors import supported_token_types
from softlook.decode.alignment import token_texts
from softlook.decode.token_tensors import pad_right
from softlook.heads import PretrainingLogits
from softlook.models import TextEncoder
from softlook.recipes.inference.pipeline import Pipeline, TextInput, to_inputs
from softlook.tokens import TextTokenizer
from softlook.tokens.loading import copy_tokenizer, edit_tokenizer
from softlook.tokens.template import TemplatedInput, template_from_tokenizer
from softlook.tokens.tokenizer import MASK, is_softlook_tokenizer

MASK_SPELLINGS = ("[MASK]", MASK)
"""Accepted for every model, besides its own mask token."""
MASKED_LM_HEADS = ("masked_lm", "pretraining")
MAX_BATCH_TOKENS = 1 << 10
"""Small, since every token has logits over the whole vocabulary."""


@dataclass(frozen=True)
class MaskPrediction:
    """A token predicted for a mask."""

    token: str
    """Its text without outer spaces; the name of a special token."""
    id: int
    probability: float
    text: str
    """The input with this token in place of the mask; other masks remain."""


@dataclass(frozen=True)
class FilledText:
    """The predictions for every mask of a text."""

    text: str
    masks: list[list[MaskPrediction]]
    """For each mask, the most likely tokens first."""
    filled: str
    """The input with the most likely token for every mask, each predicted independently of the others."""


class _MaskedText(NamedTuple):
    """A text with the ids that the model reads."""

    item: TextInput
    ids: list[int]
    """Without the special tokens around them."""
    row: TemplatedInput
    spans: list[tuple[int, int]]
    """Start and end of each mask in the text."""


def fill_masks(pipeline: Pipeline, texts: Iterable[str | TextInput], *, top_k: int = 5) -> list[FilledText]:
    """Predict the tokens behind the masks of texts, in their order. Texts without a mask are errors.

    A mask is written as the model's own mask token, `[MASK]` or `<mask>`.
    """
    head = getattr(pipeline.model.config, "head", None)
    if not isinstance(pipeline.model, TextEncoder) or head not in MASKED_LM_HEADS:
        raise ConfigError(
            f"{pipeline.name} has no masked language modeling head, so it cannot fill masks. "
            "Train a model that has one: softlook train mlm"
        )
    if top_k < 1:
        raise ConfigError(f"expected top_k of at least 1, got {top_k}")
    masked = _encode(pipeline, to_inputs(texts))
    results: dict[int, FilledText] = {}
    for batch in _batches([len(one.row.ids) for one in masked]):
        logits = _forward(pipeline, [masked[number].row for number in batch])
        for number, row_logits in zip(batch, logits, strict=True):
            results[number] = _fill(pipeline.tokenizer, masked[number], row_logits, top_k)
    return [results[number] for number in range(len(masked))]


def _encode(pipeline: Pipeline, inputs: Sequence[TextInput]) -> list[_MaskedText]:
    max_length, mask_id = pipeline.max_input_length, pipeline.tokenizer.mask_id
    own = pipeline.tokenizer.tokenizer.id_to_token(mask_id) or MASK
    pattern = re.compile("|".join(re.escape(spelling) for spelling in {own, *MASK_SPELLINGS}))
    parser, prefix = _mask_parser(pipeline.tokenizer)
    template = template_from_tokenizer(pipeline.tokenizer)
    masked: list[_MaskedText] = []
    for item in inputs:
        spans = [match.span() for match in pattern.finditer(item.text)]
        if not spans:
            raise item.error("this text has no mask", "write [MASK] in place of the token to predict")
        ids = parser.encode(prefix + pattern.sub(lambda match: own, item.text), add_special_tokens=False).ids
        row = template.apply(ids)
        if len(row.ids) > max_length:
            raise item.error(f"the text has {len(row.ids):,} tokens; the model reads {max_length:,}", "shorten it")
        masked.append(_MaskedText(item, ids, row, spans))
    return masked


def _mask_parser(tokenizer: TextTokenizer) -> tuple[Tokenizer, str]:
    """A copy of the tokenizer that parses special tokens, and a prefix of every text.

    In training, the mask of a softlook model replaces a word with the space before it. So the space before a mask
    belongs to the mask, and the space that its BPE prepends to a text may not be prepended to the text after a mask.
    """
    content = json.loads(tokenizer.tokenizer.to_str())
    normalizers = (content.get("normalizer") or {}).get("normalizers", [])
    if not is_softlook_tokenizer(tokenizer.tokenizer) or not any(one["type"] == "Prepend" for one in normalizers):
        return copy_tokenizer(tokenizer.tokenizer), ""
    return edit_tokenizer(tokenizer.tokenizer, _attach_spaces_to_masks), " "


def _attach_spaces_to_masks(content: dict[str, Any]) -> None:
    normalizer = content["normalizer"]
    normalizer["normalizers"] = [one for one in normalizer["normalizers"] if one["type"] != "Prepend"]
    for token in content["added_tokens"]:
        token["lstrip"] = token["content"] == MASK


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Indices of texts of similar length."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: lengths[number]):
        if batch and (len(batch) + 1) * lengths[number] > MAX_BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


@torch.no_grad()
def _forward(pipeline: Pipeline, rows: Sequence[TemplatedInput]) -> list[Float[Tensor, "M V"]]:
    """For each row, the logits at its masks."""
    ids, padding_mask = pad_right([row.ids for row in rows], pipeline.device)
    token_types, _ = pad_right([row.token_types for row in rows], pipeline.device)
    types = supported_token_types(pipeline.model, token_types)
    output: Any = pipeline.model(ids, padding_mask=padding_mask, token_types=types)
    logits = output.masked_lm if isinstance(output, PretrainingLogits) else output
    is_mask = (ids == pipeline.tokenizer.mask_id) & padding_mask
    return [row[at].float().cpu() for row, at in zip(logits, is_mask, strict=True)]


def _fill(tokenizer: TextTokenizer, masked: _MaskedText, logits: Float[Tensor, "M V"], top_k: int) -> FilledText:
    positions = [index for index, id in enumerate(masked.ids) if id == tokenizer.mask_id]
    probabilities = logits.softmax(-1)[:, : tokenizer.vocab_size]
    best = probabilities.topk(min(top_k, probabilities.shape[1]))
    text = filled = masked.item.text
    masks: list[list[MaskPrediction]] = []
    replacements: list[tuple[tuple[int, int], str, bool]] = []
    known = list(masked.ids)
    """With the best predictions for the masks so far: the space of a token depends on the one before it."""
    for position, span, values, ids in zip(
        positions, masked.spans, best.values.tolist(), best.indices.tolist(), strict=True
    ):
        before = known[:position]
        known[position] = ids[0]
        added, keeps_space = [_added_text(tokenizer, before, id) for id in ids], tokenizer.decode(before).endswith(" ")
        texts = [_replace(text, span, piece, keeps_space=keeps_space) for piece in added]
        pieces = zip(added, ids, values, texts, strict=True)
        masks.append([MaskPrediction(piece.strip() or piece, id, value, new) for piece, id, value, new in pieces])
        replacements.append((span, added[0], keeps_space))
    for span, piece, keeps_space in reversed(replacements):  # from the end, so that earlier spans remain valid
        filled = _replace(filled, span, piece, keeps_space=keeps_space)
    return FilledText(text, masks, filled)


def _added_text(tokenizer: TextTokenizer, before: Sequence[int], id: int) -> str:
    """The text that a token adds after others; the name of a special token or of a part of a character."""
    (text,) = token_texts(tokenizer, [id], before)
    return text or f" {tokenizer.tokenizer.id_to_token(id)}"


def _replace(text: str, span: tuple[int, int], added: str, *, keeps_space: bool) -> str:
    """A text with a mask replaced. The space before a mask belongs to it unless it is a token of its own.

    >>> _replace("a [MASK]!", (2, 8), " cat", keeps_space=False)
    'a cat!'
    >>> _replace("walk [MASK]", (5, 11), "ing", keeps_space=False)
    'walking'
    """
    before = text[: span[0]] if keeps_space else text[: span[0]].rstrip()
    return (before + added if before else added.lstrip()) + text[span[1] :]
