"""`softlook embed`: embeddings of texts or words."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from softlook.cli.console import CommandResult
from softlook.cli.options import DeviceOption, FileOption, ModelArg, TextArgs, TextOption
from softlook.cli.output import OutputStream, counter

if TYPE_CHECKING:
    from softlook.cli.inputs import TextBatch
    from softlook.recipes.inference.pipeline import Pipeline

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
    from softlook.recipes.inference.pipeline import load_pipeline  # noqa: PLC0415

    embedder = Embedder(load_pipeline(model, device=device).require("embed"), pooling, normalize, prompt)
    batches = read_texts(texts, file, TextColumns(text))
    return embedder.print(batches) if to is None else embedder.write(batches, to)


@dataclass(frozen=True)
class Embedder:
    """Embeds batches of texts."""

    pipeline: "Pipeline"
    pooling: Pooling | None = None
    normalize: bool = False
    prompt: str | None = None

    def print(self, batches: "Iterator[TextBatch]") -> None:
        """Print a JSON object per text."""
        from softlook.cli.writers import embedding_object  # noqa: PLC0415

        output = OutputStream()
        with counter(output) as count:
            for batch in batches:
                for one, vector in zip(batch, self._embed(batch), strict=True):
                    output.write_object(embedding_object(one.text, vector))
                output.flush()
                count.add(len(batch))

    def write(self, batches: "Iterator[TextBatch]", path: Path) -> CommandResult:
        """Write all embeddings to a file."""
        from softlook.cli.writers import embedding_file  # noqa: PLC0415

        num_texts = dim = 0
        with embedding_file(path) as file, counter(OutputStream()) as count:
            for batch in batches:
                vectors = self._embed(batch)
                file.add([one.text for one in batch], vectors)
                num_texts, dim = num_texts + len(batch), vectors.shape[1]
                count.add(len(batch))
        return CommandResult(path, {"embeddings": num_texts, "dim": dim})

    def _embed(self, batch: "TextBatch") -> Any:
        from softlook.recipes.inference.encoding import embed as embed_texts  # noqa: PLC0415

        return embed_texts(self.pipeline, batch, pooling=self.pooling, normalize=self.normalize, prompt=self.prompt)
