"""`softlook train`: from a file to a working model."""

import logging
import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from softlook.cli.talk import Result
from softlook.recipes.settings import Classify, Fill, Lm, Task, Translate, Vectors
from softlook.recipes.told import gather

log = logging.getLogger("softlook.cli")
Data = Annotated[Path, Parameter(show=False)]
TRANSLATE, LM, FILL, CLASSIFY, VECTORS = Translate(), Lm(), Fill(), Classify(), Vectors()
"""What is asked where nothing is said."""
Config = Annotated[Path | None, Parameter(help="a TOML file with settings")]
Dry = Annotated[bool, Parameter(help="say what would be done, with every setting, and begin nothing")]
All = Parameter(name="*")


def translate(
    *files: Data, asked: Annotated[Translate, All] = TRANSLATE, config: Config = None, dry_run: Dry = False
) -> Result:
    return _train("translate", asked, files, config, dry_run)


def lm(*files: Data, asked: Annotated[Lm, All] = LM, config: Config = None, dry_run: Dry = False) -> Result:
    return _train("lm", asked, files, config, dry_run)


def fill(*files: Data, asked: Annotated[Fill, All] = FILL, config: Config = None, dry_run: Dry = False) -> Result:
    return _train("fill", asked, files, config, dry_run)


def classify(
    *files: Data, asked: Annotated[Classify, All] = CLASSIFY, config: Config = None, dry_run: Dry = False
) -> Result:
    return _train("classify", asked, files, config, dry_run)


def vectors(
    *files: Data, asked: Annotated[Vectors, All] = VECTORS, config: Config = None, dry_run: Dry = False
) -> Result:
    return _train("vectors", asked, files, config, dry_run)


def _train(task: str, asked: Task, files: tuple[Path, ...], config: Path | None, dry_run: bool) -> Result:
    # Here, not above: whoever asks for help need not wait for torch.
    from softlook.cli.progress import progress  # noqa: PLC0415
    from softlook.recipes.running import foresee, run  # noqa: PLC0415

    if files:
        asked = type(asked).model_validate(
            {**asked.model_dump(exclude_unset=True, by_alias=True), "data": files + asked.data}
        )
    told = gather(asked, config=config, environ=os.environ)
    if dry_run:
        settled = foresee(task, told)
        rows = [f"{name:24} {value:20} {origin}" for name, value, origin in settled.rows()]
        return Result(Path(), {"settings": settled.values(), "origins": settled.origins}, "\n".join(rows))
    with progress() as spoken:
        trained = run(task, told, [spoken])
    if not trained.finished.complete:
        log.info(f"Everything up to step {trained.progress.step:,} is saved. The same command goes on from there.")
        raise KeyboardInterrupt
    log.info("\n".join(_next(trained.folder)))
    return Result(trained.folder, {"steps": trained.progress.step, "scores": trained.scores})


def _next(folder: Path) -> list[str]:
    name = f'"{folder}"' if " " in str(folder) else str(folder)
    return [
        "Next:",
        f"  softlook eval {name} --data FILE   what it is worth on other data",
        f"  softlook export hf {name}          for other people's programs",
        f"  {folder / 'report.html'}           all about it, in a browser",
    ]
