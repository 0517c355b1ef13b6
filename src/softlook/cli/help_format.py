"""Help of commands: the default of every option in one form."""

from cyclopts.help import DefaultFormatter, HelpEntry, HelpPanel, InlineText
from rich.console import Console, ConsoleOptions
from rich.text import Text

DEFAULT_MARK = "; default: "
"""Introduces the default in the description of an option whose default is no plain value."""


class HelpFormatter(DefaultFormatter):
    """Prints the default that a description names as other defaults are printed: [default: the lines of stdin]."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print a panel of options or commands; an empty one is left out."""
        if panel.entries:
            super().__call__(console, options, panel.copy(entries=[_with_default(entry) for entry in panel.entries]))


def _with_default(entry: HelpEntry) -> HelpEntry:
    description, _, default = str(getattr(entry.description, "primary_renderable", "")).partition(DEFAULT_MARK)
    if not default:
        return entry
    return entry.copy(description=InlineText(Text(description)), default=default)
