"""Semantic search: exact nearest neighbors of embeddings by cosine similarity."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from softlook.base.errors import ConfigError, WeightsError
from softlook.models import SkipGram
from softlook.recipes.inference.encoding import AnyInput, Pooling, embed
from softlook.recipes.inference.pipeline import Pipeline, to_inputs
from softlook.tokens.tokenizer import UNK
from softlook.weights.atomic_folder import check_not_exists, disk_errors
from softlook.weights.tensor_files import read_safetensors, write_safetensors

INDEX_SUFFIX = ".safetensors"
QUERY_PROMPTS, DOCUMENT_PROMPTS = ("query",), ("document", "passage", "corpus")
"""Names of prompts that sentence-transformers uses by default for queries and for documents."""
QUERY_BLOCK, VECTOR_BLOCK = 256, 1 << 16
"""Queries and vectors that are compared at once."""
MIN_SIMILARITY = 0.99
"""Cosine similarity of a vector and the same text embedded again, which another model does not reach."""


@dataclass(frozen=True, eq=False)
class SearchIndex:
    """Texts and their embeddings."""

    texts: list[str]
    vectors: Float[Tensor, "N C"]
    """Unit vectors."""
    pooling: Pooling | None = None
    prompt: str | None = None
    """The prompt of the texts."""

    def save(self, path: Path | str) -> None:
        """Write the index to a new safetensors file."""
        path = Path(path)
        if path.suffix != INDEX_SUFFIX:
            raise ConfigError(f"an index is saved as {INDEX_SUFFIX}, got {path.name!r:.80}")
        check_not_exists(path)
        content = {"texts": self.texts, "pooling": self.pooling, "prompt": self.prompt}
        encoded = torch.frombuffer(bytearray(json.dumps(content).encode()), dtype=torch.uint8)
        partial = path.with_name(f".{path.name}.partial")
        with disk_errors("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                write_safetensors({"vectors": self.vectors.contiguous(), "content": encoded}, partial)
                partial.rename(path)
            finally:
                partial.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path | str) -> "SearchIndex":
        """Read an index that `save` wrote."""
        tensors = read_safetensors(Path(path))
        try:
            content = json.loads(tensors["content"].numpy().tobytes())
            index = cls(content["texts"], tensors["vectors"].float(), content["pooling"], content["prompt"])
            is_valid = index.vectors.ndim == 2 and len(index.vectors) == len(index.texts)
            is_valid = is_valid and all(isinstance(text, str) for text in index.texts)
        except (KeyError, TypeError, ValueError):
            index, is_valid = None, False
        if index is None or not is_valid or index.pooling not in (None, *get_args(Pooling)):
            raise WeightsError(f"{path} is not a search index. Create one with: softlook search MODEL --save FILE")
        return index


class SearchHit(NamedTuple):
    """A text of an index that is similar to a query."""

    score: float
    """Cosine similarity."""
    number: int
    """The index of the text, from 0."""
    text: str


def build_index(
    pipeline: Pipeline, texts: Iterable[AnyInput], *, pooling: Pooling | None = None, prompt: str | None = None
) -> SearchIndex:
    """Embed texts for search. `pooling` and `prompt` are as in `embed`; default: the model's prompt for documents."""
    inputs = to_inputs(texts)
    prompt = _default_prompt(pipeline, DOCUMENT_PROMPTS) if prompt is None else prompt
    vectors = embed(pipeline, inputs, pooling=pooling, normalize=True, prompt=prompt)
    return SearchIndex([one.text for one in inputs], vectors, pooling, prompt)


def vocabulary_index(pipeline: Pipeline) -> SearchIndex:
    """The words of a model of word vectors."""
    if not isinstance(pipeline.model, SkipGram):
        raise ConfigError(f"{pipeline.name} has no word vectors. Name the texts to search: --index FILE")
    tokenizer = pipeline.tokenizer
    skipped = {*tokenizer.special_ids, tokenizer.tokenizer.token_to_id(UNK)}
    ids = [id for id in range(tokenizer.vocab_size) if id not in skipped]
    vectors = pipeline.model.input_vectors.weight.detach().float().cpu()[ids]
    return SearchIndex([tokenizer.tokenizer.id_to_token(id) or "" for id in ids], normalize(vectors, dim=-1))


def join_indexes(indexes: Sequence[SearchIndex]) -> SearchIndex:
    """One index of the texts of several, which must have the same settings."""
    settings = {(one.pooling, one.prompt, one.vectors.shape[1]) for one in indexes}
    if len(settings) > 1:
        raise ConfigError("these indexes have different dimensions, poolings or prompts. Search them one by one.")
    texts = [text for one in indexes for text in one.texts]
    return SearchIndex(texts, torch.cat([one.vectors for one in indexes]), indexes[0].pooling, indexes[0].prompt)


def check_index(pipeline: Pipeline, index: SearchIndex) -> None:
    """Raise an error if another model made the index: embed its first text again, and compare."""
    if not index.texts:
        return
    (vector,) = embed(pipeline, index.texts[:1], pooling=index.pooling, normalize=True, prompt=index.prompt)
    stored = index.vectors[0]
    if stored.shape != vector.shape or stored @ vector < MIN_SIMILARITY:
        raise ConfigError(
            f"{pipeline.name} did not make this index: its embedding of the first text differs. "
            "Use the model of the index, or create the index again."
        )


def search(
    pipeline: Pipeline,
    index: SearchIndex,
    queries: Iterable[AnyInput],
    *,
    top_k: int = 10,
    prompt: str | None = None,
) -> list[list[SearchHit]]:
    """The `top_k` most similar texts for each query, best first, compared with all of them.

    `prompt` is the name of the queries' prompt; default: "query" if the model has one, or its default prompt.
    """
    if top_k < 1:
        raise ConfigError(f"expected top_k of at least 1, got {top_k}")
    prompt = _default_prompt(pipeline, QUERY_PROMPTS) if prompt is None else prompt
    vectors = embed(pipeline, queries, pooling=index.pooling, normalize=True, prompt=prompt)
    hits: list[list[SearchHit]] = []
    for block in vectors.split(QUERY_BLOCK) if len(vectors) else ():
        scores, numbers = nearest(block, index.vectors, top_k)
        for row in zip(scores.tolist(), numbers.tolist(), strict=True):
            hits.append([SearchHit(score, number, index.texts[number]) for score, number in zip(*row, strict=True)])
    return hits


def nearest(queries: Float[Tensor, "Q C"], vectors: Float[Tensor, "N C"], top_k: int) -> tuple[Tensor, Tensor]:
    """The largest dot products of each query and their indices, in descending order; ties by index.

    >>> scores, indices = nearest(torch.eye(2), torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.6, 0.8]]), 2)
    >>> indices
    tensor([[1, 2],
            [0, 2]])
    """
    scores, indices = queries.new_empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.long)
    for start in range(0, len(vectors), VECTOR_BLOCK):
        products = queries @ vectors[start : start + VECTOR_BLOCK].T
        best = products.topk(min(top_k, products.shape[1]))
        scores, indices = torch.cat([scores, best.values], 1), torch.cat([indices, start + best.indices], 1)
        order = indices.argsort(dim=1)
        scores, indices = scores.gather(1, order), indices.gather(1, order)
        order = scores.argsort(dim=1, descending=True, stable=True)[:, :top_k]
        scores, indices = scores.gather(1, order), indices.gather(1, order)
    return scores, indices


def _default_prompt(pipeline: Pipeline, names: Sequence[str]) -> str | None:
    return next((name for name in names if name in pipeline.sentence.prompts), None)
