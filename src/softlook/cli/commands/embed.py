"""`softlook embed`: embeddings of texts or words."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from softlook.cli.console import CommandResult, OutputStream, counter
from softlook.cli.options import DeviceOption, FileOption, ModelArg, TextArgs, TextOption

Pooling = Literal["cls", "mean"]


def embed(
    model: ModelArg,
    /,
    *texts: TextArgs,
    file: FileOption = (),
    text: TextOption = None,
    to: Annotated[Path | None, Parameter(help="new .npy, .parquet or .jsonl file; default: stdout")] = None,
    pooling: Annotated[Pooling | None, Parameter(help="how token vectors are pooled; default: the model's own")] = None,
    normalize: Annotated[bool, Parameter(help="L2-normalize; sentence encoders may do so anyway")] = False,
    prompt: Annotated[str | None, Parameter(help="name of a sentence encoder's prompt, put before each text")] = None,
    device: DeviceOption = "auto",
) -> CommandResult | None:
    """Compute embeddings of texts, or of words with word2vec models."""
    from softlook.cli.inputs import TextColumns, read_texts  # noqa: PLC0415  (imports torch)
    from softlook.cli.writers import embedding_file  # noqa: PLC0415
    from softlook.recipes.inference.encoding import embed as embed_texts  # noqa: PLC0415
    from softlook.recipes.inference.pipeline import load_pipeline  # noqa: PLC0415

    pipeline, dim = load_pipeline(model, device=device).require("embed"), 0
    batches = read_texts(texts, file, TextColumns(text))
    with embedding_file(to) as writer, counter(OutputStream()) as count:
        for batch in batches:
            vectors = embed_texts(pipeline, batch, pooling=pooling, normalize=normalize, prompt=prompt)
            writer.add([one.text for one in batch], vectors)
            dim = vectors.shape[1]
            count.add(len(batch))
    return None if to is None else CommandResult(to, {"embeddings": count.count, "dim": dim})
