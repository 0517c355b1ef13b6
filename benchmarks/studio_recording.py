"""`python -m benchmarks.studio_recording`: record what `softlook studio` shows first, the included model on a date."""

import json
from pathlib import Path

from softlook.recipes.inference.pipeline import DATES, load_pipeline
from softlook.recipes.studio.live_model import live_model
from softlook.studio.answers.predictions import lens, next_tokens
from softlook.studio.recording import Recording
from softlook.studio.recordings import EXAMPLE

FOLDER = Path("src/softlook/studio/recordings")
TEXT = "jeudi 3 mars 2022"
CANDIDATES, DIGITS = 5, 5


def main() -> None:
    live = live_model(load_pipeline(DATES, device="cpu"))
    given = live.encode(TEXT, None, None)
    recorded = live.record(given)
    about = {"title": f"{TEXT} → {''.join((given.predicted or [])[:-1])}", "model": live.name, "task": live.task}
    recording = Recording(recorded, live=live, **about)
    positions = range(len(given.tokens))
    answers = {
        "next": [_rounded(next_tokens(recording, position, CANDIDATES)) for position in positions],
        "logit_lens": [_rounded(lens(recording, position)) for position in positions],
    }
    for suffix in ("safetensors", "json"):
        (FOLDER / f"{EXAMPLE}.{suffix}").unlink(missing_ok=True)
    recorded.save(FOLDER / f"{EXAMPLE}.safetensors")
    content = {**about, "predicted": given.predicted, "answers": answers}
    (FOLDER / f"{EXAMPLE}.json").write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")
    for path in sorted(FOLDER.glob(f"{EXAMPLE}.*")):
        print(f"{path}  {path.stat().st_size / 1e3:.0f} kB")


def _rounded(value: object) -> object:
    """Numbers with a few digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return {name: _rounded(one) for name, one in value.items()} if isinstance(value, dict) else value


if __name__ == "__main__":
    main()
