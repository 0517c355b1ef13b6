"""How many examples there are, and how many were left out."""

from softlook.base.errors import DataError


class Tally:
    """How many examples were read, and how many left out. Raises when too many are bad.

    >>> tally = Tally(bad_rows=1)
    >>> tally.keeps("a text"), tally.keeps("a text", " ")
    (True, False)
    >>> tally.bear(DataError("no text"))
    >>> tally.read, tally.empty, tally.bad
    (1, 1, 1)
    """

    def __init__(self, bad_rows: int = 0) -> None:
        self.bad_rows = bad_rows
        self.read = self.empty = self.bad = 0
        self.first: list[str] = []
        """The first few faults, in words."""

    def keeps(self, *texts: str) -> bool:
        """Count an example, as read or, where one of its texts is blank, as empty."""
        for text in texts:
            if not text or text.isspace():
                self.empty += 1
                return False
        self.read += 1
        return True

    def bear(self, fault: DataError) -> None:
        """Leave a record out, if there is still one to spare."""
        if self.bad >= self.bad_rows:
            if self.bad:
                fault.why = f"{fault.why}. {self.bad:,} bad rows before it were left out".lstrip(". ")
            leave_out = "leave such rows out: --max-bad-rows 100"
            fault.help = f"{fault.help}; or {leave_out}" if fault.help else leave_out
            raise fault
        self.bad += 1
        if len(self.first) < 5:
            self.first.append(str(fault))
