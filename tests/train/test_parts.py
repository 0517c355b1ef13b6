"""Checkpoints of weights in parts: each process writes its own, any number of others reads them, none is ever half."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from softlook.models import GPT
from softlook.train.average import mean_of
from softlook.train.distributed import World
from softlook.train.snapshots import Snapshots
from softlook.weights import load
from softlook.weights.files import SINGLE, read_file, read_tensors
from softlook.weights.hollow import own_tensors
from softlook.weights.manifest import verify
from softlook.weights.parts import read_parts
from tests.train.test_snapshots import flipped
from tests.train.tiny import assert_same, weights
from tests.train.worlds import HALF, OTHERS, STEPS, calm, learner, worse

ROOT = Path(__file__).parents[2]
FILES = (SINGLE, "raw.safetensors", "optimizer.safetensors", "dice.safetensors")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="each process of a world is a fork")


def run(where: Path, *jobs: str) -> Path:
    command = [sys.executable, "-m", "tests.train.worlds", str(where), *jobs]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert not done.returncode, done.stderr[-3000:]
    return where


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three processes that was broken off, and what two read of it."""
    return run(tmp_path_factory.mktemp("begun"), "begun")


def content(checkpoint: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint, put together."""
    files = verify(checkpoint)
    return {
        f"{file}/{name}": stored.whole()
        for file in FILES
        for name, stored in read_parts(checkpoint, file, files).items()
    }


@pytest.mark.slow
def test_two_processes_that_were_broken_off_end_as_two_that_were_not(tmp_path: Path) -> None:
    run(tmp_path, "resumed")
    whole = content(Snapshots(tmp_path / "whole").path(STEPS))
    for stop in (3, HALF):
        assert_same(content(Snapshots(tmp_path / f"broken at {stop}").path(STEPS)), whole)


def test_each_process_writes_its_rows_and_whole_tensors_to_answer_with(begun: Path) -> None:
    newest = Snapshots(begun / "three").all()[0]
    files = verify(newest)
    for file in ("model", "raw", "optimizer"):
        assert f"{file}.safetensors" not in files
        parts = [f"{file}-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
        assert all(files[part]["bytes"] < sum(files[part]["bytes"] for part in parts) / 2 for part in parts)
    index = json.loads((newest / "model.safetensors.index.json").read_text(encoding="utf-8"))
    for name, part in index["weight_map"].items():
        assert name in read_file(newest / part)
    assert len(set(index["weight_map"].values())) == 3
    assert_same(
        read_tensors(newest), {name: stored.whole() for name, stored in read_parts(newest, SINGLE, files).items()}
    )
    cut = files["raw-00002-of-00003.safetensors"]["slices"]
    rows = read_file(newest / "raw-00002-of-00003.safetensors")
    assert {name: end - begin for name, (begin, end) in cut.items()} == {name: len(rows[name]) for name in rows}


def test_two_processes_read_what_three_wrote_to_the_last_bit(begun: Path) -> None:
    wanted = content(Snapshots(begun / "three").all()[0])
    assert_same(
        read_file(begun / "read 2 fsdp"), {name: t for name, t in wanted.items() if not name.startswith("dice")}
    )


@pytest.mark.slow
def test_any_number_of_processes_reads_the_same_and_ends_as_one_alone_would_have(tmp_path: Path) -> None:
    run(tmp_path, "resized")
    wanted = content(Snapshots(tmp_path / "three").all()[0])
    wanted = {name: tensor for name, tensor in wanted.items() if not name.startswith("dice")}
    alone = dict(own_tensors(calm(None)))
    for size, way in OTHERS:
        assert_same(read_file(tmp_path / f"read {size} {way}"), wanted)
        ended = dict(own_tensors(load(tmp_path / f"{size} {way}")))
        torch.testing.assert_close(ended, alone, rtol=1e-6, atol=1e-6)


def test_one_process_reads_the_same_too(begun: Path) -> None:
    newest = Snapshots(begun / "three").all()[0]
    known = learner(World())
    settings = json.loads((newest / "progress.json").read_text(encoding="utf-8"))["settings"]
    assert Snapshots(begun / "three", settings=settings).restore(known, pytest.fail).step == HALF  # pyright: ignore
    flat = {f"{file}/{name}": t.detach() for file, tensors in known.files().items() for name, t in tensors.items()}
    assert_same(flat, {name: t for name, t in content(newest).items() if not name.startswith("dice")})


def test_one_alone_ends_it_too_and_anybody_loads_it(begun: Path, tmp_path: Path) -> None:
    shutil.copytree(begun / "three", tmp_path / "run")
    loaded = load(tmp_path / "run")
    assert isinstance(loaded, GPT)
    newest = Snapshots(tmp_path / "run").all()[0]
    assert_same(own_tensors(loaded), read_tensors(newest))
    assert_same(mean_of([newest, newest]), read_tensors(newest))
    torch.testing.assert_close(weights(calm(tmp_path / "run")), weights(calm(None)), rtol=1e-6, atol=1e-6)
    assert (Snapshots(tmp_path / "run").path(STEPS) / SINGLE).is_file()


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def another(path: Path) -> None:
    """The same part of the checkpoint before."""
    shutil.copyfile(Snapshots(path.parents[2]).all()[1] / path.name, path)


def one_bit(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(flipped(content, random.Random(path.name).randrange(8 * len(content))))


@pytest.mark.parametrize("harm", [one_bit, cut_short, another, Path.unlink], ids=lambda harm: harm.__name__)
def test_a_harmed_part_is_named_and_the_checkpoint_before_it_is_taken(
    harm: Callable[[Path], None], begun: Path, tmp_path: Path
) -> None:
    shutil.copytree(begun / "three", tmp_path / "run")
    names = [path.name for path in Snapshots(tmp_path / "run").all()[0].glob("*-of-*")]
    assert len(names) == 9
    for name in names:
        shutil.rmtree(tmp_path / "run")
        shutil.copytree(begun / "three", tmp_path / "run")
        newest, before = Snapshots(tmp_path / "run").all()
        harm(newest / name)
        said: list[str] = []
        settings = json.loads((before / "progress.json").read_text(encoding="utf-8"))["settings"]
        progress = Snapshots(tmp_path / "run", settings=settings).restore(learner(World()), said.append)
        assert progress is not None
        assert progress.step == HALF - 1
        assert name in said[0]
        assert said[0].endswith("Going back to the checkpoint before it.")


@pytest.mark.slow
def test_a_look_after_which_nothing_is_saved_leaves_the_weights_alone(tmp_path: Path) -> None:
    run(tmp_path, "looked")
    alone = calm(None, evaluate=worse(), evaluate_every=2)
    torch.testing.assert_close(read_file(tmp_path / "looked"), dict(own_tensors(alone)), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_whoever_is_killed_while_parts_are_written_the_last_good_checkpoint_stays(tmp_path: Path) -> None:
    run(tmp_path, "resumed", "killed")
    report = json.loads((tmp_path / "killed.json").read_text(encoding="utf-8"))
    assert (report["kills"], report["corrupt"], report["left"]) == (6, 0, 0)
    assert report["inside"], "no kill came in the middle of a save: this proves nothing"
    paths = [Snapshots(tmp_path / name).path(STEPS) for name in ("killed", "whole")]
    assert_same(*map(content, paths))


@pytest.mark.slow
def test_a_disk_that_is_full_for_one_is_told_by_all_and_nothing_is_left(tmp_path: Path) -> None:
    run(tmp_path, "full")
    for after in (1, 2):
        folder = tmp_path / f"full {after}"
        said = [(folder / f"told {rank}").read_text() for rank in range(3)]
        assert all(text.startswith("DiskError: cannot write ") for text in said), said
        assert all("No space left on device" in text and "The last good checkpoint is " in text for text in said)
        assert [path.name for path in Snapshots(folder).all()] == ["step-000000002", "step-000000001"]
        assert not list(folder.rglob("*.partial"))


@pytest.mark.slow
def test_whoever_falls_silent_is_named_and_whoever_is_busy_is_not_missed(tmp_path: Path) -> None:
    run(tmp_path, "silent", "busy")
    for rank in (1, 2):
        said = (tmp_path / f"silent {rank}").read_text(encoding="utf-8")
        assert "rank 0 of 3, process " in said
        assert "gave no sign of life for 1.5 seconds, and the others ended with it." in said
    assert (tmp_path / "busy.json").exists()
