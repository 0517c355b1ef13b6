"""What `softlook predict` does."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from softlook.base.errors import ConfigError
from softlook.cli.table_files import Columns, answer_file
from softlook.cli.talk import Result
from softlook.cli.voice import Voice, counting
from softlook.recipes.report import score_name, shown
from softlook.recipes.tables_asking import Answered, OpenedTable, Tally
from softlook.tabular.sources.bad_cells import told_where

log = logging.getLogger("softlook.cli")


@dataclass(frozen=True)
class Telling:
    """How rows are answered, and what is to be shown of it."""

    run: OpenedTable
    out: Path | None = None
    keep: tuple[str, ...] = ()
    probabilities: bool = False
    explain: bool = False

    def tell(self, files: list[Path]) -> Result | None:
        """A row for each row, in their order; at the end what they are worth, where that can be known."""
        if self.probabilities and not self.run.classes:
            raise ConfigError(f"{self.run.name} predicts numbers, which have no probabilities")
        voice, tally, rows = Voice(), Tally(self.run), 0
        pieces, kept = self.run.pieces(files), self.run.kept(files, self.keep)
        answers = answer_file(self.out, is_json=voice.json)
        with told_where(files), answers as file, counting(voice, "rows") as counted:
            for piece, own in zip(pieces, kept, strict=False):  # where nothing is kept there is no end of it
                answered = self.run.answer(piece)
                file.add(self._columns(answered, own))
                tally.add(answered)
                counted.add(piece.num_rows)
                rows += piece.num_rows
        scores = tally.scores()
        if scores:
            self._score(tally, scores)
        facts = {"rows": rows, "scores": scores}
        return None if self.out is None else Result(self.out, facts)

    def _columns(self, answered: Answered, kept: pa.Table) -> Columns:
        names, values = self.run.target, answered.values
        found: Columns = {name: kept.column(name).to_pylist() for name in self.keep}
        if values.ndim == 1:
            found[names[0]] = values.tolist()
        else:
            found |= {name: values[:, place].tolist() for place, name in enumerate(names)}
        if self.probabilities:
            classes = enumerate(map(str, self.run.classes))
            found["probabilities"] = {label: answered.raw[:, place].tolist() for place, label in classes}
        if self.explain:
            looks = self.run.explain(answered.table)
            found["looks"] = {name: looks[:, place].tolist() for place, name in enumerate(self.run.features)}
        return found

    def _score(self, tally: Tally, scores: dict[str, Any]) -> None:
        told = ", ".join(f"{score_name(name)} {shown(value, name)}" for name, value in scores.items())
        log.info(f"{' and '.join(self.run.target)} is known for {tally.rows:,} of the rows: {told}")
        if tally.strange:
            log.info(f"{tally.strange:,} rows have a class that was never learned; they do not count here.")
