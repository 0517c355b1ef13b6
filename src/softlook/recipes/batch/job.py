"""Batch jobs: predictions for every row of a folder of Parquet files. A job that was stopped continues."""

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from softlook.base.activity import report_activity
from softlook.base.errors import ConfigError, DataError
from softlook.base.version import VERSION
from softlook.recipes.batch.parts import InputPart, ParquetInput, list_files, list_parts
from softlook.recipes.batch.row_predictor import BatchParams, RowPredictor
from softlook.recipes.batch.worker import ERROR_COLUMN, ERRORS_KEY, BatchJob, PartResult, PartWorker, load_row_predictor
from softlook.recipes.config.resolve import suggest
from softlook.recipes.inference.pipeline import find_folder
from softlook.weights.atomic_folder import atomic_write_text
from softlook.weights.manifest import BEST_FILE, ENSEMBLE_FOLDER, MANIFEST_FILE, SETTINGS_FILE, file_sha256
from softlook.weights.schema import read_json

log = logging.getLogger("softlook.recipes")
JOB_FILE, SUCCESS_FILE = "_softlook.json", "_SUCCESS"
"""Programs that read a folder of Parquet files skip names that start with an underscore."""


@dataclass(frozen=True)
class BatchResult:
    """The outcome of a batch job."""

    output: Path
    rows: int
    errors: int
    """Rows without a prediction: the column "error" of the output says why."""
    parts: int
    computed_parts: int
    """Parts that were computed now; the others were finished before."""


def predict_folder(
    run: str | Path,
    input: str | Path,
    output: str | Path,
    params: BatchParams | None = None,
    *,
    device: str = "auto",
    workers: int | None = None,
    gpus_per_worker: float = 0,
) -> BatchResult:
    """Predict every row of the Parquet files in a folder, and write Parquet files with a row for each.

    Without `workers` this process computes one part after the other; with `workers`, as many actors of Ray do, each
    with the model, on the machines of a cluster if there is one. The predictions are the same.

    If the output folder holds parts of the same job, only the others are computed. Raises ConfigError if the model,
    the input or the parameters differ from that job's, and DataError, after all other parts, if a part cannot be read.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"expected at least 1 worker, got {workers}")
    if workers is None and gpus_per_worker:
        raise ConfigError("--gpus-per-worker is for actors of Ray: add --workers")
    source, target = Path(input), Path(output)
    files = list_files(source)
    model = str(Path(run).resolve() if Path(run).exists() else run)  # actors may run in another folder
    job = BatchJob(model, source.resolve(), target.resolve(), params or BatchParams(), device)
    _check_folders(job)
    predictor = load_row_predictor(job if workers is None else replace(job, device="cpu"), files[0])
    _check_columns(job.params, predictor, files)
    _start(job, files)
    parts = list_parts(files)
    results = {part.output: result for part in parts if (result := _finished(job, part)) is not None}
    todo = [part for part in parts if part.output not in results]
    if workers is None:
        computed = zip(todo, map(PartWorker(job, predictor).compute, todo), strict=True)
    else:
        del predictor  # the memory is for the actors
        from softlook.recipes.batch.on_ray import compute_on_ray  # noqa: PLC0415  (an extra)

        computed = compute_on_ray(job, files[0], todo, workers=workers, gpus_per_worker=gpus_per_worker)
    failures = _collect(computed, results, len(parts))
    if failures:
        raise DataError(f"{len(failures):,} of {len(parts):,} parts could not be computed. The first: {failures[0]}")
    _finish(job)
    rows, errors = sum(one.rows for one in results.values()), sum(one.errors for one in results.values())
    return BatchResult(target, rows, errors, len(parts), len(todo))


def _collect(computed: Iterable[tuple[InputPart, PartResult]], results: dict[str, PartResult], count: int) -> list[str]:
    """Add results as they arrive; return the failures."""
    failures = []
    report_activity(f"computing part {len(results) + 1:,} of {count:,}")
    for part, result in computed:
        if result.failure:
            failures.append(result.failure)
        else:
            results[part.output] = result
        report_activity(f"computing part {len(results) + len(failures) + 1:,} of {count:,}")
    return failures


def _check_folders(job: BatchJob) -> None:
    if job.output == job.input or job.input in job.output.parents:
        raise ConfigError(f"{job.output} lies in the input folder: its files would be input, too. Choose another one.")
    is_job = (job.output / JOB_FILE).is_file()
    if not is_job and job.output.exists() and (not job.output.is_dir() or any(job.output.iterdir())):
        raise ConfigError(f"{job.output} is not an empty folder, and not that of a batch job. Choose another one.")


def _check_columns(params: BatchParams, predictor: RowPredictor, files: Sequence[ParquetInput]) -> None:
    """Raise an error if a file lacks a column, or an output column would have the name of another."""
    for name in params.keep:
        if name in [*predictor.schema.names, ERROR_COLUMN]:
            raise ConfigError(f"--keep: {name!r:.80} is the name of an output column")
    for file in files:
        predictor.check(file)
        for name in params.keep:
            if name not in file.schema.names:
                suggestion = suggest(name, file.schema.names)
                raise DataError(f"--keep: there is no column {name!r:.80}.{suggestion}", file=file.path)


def _start(job: BatchJob, files: Sequence[ParquetInput]) -> None:
    """Write what the job depends on; if it was started before, raise ConfigError for a difference."""
    content: dict[str, Any] = {
        "softlook": VERSION,
        "model": model_fingerprint(find_folder(job.run)),
        "params": asdict(job.params),
        "files": {file.name: file.fingerprint for file in files},
    }
    content = json.loads(json.dumps(content))
    path = job.output / JOB_FILE
    if not path.is_file():
        job.output.mkdir(parents=True, exist_ok=True)
        atomic_write_text(path, json.dumps(content, indent=1))
        return
    if (difference := _difference(read_json(path), content)) is not None:
        raise ConfigError(
            f"{job.output} holds parts of another job: {difference}. "
            "Undo the change to continue that job, or choose another output folder."
        )


def _difference(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """What has changed since the job was started."""
    if before.get("softlook") != now["softlook"]:
        return f"it was started by softlook {before.get('softlook')!s:.20}, this is {now['softlook']}"
    if before.get("model") != now["model"]:
        return "the model has changed"
    for kind, label in (("params", "--{}"), ("files", "{}")):
        old, new = before.get(kind, {}), now[kind]
        changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        if changed:
            return f"{label.format(changed[0].replace('_', '-') if kind == 'params' else changed[0])} has changed"
    return None


def model_fingerprint(folder: Path) -> str:
    """A digest of everything that determines the predictions of a model."""
    is_run = (folder / SETTINGS_FILE).is_file()  # these files hold digests of the checkpoint, tokenizer and labels
    names = [SETTINGS_FILE, BEST_FILE, f"{ENSEMBLE_FOLDER}/{MANIFEST_FILE}"] if is_run else None
    paths = [folder / name for name in names] if names else sorted(folder.rglob("*"))
    digests = [f"{path.relative_to(folder)} {file_sha256(path)}" for path in paths if path.is_file()]
    return sha256("\n".join(digests).encode()).hexdigest()


def _finished(job: BatchJob, part: InputPart) -> PartResult | None:
    """The result of a part that was computed before."""
    path = job.output / part.output
    if not path.is_file():
        return None
    metadata = pq.read_metadata(path)
    if metadata.num_rows != part.rows:
        raise DataError(f"expected {part.rows:,} rows, got {metadata.num_rows:,}", file=path, help="delete the file")
    return PartResult(metadata.num_rows, int((metadata.metadata or {}).get(ERRORS_KEY.encode(), 0)))


def _finish(job: BatchJob) -> None:
    """Delete files of workers that were killed, and mark the output as complete."""
    for partial in job.output.rglob(".*.partial"):
        partial.unlink(missing_ok=True)
    (job.output / SUCCESS_FILE).touch()
