"""Opening a run, a model, a table or a trace in the studio."""

import logging
from pathlib import Path

from softlook.base.errors import ConfigError
from softlook.recipes.config.schema import ImageConfig
from softlook.recipes.config.tabular_schema import TabularConfig
from softlook.recipes.inference.pipeline import DATES, load_pipeline
from softlook.recipes.run_dir.layout import load_run_config
from softlook.recipes.studio.live_model import live_model
from softlook.recipes.studio.runs import RunFolder
from softlook.studio.recordings import load_recording
from softlook.studio.session import Studio
from softlook.train.checkpoint.run_dir import EVENTS
from softlook.weights.manifest import BEST_FILE, ESTIMATOR_FILE, SETTINGS_FILE, best_checkpoint

log = logging.getLogger("softlook.studio")
TEXTS = {"seq2seq": "5 4 2003", "": "The animal didn't cross the street because it was too tired."}
"""The first text of a model, by its task."""


def open_studio(source: str, *, device: str = "auto", text: str | None = None) -> Studio:
    """The studio for a run, a model folder or a trace file. `text` is what the model reads first: a text, or an image.

    >>> open_studio("dates", device="cpu").info()["traces"][0]["title"]
    '5 4 2003'
    """
    studio = _open(source, Path(source), device, text)
    studio.source = source
    return studio


def _open(source: str, path: Path, device: str, text: str | None) -> Studio:
    if path.is_file():
        return Studio([load_recording(path)])
    if _is_table(path):
        from softlook.recipes.studio.tables import open_table  # noqa: PLC0415  (extras)

        table, recording = open_table(path, device)
        return Studio([recording], runs=_runs_of(path), table=table)
    if _is_images(path):
        from softlook.recipes.studio.images import open_images  # noqa: PLC0415  (extras)

        return Studio(open_images(path, device, text), runs=_runs_of(path))
    studio = Studio(runs=_runs_of(path))
    if _has_model(path) or source == DATES:
        _attach(studio, source, device, text)
    elif studio.runs is None:
        load_pipeline(source, device=device)  # raises an error that says what is missing
    return studio


def load_included(studio: Studio, text: str | None = None) -> None:
    """Load the included model behind its recording, and list the runs of this folder.

    >>> from softlook.studio.recordings import example_studio
    >>> studio = example_studio()
    >>> studio.info()["loading"], load_included(studio), studio.info()["loading"]
    (True, None, False)
    """
    studio.runs, studio.source = _runs_in(Path("runs")), DATES
    _attach(studio, DATES, "cpu", text)


def _attach(studio: Studio, source: str, device: str, text: str | None) -> None:
    """Load a model and trace a first text."""
    try:
        live = live_model(load_pipeline(source, device=device))
        studio.attach(live)
        if text is not None or not studio.info()["traces"]:
            studio.keep(studio.record(text or TEXTS.get(str(live.task), TEXTS[""])).id)
    finally:
        studio.loading = False


def _has_model(path: Path) -> bool:
    """Whether the folder has weights: a run that has just started has none."""
    return path.is_dir() and (not (path / SETTINGS_FILE).is_file() or (path / BEST_FILE).is_file())


def _is_table(path: Path) -> bool:
    if not path.is_dir():
        return False
    if (path / SETTINGS_FILE).is_file():
        return (path / BEST_FILE).is_file() and isinstance(load_run_config(path), TabularConfig)
    try:
        return (best_checkpoint(path) / ESTIMATOR_FILE).is_file()
    except (ConfigError, ValueError):
        return False


def _is_images(path: Path) -> bool:
    """Whether the folder is a run of `softlook train images` that has weights."""
    return (
        (path / SETTINGS_FILE).is_file()
        and (path / BEST_FILE).is_file()
        and isinstance(load_run_config(path), ImageConfig)
    )


def _runs_of(path: Path) -> RunFolder | None:
    """A run beside the others of its folder."""
    return RunFolder(path.resolve().parent) if (path / EVENTS).is_file() else _runs_in(path)


def _runs_in(path: Path) -> RunFolder | None:
    folder = RunFolder(path)
    return folder if path.is_dir() and folder.all() else None
