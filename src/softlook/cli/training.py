"""`softlook train`: from a file to a working model."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from softlook.cli.ending import Terminated
from softlook.cli.talk import Result
from softlook.recipes.settings import Begun, Classify, Fill, Lm, Table, Translate, Vectors
from softlook.recipes.told import gather

log = logging.getLogger("softlook.cli")
Data = Annotated[Path, Parameter(show=False)]
TRANSLATE, LM, FILL, CLASSIFY, VECTORS, TABLE = Translate(), Lm(), Fill(), Classify(), Vectors(), Table()
"""What is asked where nothing is said."""
Config = Annotated[Path | None, Parameter(help="a TOML file with settings")]
Dry = Annotated[bool, Parameter(help="say what would be done, with every setting, and begin nothing")]
Devices = Annotated[int, Parameter(help="processes on this machine that learn as one, each on a device of its own")]
All = Parameter(name="*")


@dataclass(frozen=True)
class More:
    """What a command is told beside its settings."""

    config: Config = None
    devices: Devices = 1
    dry_run: Dry = False


@dataclass(frozen=True)
class MoreAlone:
    """The same, where one process learns."""

    config: Config = None
    dry_run: Dry = False


MORE, MORE_ALONE = More(), MoreAlone()


def translate(*files: Data, asked: Annotated[Translate, All] = TRANSLATE, more: Annotated[More, All] = MORE) -> Result:
    return _train("translate", asked, files, more)


def lm(*files: Data, asked: Annotated[Lm, All] = LM, more: Annotated[More, All] = MORE) -> Result:
    return _train("lm", asked, files, more)


def fill(*files: Data, asked: Annotated[Fill, All] = FILL, more: Annotated[More, All] = MORE) -> Result:
    return _train("fill", asked, files, more)


def classify(*files: Data, asked: Annotated[Classify, All] = CLASSIFY, more: Annotated[More, All] = MORE) -> Result:
    return _train("classify", asked, files, more)


def vectors(*files: Data, asked: Annotated[Vectors, All] = VECTORS, more: Annotated[More, All] = MORE) -> Result:
    return _train("vectors", asked, files, more)


def table(*files: Data, asked: Annotated[Table, All] = TABLE, more: Annotated[MoreAlone, All] = MORE_ALONE) -> Result:
    return _train("table", asked, files, More(more.config, dry_run=more.dry_run))


def _train(task: str, asked: Begun, files: tuple[Path, ...], more: More) -> Result:
    # Here, not above: whoever asks for help need not wait for torch.
    from softlook.cli.together import alone, foreseen, together  # noqa: PLC0415

    if files:
        said = asked.model_dump(exclude_unset=True, by_alias=True)
        asked = type(asked).model_validate({**said, "data": files + asked.data})
    told = gather(asked, config=more.config, environ=os.environ)
    if more.dry_run:
        return foreseen(task, told)
    ended = alone(task, told) if more.devices == 1 else together(task, told, more.devices)
    if not ended.complete:
        log.info(f"Everything up to step {ended.step:,} is saved. The same command goes on from there.")
        raise KeyboardInterrupt if ended.signal in (None, "SIGINT") else Terminated
    log.info("\n".join(_next(task, ended.folder, told.values.get("model"))))
    return Result(ended.folder, {"steps": ended.step, "scores": ended.scores})


def _next(task: str, folder: Path, model: str | None) -> list[str]:
    """What can be done with it now."""
    name = f'"{folder}"' if " " in str(folder) else str(folder)
    ask = {"translate": "translate", "lm": "generate", "classify": "classify", "table": "predict"}.get(task, "embed")
    what = "--data FILE" if task == "table" else '"..."'
    rows = [
        (f"softlook {ask} {name} {what}", "answers for new rows" if task == "table" else "ask it something"),
        (str(folder / "report.html"), "all about it, in a browser"),
    ]
    if task != "vectors":
        rows.append((f"softlook eval {name} --data FILE", "what it is worth on other data"))
    if task in ("fill", "lm") and model in (None, "gpt", "llama"):
        rows.append((f"softlook export hf {name}", "for other people's programs"))
    wide = max(len(words) for words, _ in rows)
    return ["Next:", *(f"  {words:{wide}}  {why}" for words, why in rows)]
