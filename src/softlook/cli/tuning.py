"""`softlook tune`: better settings for a table, by trying many."""

import logging
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from softlook.cli.talk import Result
from softlook.recipes.settings import Tune
from softlook.recipes.told import gather

if TYPE_CHECKING:
    from softlook.tabular.tuning import Tried

log = logging.getLogger("softlook.cli")
TUNE = Tune()
"""What is asked where nothing is said."""
All = Parameter(name="*")
ENDS = {"complete": "", "broken off": ", broken off: it fell behind", "failed": ", failed"}


def tune(
    *files: Annotated[Path, Parameter(show=False)],
    asked: Annotated[Tune, All] = TUNE,
    config: Annotated[Path | None, Parameter(help="a TOML file with settings")] = None,
) -> Result:
    """Try many settings for a table, and keep the best."""
    # Here, not above: whoever asks for help need not wait for torch.
    from softlook.cli.voice import Voice  # noqa: PLC0415
    from softlook.recipes.tuning import tune as search  # noqa: PLC0415

    if files:
        said = asked.model_dump(exclude_unset=True, by_alias=True)
        asked = Tune.model_validate({**said, "data": files + asked.data})
    told = gather(asked, config=config, environ=os.environ)
    try:
        found = search(told, _teller(Voice(), told.get("trials")))
    except KeyboardInterrupt:
        log.info("All trials that came to an end are kept. The same command goes on with the others.")
        raise
    best = next((one for one in found.tried if one.is_best), None)
    if best is not None:
        log.info(f"The best of {len(found.tried)} trials is number {best.number + 1}: held-out loss {best.loss:.4f}.")
    name = f'"{found.best}"' if " " in str(found.best) else str(found.best)
    log.info(f"Next:\n  softlook train table --config {name}")
    facts: dict[str, Any] = {"trials": len(found.tried), "settings": found.settings}
    return Result(found.best, facts)


def _teller(voice: Any, trials: int) -> "Callable[[Tried], None]":
    def tell(tried: "Tried") -> None:
        log.info(line(tried, trials))
        if voice.json:
            voice.object(asdict(tried))
            voice.flush()

    return tell


def line(tried: "Tried", trials: int) -> str:
    """What came of a trial, for people."""
    found = [] if tried.loss is None else [f"held-out loss {tried.loss:.4f}"]
    if tried.score is not None and tried.score != -(tried.loss or 0.0):
        found.append(f"accuracy {tried.score:.4f}")
    found += [f"{tried.epochs} epochs", f"{tried.seconds:.1f} s"]
    end = ENDS[tried.state] + f": {tried.why}" * bool(tried.why) + ", the best so far" * tried.is_best
    settings = ", ".join(f"{name} {_shown(value)}" for name, value in tried.settings.items())
    return f"trial {tried.number + 1} of {trials}: {', '.join(found)}{end}\n    {settings}"


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
