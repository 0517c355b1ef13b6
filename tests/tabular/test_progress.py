"""One line that says how far learning has come."""

from io import StringIO

import pytest

from softlook.tabular.progress import progress_printer

EPOCHS = [{"epoch": number, "loss": 1 / number, "seconds": 0.5} for number in (1, 2)]


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_at_a_terminal_the_last_line_stays_and_the_next_one_is_free() -> None:
    out = Terminal()
    with progress_printer(True, out) as tell:
        for epoch in EPOCHS:
            tell(epoch)
    shown = [line.split("\x1b[2K")[-1] for line in out.getvalue().split("\n")]
    assert shown == ["epoch 2: loss 0.5000 (0.5 s)", ""]


def test_so_it_is_where_learning_is_broken_off() -> None:
    out = Terminal()
    with pytest.raises(KeyboardInterrupt), progress_printer(True, out) as tell:
        tell(EPOCHS[0])
        raise KeyboardInterrupt
    assert out.getvalue().endswith("(0.5 s)\n")


def test_elsewhere_every_epoch_has_a_line() -> None:
    out = StringIO()
    with progress_printer(True, out) as tell:
        for epoch in EPOCHS:
            tell(epoch)
    assert out.getvalue() == "epoch 1: loss 1.0000 (0.5 s)\nepoch 2: loss 0.5000 (0.5 s)\n"


@pytest.mark.parametrize("out", [StringIO(), Terminal()], ids=["file", "terminal"])
def test_who_did_not_ask_is_told_nothing(out: StringIO) -> None:
    with progress_printer(False, out) as tell:
        tell(EPOCHS[0])
    assert out.getvalue() == ""
