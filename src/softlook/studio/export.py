"""A recording as one HTML file, or as JSON for the page, with the answers of its model."""

import json
from pathlib import Path
from typing import Any

from softlook.lens.trace_page import record, write_page
from softlook.studio.answers.predictions import head_scores, lens, next_tokens
from softlook.studio.recording import StudioTrace

MAX_POSITIONS = 512
"""Positions whose predictions are kept in a file."""
CANDIDATES, DIGITS = 5, 5


def save_page(recording: StudioTrace, path: Path) -> None:
    """Write a new HTML file that shows the recording without a server.

    >>> import tempfile
    >>> from softlook.studio.recordings import load_example
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_page(load_example(), Path(folder) / "date.html")
    ...     "jeudi" in (Path(folder) / "date.html").read_text(encoding="utf-8")
    True
    """
    write_page(path, recording.trace, recording.info(), **record_answers(recording))


def recording_json(recording: StudioTrace) -> str:
    """What the page needs of a recording to show it without a server, as JSON that HTML may contain."""
    known = record(recording.trace, recording.info(), record_answers(recording))
    known["info"]["id"] = recording.id
    return json.dumps(known, allow_nan=False).replace("<", "\\u003c")


def record_answers(recording: StudioTrace) -> dict[str, Any]:
    """The answers of every position that need the model, and the scores of the heads."""
    answers: dict[str, Any] = {name: recording.answers[name] for name in recording.answers}
    info, live, logits = recording.info(), recording.live, recording.trace.logits
    if any(one["kind"] != "cross" and one["rows"] == one["columns"] for one in info["attentions"]):
        answers["head_table"] = head_scores(recording)
    if live is None or logits is None or logits.shape[-2] > MAX_POSITIONS:
        return rounded(answers)
    positions = range(logits.shape[-2] if logits.ndim == 3 else 1)
    if "next" in live.capabilities:
        answers["next"] = [next_tokens(recording, position, CANDIDATES) for position in positions]
    if "logit_lens" in live.capabilities:
        answers["logit_lens"] = [lens(recording, position) for position in positions]
    return rounded(answers)


def rounded(value: Any) -> Any:
    """Numbers with a few significant digits.

    >>> rounded({"p": [0.123456789, "a"]})
    {'p': [0.12346, 'a']}
    """
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return {name: rounded(one) for name, one in value.items()} if isinstance(value, dict) else value
