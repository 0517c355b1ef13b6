"""Train the date model that is part of softlook: python -m softlook.recipes.demo FOLDER.

FOLDER/date_reader replaces the folder of that name in this package. Ten minutes on one CPU core.
"""

import sys
from itertools import islice
from pathlib import Path

from softlook.recipes.demo.dates import held_out_dates, held_out_forms, score_dates, train, typed_dates
from softlook.weights import save

STEPS = 1500


def main(folder: Path) -> None:
    pipeline = train(folder, steps=STEPS)
    save(pipeline.model, folder / "date_reader", tokenizer=folder / "run" / "tokenizer.json")
    typed = list(islice(typed_dates(2, held_out=True), 2000))
    for name, dates in (("dates", held_out_dates(2000)), ("formats", held_out_forms(1000)), ("typed", typed)):
        scores = score_dates(pipeline, dates)
        sys.stdout.write(f"{name}: {scores.accuracy:.2%} {scores.errors}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
