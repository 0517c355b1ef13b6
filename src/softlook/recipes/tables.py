"""Tables: rows in, a model that predicts one column from the others out.

It learns as the estimators of `softlook.tabular` do, to the bit; folder, checkpoints, events and report are those of
every run.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from softlook.recipes.keeping import Keeper
from softlook.recipes.remembering import SCORES, place_of, remembered, write_settings
from softlook.recipes.report import IMPORTANCES, write_report
from softlook.recipes.settings import Table
from softlook.recipes.sinks.choice import Sinks, sinks_of, telling
from softlook.recipes.tables_data import TableData, read_data, told_of
from softlook.recipes.tables_foreseeing import Foreseen, rehearsed
from softlook.recipes.tables_learning import Keeping, Paused, introduced
from softlook.recipes.tables_page import columns_part
from softlook.recipes.tables_scores import rows_for_test, scored
from softlook.recipes.tables_settling import estimator_for, fixed, settled_for, with_found_sizes
from softlook.recipes.told import Settled, Told, nested, settle, told
from softlook.tabular.baselines import MOST_ROWS
from softlook.tabular.encoding.reading import Reading
from softlook.tabular.encoding.rows import Rows, some_rows
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.learning.fitting import Epoch, Learner, Limits
from softlook.tabular.wording import many
from softlook.train.device import choose_device
from softlook.train.events import Event, EventLog, Finished, Listener, Saved
from softlook.train.folder import RunFolder, write_json
from softlook.weights.schema import read_json

log = logging.getLogger("softlook.recipes")


@dataclass(frozen=True)
class Fitted:
    """What a run leaves."""

    folder: Path
    estimator: TableEstimator | None
    """None where it was stopped on the way."""
    finished: Finished
    scores: dict[str, Any]
    settled: Settled[Table]


def table(asked: Table | Told[Table], listeners: Sequence[Listener] = ()) -> Fitted:
    """Learn to predict a column: `softlook train table --data people.csv --target income`.

    >>> from softlook.recipes.settings import Table, TableSizes, TableTraining
    >>> rows = "".join(f"{n % 7},{'ab'[n % 2]},{'yes' if n % 2 else 'no'}\\n" for n in range(80))
    >>> _ = Path("people.csv").write_text(f"age,city,buys\\n{rows}")
    >>> small, short = TableSizes(dim=8, depth=1, heads=2), TableTraining(epochs=2)
    >>> asked = Table(data=(Path("people.csv"),), target=("buys",), size=small, training=short, no_baseline=True)
    >>> sorted(table(asked).scores)
    ['accuracy', 'auc', 'importances', 'log_loss']
    """
    asked = told(asked) if isinstance(asked, Table) else asked
    settings = settle(asked, {}).settings
    choose_device(settings.training.device)
    names = sinks_of(settings.sinks)
    data = read_aloud(settings)
    folder = RunFolder(place_of("table", asked))
    with folder.mine(), told_of(settings), ExitStack() as stack:
        settled = begin(asked, data, folder)
        return learn(Beginning(folder, settled, data, names, stack), listeners)


def foresee(asked: Told[Table]) -> Foreseen:
    """Settle everything, and begin nothing."""
    settings = settle(asked, {}).settings
    choose_device(settings.training.device)
    with told_of(settings):
        found = rehearsed(asked, read_aloud(settings))
    log.info("\n".join((*found.said, *found.settled.lines())))
    return found


def read_aloud(settings: Table) -> TableData:
    """Read the data, and say what was found."""
    data = read_data(settings)
    for sentence in data.said:
        log.info(sentence)
    rows, columns = data.shape
    log.info(f"{many(rows, 'row')} of {many(columns, 'column')}.")
    return data


def begin(asked: Told[Table], data: TableData, folder: RunFolder) -> Settled[Table]:
    """Settle everything and write it down, or find it as it was written down."""
    before = remembered(folder, asked)
    settled = settled_for(asked, data, {} if before is None else before.values)
    estimator_for(settled.settings, data)  # what does not go together is said before anything is written
    if before is None:
        log.info("\n".join(settled.lines()))
    goes_on = folder.exists()
    if goes_on:
        folder.open(config_of(settled), data.digest)
        write_settings(folder, "table", settled)
    log.info(f"{'Going on with' if goes_on else 'Beginning'} {folder.path}")
    return settled


def learn(run: "Beginning", listeners: Sequence[Listener]) -> Fitted:
    """Learn, then judge what came of it, with everybody listening."""
    folder, settled, data = run.folder, run.settled, run.data
    estimator = estimator_for(settled.settings, data)
    run.keeping = Keeping(folder, estimator, settled.settings.training, run.say)
    run.listeners += listeners
    try:
        estimator._fit(*data.train, None, data.valid, run)
    except Paused:
        assert run.keeping.finished is not None
        return Fitted(folder.path, None, run.keeping.finished, _known(folder.path), settled)
    assert run.keeping.finished is not None and run.learner is not None
    if (asked := run.keeping.stop.asked) is not None:  # while the last epoch was under way
        ended = replace(run.keeping.finished, complete=False, signal=asked)
        return Fitted(folder.path, None, ended, _known(folder.path), settled)
    try:
        scores = scored(
            estimator,
            run.learner,
            data,
            run.test,
            settings=settled.settings,
            known=_known(folder.path),
            seconds=run.keeping.finished.seconds,
        )
    except KeyboardInterrupt:
        log.info("The model has learned and is saved. The same command goes on with what it is worth.")
        raise
    write_json(folder.path / SCORES, scores)
    run.end(scores)
    return Fitted(folder.path, estimator, run.keeping.finished, scores, settled)


class Beginning:
    """Begins a run once all is made that it takes, so that nothing that cannot be leaves a run behind; has it learn."""

    def __init__(
        self, folder: RunFolder, settled: Settled[Table], data: TableData, sinks: Sequence[str], stack: ExitStack
    ) -> None:
        self.folder, self.settled, self.data, self.names, self.stack = folder, settled, data, sinks, stack
        self.listeners: list[Listener] = []
        self.keeping: Keeping | None = None
        self.learner: Learner | None = None
        self.keeper: TableKeeper | None = None
        self.sinks = Sinks([])
        self.test: Rows | None = None

    def __call__(self, learner: Learner, limits: Limits) -> list[Epoch]:
        """What an estimator's `fit` asks for, when it has learned about the columns and made a model."""
        self.learner, keeping = learner, self.keeping
        assert keeping is not None
        estimator, sized = keeping.estimator, with_found_sizes(self.settled, type(keeping.estimator), learner.recipe)
        self.test = rows_for_test(estimator, self.data)  # before anybody learns for hours, lest something be wrong
        self.keeper = TableKeeper(self.folder.path, sized.rows(), estimator.reading_)
        if not self.folder.exists():
            self.folder.open(config_of(self.settled), self.data.digest)
            write_settings(self.folder, "table", sized)
            for sentence in introduced(learner, estimator, self.settled.settings.training):
                log.info(sentence)
        told = {name: value for name, value, _ in self.settled.rows()}
        self.sinks = self.stack.enter_context(telling(self.names, self.folder.path, told))
        self.listeners[:0] = [EventLog(self.folder.events), self.keeper, self.sinks]
        history = keeping(learner, limits)
        if not isinstance(learner.train, Rows):  # rows on disk are gone when learning is over
            dice = torch.Generator().manual_seed(self.settled.settings.training.seed)
            learner.train = some_rows(learner.train, MOST_ROWS, dice)
        return history

    def say(self, event: Event) -> None:
        """To everybody who listens."""
        for listener in self.listeners:
            listener(event)

    def end(self, scores: dict[str, Any]) -> None:
        """Say what came of it."""
        assert self.keeper is not None
        self.keeper.draw(scores)
        self.sinks.scores = scores


def config_of(settled: Settled[Table]) -> dict[str, Any]:
    """What may not change while a run goes on."""
    return {"task": "table", **nested(fixed(settled))}


class TableKeeper(Keeper):
    """Draws the page, with all columns, whenever a checkpoint was made: a look may come many times a second."""

    def __init__(self, folder: Path, settings: Sequence[tuple[str, str, str]], reading: Reading) -> None:
        super().__init__(folder, settings)
        self.reading = reading

    def draw(self, scores: Mapping[str, Any]) -> None:
        """The page and the plot, as things stand."""
        own = columns_part(self.reading.told(), self.reading.columns.names, scores.get(IMPORTANCES))
        write_report(self.folder, self.settings, scores, own=own)

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        if isinstance(event, Saved):
            self.draw(self.scores)


def _known(folder: Path) -> dict[str, Any]:
    return read_json(folder / SCORES) if (folder / SCORES).is_file() else {}
