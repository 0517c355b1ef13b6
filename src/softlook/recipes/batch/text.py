"""Predictions for a column of texts: classes, embeddings, translations, generated texts."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from softlook.base.errors import ConfigError, DataError
from softlook.data.arrow import is_text, pc
from softlook.models import SkipGram
from softlook.recipes.batch.parts import ParquetInput
from softlook.recipes.batch.row_predictor import BatchParams
from softlook.recipes.config.resolve import suggest
from softlook.recipes.inference.encoding import classify, embed
from softlook.recipes.inference.generation import GenerationParams, generate
from softlook.recipes.inference.pipeline import Pipeline, TextInput
from softlook.recipes.inference.translation import translate

DEFAULT_COLUMN = "text"
Columns = dict[str, Any]
"""Values by the name of an output column."""


def find_text_column(file: ParquetInput) -> str:
    """The column called "text", or the only column of texts."""
    names = [field.name for field in file.schema if is_text(field.type)]
    if DEFAULT_COLUMN in names:
        return DEFAULT_COLUMN
    if len(names) != 1:
        found = f"it has {len(names)} text columns: {', '.join(names):.300}" if names else "it has no text column"
        raise DataError(found, file=file.path, help="name one: --text COLUMN" if names else "")
    return names[0]


class TextPredictor(ABC):
    """Predictions of a pipeline for a column of texts, or for two."""

    params: tuple[str, ...] = ("text",)
    """The parameters that have an effect."""
    schema: pa.Schema

    def __init__(self, pipeline: Pipeline, params: BatchParams, first: ParquetInput) -> None:
        params.check(pipeline.task, *self.params)
        self.pipeline, self.batch_params = pipeline, params
        self.columns = [params.text or find_text_column(first)]
        self.columns += [] if params.text_pair is None else [params.text_pair]
        self.schema = self.make_schema()

    @abstractmethod
    def make_schema(self) -> pa.Schema:
        """The output columns."""

    @abstractmethod
    def compute(self, inputs: list[TextInput], indices: Sequence[int]) -> Columns:
        """The output columns for some texts."""

    def check(self, file: ParquetInput) -> None:
        for name in self.columns:
            if name not in file.schema.names:
                suggestion = suggest(name, file.schema.names)
                raise DataError(f"there is no column {name!r:.80}.{suggestion}", file=file.path)
            if not is_text(file.schema.field(name).type):
                type = file.schema.field(name).type
                raise DataError(f"column {name!r:.80}: expected text, got {type!s:.80}", file=file.path)

    def has_input(self, rows: pa.Table) -> pa.ChunkedArray:
        is_present = rows.column(self.columns[0]).is_valid()
        for name in self.columns[1:]:
            is_present = pc.and_(is_present, rows.column(name).is_valid())
        return is_present

    def predict(self, rows: pa.Table, indices: Sequence[int]) -> pa.Table:
        try:
            texts = [rows.column(name).to_pylist() for name in self.columns]
        except UnicodeDecodeError as error:
            raise DataError(f"the text is not valid UTF-8: {error.reason}") from None
        inputs = [TextInput(*several) for several in zip(*texts, strict=True)]
        return pa.table(self.compute(inputs, indices), schema=self.schema)


class ClassPredictor(TextPredictor):
    """The class of each text; the labels of a multi-label model; the numbers of a regression model."""

    params = ("text", "text_pair", "probabilities")

    def make_schema(self) -> pa.Schema:
        labels, problem = self.pipeline.labels, self.pipeline.model.config.problem
        if problem == "regression":
            names = labels if len(labels) > 1 else ["value"]
            return pa.schema([(name, pa.float64()) for name in names])
        is_multi = problem == "multi_label"
        fields = [("labels", pa.list_(pa.string()))] if is_multi else [("label", pa.string())]
        fields += [] if is_multi else [("probability", pa.float64())]
        names = [f"P({label})" for label in labels] if self.batch_params.probabilities else []
        return pa.schema([*fields, *((name, pa.float64()) for name in names)])

    def has_input(self, rows: pa.Table) -> pa.ChunkedArray:
        """A blank text has no class."""
        is_blank = pc.equal(pc.ascii_trim_whitespace(rows.column(self.columns[0]).cast(pa.string())), "")
        return pc.and_(super().has_input(rows), pc.fill_null(pc.invert(is_blank), False))

    def compute(self, inputs: list[TextInput], indices: Sequence[int]) -> Columns:
        predictions, labels = classify(self.pipeline, inputs), self.pipeline.labels
        columns: Columns = {
            "label": [one.label for one in predictions],
            "labels": [list(one.labels) for one in predictions],
            "probability": [one.probability for one in predictions],
            "value": [one.probability for one in predictions],
        }
        columns |= {f"P({label})": [one.classes[label] for one in predictions] for label in labels}
        columns |= {label: columns[f"P({label})"] for label in labels if label not in columns}
        return {name: columns[name] for name in self.schema.names}


class EmbeddingPredictor(TextPredictor):
    """The embedding of each text, or the mean vector of its words."""

    params = ("text", "normalize")

    def make_schema(self) -> pa.Schema:
        return pa.schema([("embedding", pa.list_(pa.float32(), self.dim))])

    @property
    def dim(self) -> int:
        if isinstance(self.pipeline.model, SkipGram):
            return self.pipeline.model.input_vectors.weight.shape[1]
        return embed(self.pipeline, [DEFAULT_COLUMN]).shape[1]

    def compute(self, inputs: list[TextInput], indices: Sequence[int]) -> Columns:
        vectors = embed(self.pipeline, inputs, normalize=self.batch_params.normalize).numpy()
        return {"embedding": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])}


class TranslationPredictor(TextPredictor):
    """The translation of each text."""

    params = ("text", "num_beams")

    def make_schema(self) -> pa.Schema:
        return pa.schema([("translation", pa.string()), ("score", pa.float64()), ("finish_reason", pa.string())])

    def compute(self, inputs: list[TextInput], indices: Sequence[int]) -> Columns:
        results = translate(self.pipeline, inputs, num_beams=self.batch_params.num_beams)
        best = [result.candidates[0] if result.candidates else None for result in results]  # none for an empty text
        return {
            "translation": [result.text for result in results],
            "score": [one and one.score for one in best],
            "finish_reason": [one and one.finish_reason for one in best],
        }


class GenerationPredictor(TextPredictor):
    """A continuation of each text."""

    params = ("text", "max_new_tokens", "temperature", "seed")

    def make_schema(self) -> pa.Schema:
        return pa.schema([("generated_text", pa.string()), ("finish_reason", pa.string()), ("logprob", pa.float64())])

    def compute(self, inputs: list[TextInput], indices: Sequence[int]) -> Columns:
        given = self.batch_params
        params = GenerationParams(max_new_tokens=given.max_new_tokens, seed=given.seed or 0)
        params = params if given.temperature is None else replace(params, temperature=given.temperature)
        results = generate(self.pipeline, inputs, params, indices=indices)
        return {
            "generated_text": [one.text for one in results],
            "finish_reason": [one.finish_reason for one in results],
            "logprob": [one.logprob for one in results],
        }


PREDICTORS: dict[str, type[TextPredictor]] = {
    "classify": ClassPredictor,
    "embed": EmbeddingPredictor,
    "translate": TranslationPredictor,
    "generate": GenerationPredictor,
}


def create_text_predictor(pipeline: Pipeline, params: BatchParams, first: ParquetInput) -> TextPredictor:
    """The predictor for the task of a pipeline; `first` is the first file of the input."""
    if pipeline.task not in PREDICTORS:
        raise ConfigError(f"a batch job can {', '.join(PREDICTORS)}; the task of {pipeline.name} is {pipeline.task}")
    return PREDICTORS[pipeline.task](pipeline, params, first)
