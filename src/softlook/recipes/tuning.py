"""A search for settings in a folder of its own: trials that outlast the process, and the best of them as a file.

`softlook train table --config runs/tune-adult/best.toml` takes that file. Rows for a test are never looked at.
"""

import json
import logging
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from softlook.recipes.listing import TRIALS
from softlook.recipes.remembering import place_of
from softlook.recipes.settings import FILES, Tune
from softlook.recipes.tables import read_aloud
from softlook.recipes.tables_data import told_of
from softlook.recipes.tables_settling import GROUPS, estimator_for
from softlook.recipes.told import Told, defaults, nested, settle, told
from softlook.tabular.tuning import Search, Tried
from softlook.train.folder import RunFolder

log = logging.getLogger("softlook.recipes")
JOURNAL, BEST = "trials.journal", "best.toml"
OWN = {"trials", "minutes", "run", "fresh", "sinks"}
"""Settings of the search, which mean nothing to the run that comes after it."""
FREE = OWN | FILES | {"no_baseline"}
"""Settings that may be others when a search goes on, or that are known by their content."""


@dataclass(frozen=True)
class Tuned:
    """What a search leaves."""

    folder: Path
    best: Path
    """The settings, as a file for `--config`."""
    settings: dict[str, Any]
    tried: list[Tried]


def tune(asked: Tune | Told[Tune], tell: Callable[[Tried], None] | None = None) -> Tuned:
    """Search for settings: `softlook tune --data people.csv --target income --trials 20`.

    >>> from softlook.recipes.settings import TableSizes, TableTraining
    >>> rows = "".join(f"{n % 7},{'ab'[n % 2]},{'yes' if n % 2 else 'no'}\\n" for n in range(80))
    >>> _ = Path("people.csv").write_text(f"age,city,buys\\n{rows}")
    >>> small, short = TableSizes(dim=8, depth=1, heads=2, members=1), TableTraining(epochs=2)
    >>> asked = Tune(data=(Path("people.csv"),), target=("buys",), size=small, training=short, trials=2)
    >>> found = tune(asked)
    >>> found.best.as_posix(), len(found.tried), found.settings["optim.lr"] > 0
    ('runs/tune-people/best.toml', 2, True)
    """
    asked = told(asked) if isinstance(asked, Tune) else asked
    settings = settle(asked, {}).settings.model_copy(update={"test": ()})
    data = read_aloud(settings)
    settled = settle(asked, {"answers": data.target.answers})
    folder = RunFolder(place_of("tune", asked))
    with folder.mine(), told_of(settings):
        estimator = estimator_for(settled.settings, data)
        lasting = {name: value for name, value in settled.values().items() if name not in FREE}
        goes_on = folder.open({"task": "tune", **nested(lasting)}, data.digest)
        search = Search(estimator, journal=folder.path / JOURNAL)
        log.info(f"{'Going on with' if goes_on else 'Beginning'} {folder.path}")
        base = {**asked.values, "answers": data.target.answers}
        found = search.go(*data.train, validation=data.valid, trials=settings.trials, minutes=settings.minutes)
        for tried in found:
            _keep(search, folder.path, base)
            if tell is not None:
                tell(tried)
        return _keep(search, folder.path, base)


def _keep(search: Search, folder: Path, base: dict[str, Any]) -> Tuned:
    """Everything that is known, as files that are whole at any time."""
    tried = search.tried()
    best = max((one for one in tried if one.worth is not None), key=lambda one: one.worth or 0.0, default=None)
    tried = [replace(one, is_best=one is best) for one in tried]
    _write(folder / TRIALS, "".join(json.dumps(asdict(one)) + "\n" for one in tried))
    found = {} if best is None else {_full_name(name): value for name, value in search.settings().items()}
    if best is not None:
        head = f"# The best of {len(tried)} trials, number {best.number + 1}: held-out loss {best.loss:.6g}.\n"
        head += "# softlook train table --config takes it.\n"
        values = {name: value for name, value in base.items() if name not in OWN} | found
        _write(folder / BEST, head + as_toml(nested(_from(folder, values))))
    return Tuned(folder, folder / BEST, found, tried)


def _full_name(name: str) -> str:
    known = defaults(Tune)
    return next(f"{group}.{name}" for group in GROUPS if f"{group}.{name}" in known)


def _from(folder: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Paths as seen from the folder, which is where they are counted from when the file is read."""

    def seen(path: Any) -> str:
        return Path(os.path.relpath(Path(path).absolute(), folder.absolute())).as_posix()

    return {name: [seen(path) for path in value] if name in FILES else value for name, value in values.items()}


def as_toml(values: dict[str, Any]) -> str:
    """Settings as TOML, groups last.

    >>> print(as_toml({"size": {"dim": 8}, "target": ("a", "b"), "fresh": True}))
    target = ["a", "b"]
    fresh = true
    <BLANKLINE>
    [size]
    dim = 8
    <BLANKLINE>
    """
    plain = [f"{name} = {_value(value)}\n" for name, value in values.items() if not isinstance(value, dict)]
    groups = [f"\n[{name}]\n{as_toml(value)}" for name, value in values.items() if isinstance(value, dict)]
    return "".join(plain + groups)


def _value(value: Any) -> str:
    """Words, numbers, truths and lists of them are written in TOML as in JSON."""
    return json.dumps(value, default=str).replace("\x7f", "\\u007f")


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
