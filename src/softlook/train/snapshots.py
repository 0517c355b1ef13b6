"""Checkpoints of a run: each a folder that is whole or absent, verified before it is trusted, oldest removed last.

<run>/best.json                      which checkpoint answers best
<run>/checkpoints/step-000000500/    model.safetensors (the weights to answer with), what it takes to go on, digests;
                                     where weights are parted among processes, a part of each from every process
"""

import json
import logging
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from softlook.base.errors import TrainingError, WeightsError
from softlook.train.adapters import ADAPTERS
from softlook.train.folder import CHECKPOINTS, TOKENIZER, differences, write_json
from softlook.train.learner import DICE, Learner
from softlook.train.parting import checked, shared_folder, write_parts
from softlook.train.progress import Progress
from softlook.weights.checkpoint import describe
from softlook.weights.files import SINGLE, write_file
from softlook.weights.folders import DiskError, new_folder, told
from softlook.weights.manifest import MANIFEST, Listed, digest, write_manifest
from softlook.weights.parts import Stored, read_parts
from softlook.weights.runs import BEST, best_of, sealed
from softlook.weights.schema import read_json
from softlook.weights.structure import name_of
from softlook.weights.writing import size_of

log = logging.getLogger("softlook.train")
PROGRESS = "progress.json"
NAME = re.compile(r"step-\d{9,}")


class Snapshots:
    """The checkpoints of one run. `settings` are those under which it may go on, and no others."""

    def __init__(self, run: Path, *, keep: int = 2, settings: dict[str, Any] | None = None) -> None:
        self.run, self.folder, self.keep, self.settings = run, run / CHECKPOINTS, keep, settings or {}

    def all(self) -> list[Path]:
        """Those that are there, newest first."""
        if not self.folder.is_dir():
            return []
        return sorted((path for path in self.folder.iterdir() if NAME.fullmatch(path.name)), reverse=True)

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:09}"

    def best(self) -> Path | None:
        """The checkpoint that answers best: that with the smallest held-out loss; where nobody looked, the newest."""
        return best_of(self.run) if (self.run / BEST).is_file() else None

    def weights(self, path: Path, learner: Learner) -> dict[str, Stored]:
        """What a checkpoint answers with; adapters, where it learned by them, beside what they were merged into."""
        needed = [file for file in learner.needed() if file in (SINGLE, ADAPTERS)]
        files = checked(path, needed, learner.world)
        return {name: stored for file in needed for name, stored in read_parts(path, file, files).items()}

    def last_good(self) -> str:
        """Where one can go on from, in words."""
        there = self.all()
        return f"The last good checkpoint is {there[0]}." if there else "There is no checkpoint yet."

    def save(self, learner: Learner, progress: Progress, tokenizer: Path | None = None) -> Path:
        """Write one more; say which is best; then, and only then, remove what is too old."""
        target, world = self.path(progress.step), learner.world
        if not world.same(target.exists(), learner.device):
            self._write(target, learner, progress, tokenizer)
        if world.first:
            best = progress.step if progress.best is None else progress.best_step
            self._point(best, progress.best)
            self._tidy({self.path(best), *self.all()[: self.keep]})
        return target

    def _write(self, target: Path, learner: Learner, progress: Progress, tokenizer: Path | None) -> None:
        files, dice, world = learner.files(), learner.dice(), learner.world
        content = {"progress": progress.to_json(), "scaler": learner.scaler.state_dict(), "settings": self.settings}
        if not world.first and not world.is_parted:
            return
        try:
            with shared_folder(target, world) if world.is_parted else new_folder(target) as made:
                known = write_parts(files, made, world) if world.is_parted else _write_whole(files, made)
                if world.first:
                    write_file(dice, made / DICE)
                    (made / PROGRESS).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
                    _write_beside(learner.model, tokenizer, made)
                    learner.leave(made)
                    write_manifest(made, known)
        except DiskError as fault:
            needed, free = sum(map(size_of, files.values())), shutil.disk_usage(self.run).free
            raise DiskError(
                f"{fault} This checkpoint needs about {needed:,} bytes, and {free:,} are free. {self.last_good()}"
            ) from None

    def _point(self, step: int, loss: float | None) -> None:
        """Say which checkpoint answers best, and what its manifest is, so that no other can be taken for it."""
        path = self.path(step)
        content = {"checkpoint": f"{CHECKPOINTS}/{path.name}", "step": step, "loss": loss}
        with told("read", path):
            content["manifest"] = digest(path / MANIFEST)
        write_json(self.run / BEST, sealed(content))

    def _tidy(self, wanted: set[Path]) -> None:
        for old in self.all():
            if old not in wanted:
                going = old.with_name(f".{old.name}.partial")
                with suppress(OSError):  # it will be tried again
                    old.rename(going)  # at once, so that no half of it can be taken for a checkpoint
                    shutil.rmtree(going)

    def sweep(self) -> None:
        """Remove what a process that was killed left half done."""
        for folder in (self.run, self.folder):
            for path in folder.glob(".*.partial"):
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)

    def restore(self, learner: Learner, warn: Callable[[str], None]) -> Progress | None:
        """Go back to the newest checkpoint that is whole. A damaged one is named, passed over and put aside.

        All processes of a run do so at once, and find the same.
        """
        damaged: list[Path] = []
        for name in json.loads(learner.world.heard(json.dumps([path.name for path in self.all()]))[0]):
            path = self.folder / name
            try:
                files = checked(path, [*learner.needed(), PROGRESS], learner.world)
            except DiskError:
                raise  # the disk may answer better another time
            except WeightsError as fault:
                warn(f"{fault} Going back to the checkpoint before it.")
                damaged.append(path)
            else:
                progress = self._read(path, files, learner)
                if learner.world.first:
                    _put_aside(damaged)
                return progress
        if damaged:
            raise TrainingError(f"no checkpoint in {self.folder} is whole. Begin anew under another name.")
        return None

    def _read(self, path: Path, files: Listed, learner: Learner) -> Progress:
        content = read_json(path / PROGRESS)
        changes = differences(content["settings"], self.settings)
        if changes:
            listed = "\n".join(f"  {change}" for change in changes)
            raise TrainingError(
                f"{path} was made with other settings:\n{listed}\n"
                "Give the old ones to go on from it, or begin anew under another name."
            )
        learner.put_back({file: read_parts(path, file, files) for file in learner.needed()}, path)
        learner.scaler.load_state_dict(content["scaler"])
        return Progress.from_json(content["progress"])


def _write_whole(files: dict[str, dict[str, Tensor]], made: Path) -> None:
    for name, tensors in files.items():
        write_file(tensors, made / name)


def _write_beside(model: nn.Module, tokenizer: Path | None, made: Path) -> None:
    """Which model it is, where softlook knows it, and its words."""
    if name_of(model) is not None:
        try:
            describe(model, made)
        except WeightsError as fault:
            log.warning("This checkpoint is for resuming alone, and cannot be loaded without the run's code: %s", fault)
    if tokenizer is not None:
        shutil.copyfile(tokenizer, made / TOKENIZER)


def _put_aside(damaged: list[Path]) -> None:
    for path in damaged:
        aside = path.with_name(f"{path.name}.damaged")
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
