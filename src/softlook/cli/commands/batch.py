"""`softlook batch`: predictions for a folder of Parquet files."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from softlook.cli.activity import activity
from softlook.cli.console import CommandResult
from softlook.cli.options import FLATTEN, DeviceOption, ModelArg


@dataclass(frozen=True)
class BatchOptions:
    """What is computed for each row."""

    text: Annotated[str | None, Parameter(help='column of texts; default: "text", or the only text column')] = None
    text_pair: Annotated[str | None, Parameter(help="column of second texts, to classify pairs")] = None
    keep: Annotated[tuple[str, ...], Parameter(help="columns to copy to the output, such as an id")] = ()
    probabilities: Annotated[bool, Parameter(help="classifiers: add the probability of each class")] = False
    normalize: Annotated[bool, Parameter(help="embeddings: scale each to unit length")] = False
    num_beams: Annotated[int | None, Parameter(help="translations: beam width; default: the model's own")] = None
    max_new_tokens: Annotated[int | None, Parameter(help="generated texts: maximum number of tokens")] = None
    temperature: Annotated[float | None, Parameter(help="generated texts: 0 is greedy; default: 0.8")] = None
    seed: Annotated[int | None, Parameter(help="generated texts: random seed; default: 0")] = None


DEFAULT_OPTIONS = BatchOptions()


def batch(
    model: ModelArg,
    input: Annotated[Path, Parameter(help="folder of .parquet files")],
    output: Annotated[Path, Parameter(help="folder to write; that of a stopped job continues it")],
    /,
    *,
    options: Annotated[BatchOptions, FLATTEN] = DEFAULT_OPTIONS,
    workers: Annotated[int | None, Parameter(help="actors of Ray, each with the model; default: no Ray")] = None,
    gpus_per_worker: Annotated[float, Parameter(help="GPUs of each actor; a fraction shares one")] = 0,
    device: DeviceOption = "auto",
) -> CommandResult:
    """Predict every row of a folder of Parquet files."""
    with activity("loading the model"):
        from softlook.recipes.batch import BatchParams, predict_folder  # noqa: PLC0415  (imports torch)

        params = BatchParams(**asdict(options))
        result = predict_folder(
            model, input, output, params, device=device, workers=workers, gpus_per_worker=gpus_per_worker
        )
    details = {"rows": result.rows, "errors": result.errors}
    details |= {"parts": result.parts, "computed_parts": result.computed_parts}
    hint = f'{result.errors:,} of {result.rows:,} rows have no prediction: the column "error" of the output says why.'
    return CommandResult(result.output, details, hint=hint if result.errors else "")
