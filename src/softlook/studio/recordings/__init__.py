"""Recordings that ship with the package, and recordings as files."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from softlook.lens.trace import load_trace
from softlook.studio.recording import StudioTrace
from softlook.studio.session import Studio

EXAMPLE = "date"
"""The recording that `softlook studio` shows first: the included model reads a date. `page.example_recording` is the
same as JSON, for the page."""


def load_example() -> StudioTrace:
    """The recording that ships with the package.

    >>> load_example().title
    'jeudi 3 mars 2022 → 2022-03-03'
    """
    folder = Path(str(files("softlook.studio.recordings")))
    about: dict[str, Any] = json.loads((folder / f"{EXAMPLE}.json").read_text(encoding="utf-8"))
    return StudioTrace(load_trace(folder / f"{EXAMPLE}.safetensors"), **about, id=EXAMPLE)


def example_studio() -> Studio:
    """A studio with the recording that ships with the package, while its model is still to be loaded."""
    studio = Studio([load_example()])
    studio.loading = True
    return studio


def load_recording(path: Path) -> StudioTrace:
    """A trace file that `Trace.save` wrote."""
    recorded = load_trace(path)
    return StudioTrace(recorded, path.stem, model="")
