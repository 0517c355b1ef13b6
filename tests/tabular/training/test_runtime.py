"""Progress lines of a fit."""

from io import StringIO

import pytest

from softlook.tabular.training.runtime import progress_printer

EPOCHS = [{"epoch": number, "loss": 1 / number, "seconds": 0.5} for number in (1, 2)]


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_last_line_remains_and_ends_with_a_newline() -> None:
    out = Terminal()
    with progress_printer(True, out) as callback:
        for epoch in EPOCHS:
            callback(epoch)
    lines = [line.split("\x1b[2K")[-1] for line in out.getvalue().split("\n")]
    assert lines == ["epoch 2: loss 0.5000 (0.5 s)", ""]


def test_an_interrupted_fit_ends_its_line() -> None:
    out = Terminal()
    with pytest.raises(KeyboardInterrupt), progress_printer(True, out) as callback:
        callback(EPOCHS[0])
        raise KeyboardInterrupt
    assert out.getvalue().endswith("(0.5 s)\n")


def test_outside_a_terminal_every_epoch_has_a_line() -> None:
    out = StringIO()
    with progress_printer(True, out) as callback:
        for epoch in EPOCHS:
            callback(epoch)
    assert out.getvalue() == "epoch 1: loss 1.0000 (0.5 s)\nepoch 2: loss 0.5000 (0.5 s)\n"


@pytest.mark.parametrize("out", [StringIO(), Terminal()], ids=["file", "terminal"])
def test_nothing_is_printed_unless_verbose(out: StringIO) -> None:
    with progress_printer(False, out) as callback:
        callback(EPOCHS[0])
    assert out.getvalue() == ""
