"""`softlook info` and `softlook doctor`: versions, devices, self-tests."""

import logging
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from softlook.cli.console import CommandResult

log = logging.getLogger("softlook.cli")


def info(
    *, markdown: Annotated[bool, Parameter(help="as a list to paste into a bug report", negative=())] = False
) -> CommandResult:
    """Print versions, devices and free disk space."""
    from softlook.recipes.environment import info as environment_info  # noqa: PLC0415  (imports torch)

    values = environment_info()
    lines = [f"- **{name}**: {value}" if markdown else f"{name:12} {value}" for name, value in values.items()]
    return CommandResult(Path(), dict(values), "\n".join(lines))


def doctor() -> CommandResult:
    """Check that everything a run needs works."""
    from softlook.recipes.environment import doctor as run_checks  # noqa: PLC0415  (imports torch)

    checks = run_checks()
    lines = [f"{'ok ' if check.ok else 'NOT'}  {check.name}: {check.message}" for check in checks]
    failed = [check.name for check in checks if not check.ok]
    if failed:
        log.warning(f"These checks failed: {', '.join(failed)}. Include `softlook info --markdown` in a bug report.")
    return CommandResult(Path(), {"checks": [asdict(check) for check in checks]}, "\n".join(lines))
