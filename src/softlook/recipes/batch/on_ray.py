"""Batch jobs on Ray Data: actors that load the model once and compute parts."""

import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any

from softlook.recipes.batch.parts import InputPart, ParquetInput
from softlook.recipes.batch.worker import BatchJob, PartResult, PartWorker, load_row_predictor

try:
    import ray
    import ray.data
except ImportError as error:
    raise ImportError("workers of a batch job run on Ray: pip install 'softlook[ray]'") from error


def compute_on_ray(
    job: BatchJob, first: ParquetInput, parts: Sequence[InputPart], *, workers: int, gpus_per_worker: float
) -> Iterator[tuple[InputPart, PartResult]]:
    """The results of parts, in the order in which they are finished.

    Ray restarts an actor that died, and computes its part again.
    """
    if not parts:
        return
    _connect()
    # Parts, not rows, are the items: the rows that a model computes together must not depend on Ray's scheduling.
    numbers = ray.data.from_items([{"part": number} for number in range(len(parts))], override_num_blocks=len(parts))
    results = numbers.map_batches(
        PartActor,
        batch_size=1,
        fn_constructor_args=(job, first, parts),
        compute=ray.data.ActorPoolStrategy(size=min(workers, len(parts))),
        num_gpus=gpus_per_worker or None,
    )
    for row in results.iter_rows():
        yield parts[int(row["part"])], PartResult(int(row["rows"]), int(row["errors"]), str(row["failure"]))


class PartActor:
    """A worker in a process of Ray."""

    def __init__(self, job: BatchJob, first: ParquetInput, parts: Sequence[InputPart]) -> None:
        self.parts, self.worker = parts, PartWorker(job, load_row_predictor(job, first))

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        results = [self.worker.compute(self.parts[number]) for number in batch["part"]]
        return {
            "part": batch["part"],
            "rows": [one.rows for one in results],
            "errors": [one.errors for one in results],
            "failure": [one.failure for one in results],
        }


def _connect() -> None:
    """Connect to the cluster of RAY_ADDRESS, or start Ray on this machine. Nothing is reported to Ray's makers."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # errors are raised, and in the log files of the session
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.ERROR)
