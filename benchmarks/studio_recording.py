"""`python -m benchmarks.studio_recording`: record what `softlook studio` shows first, the included model on a date."""

import json
from pathlib import Path

from softlook.recipes.inference.pipeline import DATES, load_pipeline
from softlook.recipes.studio.live_model import live_model
from softlook.studio.export import record_answers, recording_json
from softlook.studio.recording import StudioTrace
from softlook.studio.recordings import EXAMPLE, load_example

FOLDER = Path("src/softlook/studio/recordings")
TEXT = "jeudi 3 mars 2022"


def main() -> None:
    live = live_model(load_pipeline(DATES, device="cpu"))
    given = live.encode(TEXT, None, None)
    recorded = live.record(given)
    about = {"title": f"{TEXT} → {''.join((given.predicted or [])[:-1])}", "model": live.name, "task": live.task}
    recording = StudioTrace(recorded, live=live, **about)
    known = record_answers(recording)
    answers = {name: known[name] for name in ("next", "logit_lens")}
    for suffix in ("safetensors", "json", "page.json"):
        (FOLDER / f"{EXAMPLE}.{suffix}").unlink(missing_ok=True)
    recorded.save(FOLDER / f"{EXAMPLE}.safetensors")
    content = {**about, "predicted": given.predicted, "answers": answers}
    (FOLDER / f"{EXAMPLE}.json").write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")
    (FOLDER / f"{EXAMPLE}.page.json").write_text(recording_json(load_example()), encoding="utf-8")
    for path in sorted(FOLDER.glob(f"{EXAMPLE}.*")):
        print(f"{path}  {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
