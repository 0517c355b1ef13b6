"""Checkpoint manager: saves, prunes and restores checkpoints, sharded with FSDP.

<run>/best.json                      the best checkpoint
<run>/checkpoints/step-000000500/    model.safetensors (inference weights), training state, manifest;
                                     with FSDP, a shard of each file from every rank

Each checkpoint is written atomically, verified before it is loaded, and removed only after a newer one is complete.
"""

import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from softlook.base.errors import DiskError, TrainingError, WeightsError
from softlook.train.checkpoint.run_dir import CHECKPOINTS, TOKENIZER, diff_settings, write_json
from softlook.train.checkpoint.train_state import ADAPTERS, RNG_STATE, Progress, TrainState
from softlook.train.distributed.fsdp import full_tensor, local_tensor, row_range
from softlook.train.distributed.world import World
from softlook.weights import schema
from softlook.weights.atomic_folder import atomic_folder, disk_errors
from softlook.weights.checkpoint import write_config
from softlook.weights.manifest import (
    BEST_FILE,
    MANIFEST_FILE,
    FileEntries,
    best_checkpoint,
    file_sha256,
    read_manifest,
    verify_file,
    with_checksum,
    write_manifest,
)
from softlook.weights.structure import registered_name
from softlook.weights.tensor_files import (
    SINGLE_FILE,
    SLICES_KEY,
    StoredTensor,
    assign_shards,
    open_writer,
    read_shards,
    shard_files,
    shard_name,
    storage_order,
    total_bytes,
    write_index,
    write_safetensors,
)

log = logging.getLogger("softlook.train")
TRAINER_STATE = "trainer_state.json"
TensorFiles = Mapping[str, Mapping[str, Tensor]]
"""Tensors by file and name."""
CHECKPOINT_NAME = re.compile(r"step-\d{9,}")


class CheckpointManager:
    """The checkpoints of one run. `settings` must match those of a checkpoint to resume from it."""

    def __init__(self, run_dir: Path, *, keep_checkpoints: int = 2, settings: dict[str, Any] | None = None) -> None:
        self.run_dir, self.folder = run_dir, run_dir / CHECKPOINTS
        self.keep_checkpoints, self.settings = keep_checkpoints, settings or {}

    def list_checkpoints(self) -> list[Path]:
        """All checkpoints, newest first."""
        if not self.folder.is_dir():
            return []
        return sorted((path for path in self.folder.iterdir() if CHECKPOINT_NAME.fullmatch(path.name)), reverse=True)

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:09}"

    def best(self) -> Path | None:
        """The checkpoint with the smallest held-out loss; without evaluations, the newest."""
        return best_checkpoint(self.run_dir) if (self.run_dir / BEST_FILE).is_file() else None

    def weights(self, path: Path, state: TrainState) -> dict[str, StoredTensor]:
        """The inference weights of a checkpoint; with LoRA, the adapters as well as the merged weights."""
        required = [file for file in state.required_files() if file in (SINGLE_FILE, ADAPTERS)]
        entries = verify_sharded(path, required, state.world)
        return {name: stored for file in required for name, stored in read_shards(path, file, entries).items()}

    def describe_newest(self) -> str:
        """A sentence naming the newest checkpoint, for error messages."""
        found = self.list_checkpoints()
        return f"The last good checkpoint is {found[0]}." if found else "There is no checkpoint yet."

    def save(self, state: TrainState, progress: Progress, tokenizer: Path | None = None) -> Path:
        """Write a checkpoint, then point best.json to the best one, and only then remove old ones."""
        target, world = self.path(progress.step), state.world
        if not world.broadcast(target.exists(), state.device):
            self._write(target, state, progress, tokenizer)
        if world.is_rank_zero:
            best = progress.step if progress.best_loss is None else progress.best_step
            self._point_to_best(best, progress.best_loss)
            self._prune({self.path(best), *self.list_checkpoints()[: self.keep_checkpoints]})
        return target

    def _write(self, target: Path, state: TrainState, progress: Progress, tokenizer: Path | None) -> None:
        files, rng_states, world = state.state_files(), state.rng_states(), state.world
        content = {"progress": progress.to_json(), "scaler": state.scaler.state_dict(), "settings": self.settings}
        if not world.is_rank_zero and not world.is_sharded:
            return
        try:
            with shared_folder(target, world) if world.is_sharded else atomic_folder(target) as folder:
                if world.is_sharded:
                    entries = write_sharded(files, folder, world)
                else:
                    entries = {name: write_safetensors(tensors, folder / name) for name, tensors in files.items()}
                if world.is_rank_zero:
                    write_safetensors(rng_states, folder / RNG_STATE)
                    schema.write_json(folder / TRAINER_STATE, content)
                    _write_assets(state.model, tokenizer, folder)
                    state.write_extra(folder)
                    write_manifest(folder, entries)
        except DiskError as error:
            needed, free = sum(map(total_bytes, files.values())), shutil.disk_usage(self.run_dir).free
            raise DiskError(
                f"{error} This checkpoint needs about {needed:,} bytes, and {free:,} are free. {self.describe_newest()}"
            ) from None

    def _point_to_best(self, step: int, loss: float | None) -> None:
        """Record the best checkpoint, and the digest of its manifest, so that no other can be taken for it."""
        path = self.path(step)
        content = {"checkpoint": f"{CHECKPOINTS}/{path.name}", "step": step, "loss": loss}
        with disk_errors("read", path):
            content["manifest"] = file_sha256(path / MANIFEST_FILE)
        write_json(self.run_dir / BEST_FILE, with_checksum(content))

    def _prune(self, keep: set[Path]) -> None:
        for old in self.list_checkpoints():
            if old not in keep:
                partial = old.with_name(f".{old.name}.partial")
                with suppress(OSError):  # retried after the next checkpoint
                    old.rename(partial)  # first, so that a half-removed folder is never taken for a checkpoint
                    shutil.rmtree(partial)

    def remove_partial(self) -> None:
        """Remove what a killed process left incomplete."""
        for folder in (self.run_dir, self.folder):
            for path in folder.glob(".*.partial"):
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)

    def restore(self, state: TrainState, warn: Callable[[str], None]) -> Progress | None:
        """Load the newest intact checkpoint. Damaged ones are reported, skipped and renamed.

        A collective: all ranks restore the same checkpoint.
        """
        damaged: list[Path] = []
        names = json.dumps([path.name for path in self.list_checkpoints()])
        for name in json.loads(state.world.all_gather_text(names)[0]):
            path = self.folder / name
            try:
                entries = verify_sharded(path, [*state.required_files(), TRAINER_STATE], state.world)
            except DiskError:
                raise  # the disk may work again later
            except WeightsError as error:
                warn(f"{error} Using the previous checkpoint.")
                damaged.append(path)
            else:
                progress = self._load(path, entries, state)
                for old in damaged if state.world.is_rank_zero else ():
                    target = old.with_name(f"{old.name}.damaged")
                    shutil.rmtree(target, ignore_errors=True)
                    old.rename(target)
                return progress
        if damaged:
            raise TrainingError(f"no checkpoint in {self.folder} is intact. Start a new run under another name.")
        return None

    def _load(self, path: Path, entries: FileEntries, state: TrainState) -> Progress:
        content = schema.read_json(path / TRAINER_STATE)
        changes = diff_settings(content["settings"], self.settings)
        if changes:
            listed = "\n".join(f"  {change}" for change in changes)
            raise TrainingError(
                f"{path} was saved with different settings:\n{listed}\n"
                "Use the old settings to resume, or start a new run under another name."
            )
        state.load_state({file: read_shards(path, file, entries) for file in state.required_files()}, path)
        state.scaler.load_state_dict(content["scaler"])
        return Progress.from_json(content["progress"])


def _write_assets(model: nn.Module, tokenizer: Path | None, folder: Path) -> None:
    """Write the model's config, if softlook knows the model, and the tokenizer."""
    if registered_name(model) is not None:
        try:
            write_config(model, folder)
        except WeightsError as error:
            log.warning("This checkpoint can only be resumed, not loaded without the code of the run: %s", error)
    if tokenizer is not None:
        shutil.copyfile(tokenizer, folder / TOKENIZER)


@contextmanager
def shared_folder(target: Path, world: World) -> Iterator[Path]:
    """An atomic folder that all ranks write into; rank 0 renames it at the end."""
    with ExitStack() as stack:
        partial = stack.enter_context(atomic_folder(target)) if world.is_rank_zero else target
        yield target.parent / world.all_gather_text(partial.name)[0]


def write_sharded(files: TensorFiles, folder: Path, world: World) -> FileEntries:
    """Write this rank's shard of every file; returns the manifest entries of all ranks.

    The model's weights are distributed as full tensors, which any reader understands. Of everything else each rank
    writes the rows it holds.
    """
    entries: FileEntries = {}
    with raise_on_all_ranks(world), disk_errors("write", folder):
        for file, tensors in files.items():
            path = folder / shard_name(file, world.rank, world.size)
            entries[path.name] = (_write_full if file == SINGLE_FILE else _write_rows)(tensors, path, world)
        if world.is_rank_zero:
            shards = assign_shards(files[SINGLE_FILE], world.size)
            write_index(folder, shards, world.size, total_bytes(files[SINGLE_FILE]))
    return {
        name: entry for one in world.all_gather_text(json.dumps(entries)) for name, entry in json.loads(one).items()
    }


def _write_full(tensors: Mapping[str, Tensor], path: Path, world: World) -> dict[str, object]:
    """Write the full tensors assigned to this rank. Each is gathered by all ranks and freed before the next."""
    shards = assign_shards(tensors, world.size)
    own = {name: tensor for name, tensor in tensors.items() if shards[name] == world.rank}
    gathered = ((name, full_tensor(tensors[name])) for name in storage_order(tensors))
    try:
        with open_writer(path, own) as writer:
            for name, tensor in gathered:
                if name in own:
                    writer.add(name, tensor)
            return writer.manifest_entry()
    finally:
        for _ in gathered:  # if this rank failed, the others still need its rows
            pass


def _write_rows(tensors: Mapping[str, Tensor], path: Path, world: World) -> dict[str, object]:
    """Write the rows that this rank holds; rank 0 also writes what is not sharded."""
    rows = {name: row_range(tensor) for name, tensor in tensors.items() if isinstance(tensor, DTensor)}
    own = {
        name: local_tensor(tensor)
        for name, tensor in tensors.items()
        if world.is_rank_zero or (name in rows and rows[name][0] < rows[name][1])
    }
    return {**write_safetensors(own, path), SLICES_KEY: {name: rows[name] for name in own if name in rows}}


def verify_sharded(folder: Path, required: Sequence[str], world: World) -> FileEntries:
    """The manifest entries of a checkpoint, after all ranks together verified its files."""
    entries: FileEntries = {}
    with raise_on_all_ranks(world):
        entries = read_manifest(folder)
        for file in required:
            shard_files(folder, file, entries)
        for name in list(entries)[world.rank :: world.size]:
            verify_file(folder / name, entries[name])
    return entries


@contextmanager
def raise_on_all_ranks(world: World) -> Iterator[None]:
    """Raise an error of one rank on all of them, so that none waits for one that failed."""
    own = ""
    try:
        yield
    except (DiskError, WeightsError) as error:
        own = json.dumps([isinstance(error, DiskError), str(error)])
    for encoded in filter(None, world.all_gather_text(own)):
        is_disk_error, message = json.loads(encoded)
        raise (DiskError if is_disk_error else WeightsError)(message)
