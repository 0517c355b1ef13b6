"""`softlook search`: nearest neighbors of texts or words."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from softlook.base.errors import ConfigError
from softlook.cli.commands.classify import format_score
from softlook.cli.console import CommandResult, OutputStream, counter
from softlook.cli.options import DeviceOption, FileOption, ModelArg, TextArgs, TextOption

if TYPE_CHECKING:
    from softlook.cli.inputs import TextBatch, TextColumns
    from softlook.recipes.inference.pipeline import Pipeline
    from softlook.recipes.inference.retrieval import SearchHit, SearchIndex

log = logging.getLogger("softlook.cli")
Pooling = Literal["cls", "mean"]


def search(
    model: ModelArg,
    /,
    *queries: TextArgs,
    index: Annotated[
        tuple[Path, ...],
        Parameter(help="files of texts to search, or a saved index; may be repeated", consume_multiple=False),
    ] = (),
    text: TextOption = None,
    file: FileOption = (),
    top_k: Annotated[int, Parameter(help="number of texts for each query")] = 10,
    save: Annotated[
        Path | None, Parameter(help="new .safetensors file for the index; without queries, only that")
    ] = None,
    pooling: Annotated[Pooling | None, Parameter(help="how token vectors are pooled; default: the model's own")] = None,
    prompt: Annotated[str | None, Parameter(help="prompt of the texts; default: the model's own")] = None,
    query_prompt: Annotated[
        str | None, Parameter(help="prompt of the queries; default: the model's for queries")
    ] = None,
    device: DeviceOption = "auto",
) -> CommandResult | None:
    """Find the most similar texts, or words: similarity, number and text of each."""
    from softlook.cli.inputs import TextColumns, read_texts  # noqa: PLC0415  (imports torch)
    from softlook.recipes.inference.pipeline import load_pipeline  # noqa: PLC0415
    from softlook.recipes.inference.retrieval import search as search_texts  # noqa: PLC0415
    from softlook.weights.atomic_folder import check_not_exists  # noqa: PLC0415

    if save is not None:
        check_not_exists(save)
    pipeline = load_pipeline(model, device=device).require("embed")
    found = _load_index(pipeline, index, TextColumns(text), pooling, prompt)
    if save is not None:
        found.save(save)
        if not queries and not file:
            return CommandResult(save, {"texts": len(found.texts), "dim": found.vectors.shape[1]})
        log.info("Wrote %s", save)
    output = OutputStream()
    is_vocabulary = not index
    with counter(output, "queries") as count:
        for batch in read_texts(queries, file):
            nonempty = [one for one in batch if one.text.strip()]
            hits = iter(search_texts(pipeline, found, nonempty, top_k=top_k + is_vocabulary, prompt=query_prompt))
            for one in batch:
                results = next(hits) if one.text.strip() else []
                if is_vocabulary:  # a word is its own nearest neighbor
                    results = [hit for hit in results if hit.text != one.text.strip().lower()][:top_k]
                _write(output, one.text, results, is_first=count.count == 0 and one is batch[0])
            count.add(len(batch))
    return None


def _load_index(
    pipeline: "Pipeline", files: tuple[Path, ...], columns: "TextColumns", pooling: Pooling | None, prompt: str | None
) -> "SearchIndex":
    """The saved indexes and the embeddings of the texts in all other files; by default a model's own words."""
    from softlook.cli.inputs import read_texts  # noqa: PLC0415  (imports torch)
    from softlook.recipes.inference.retrieval import (  # noqa: PLC0415
        INDEX_SUFFIX,
        SearchIndex,
        build_index,
        check_index,
        join_indexes,
        vocabulary_index,
    )

    if not files:
        return vocabulary_index(pipeline)
    saved = [SearchIndex.load(path) for path in files if path.suffix == INDEX_SUFFIX]
    for one in saved:
        check_index(pipeline, one)
    others = [path for path in files if path.suffix != INDEX_SUFFIX]
    parts = [*saved]
    if others:
        for batch in _nonempty(read_texts((), others, columns)):
            parts.append(build_index(pipeline, batch, pooling=pooling, prompt=prompt))
    if not parts:
        raise ConfigError(f"there are no texts in {', '.join(map(str, files))}")
    return join_indexes(parts)


def _nonempty(batches: "Iterator[TextBatch]") -> "Iterator[TextBatch]":
    """Batches without empty texts."""
    for batch in batches:
        texts = [one for one in batch if one.text.strip()]
        if texts:
            yield texts


def _write(output: OutputStream, query: str, hits: "list[SearchHit]", *, is_first: bool) -> None:
    if output.json:
        found = [{"score": float(f"{hit.score:.6g}"), "number": hit.number + 1, "text": hit.text} for hit in hits]
        output.write_object({"query": query, "hits": found})
        return
    if not is_first:
        output.write_line()  # between two queries
    for hit in hits:
        output.write_line(format_score(hit.score), str(hit.number + 1), hit.text)
